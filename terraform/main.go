// Command terraform-provider-slipway manages sites of a Slipway installation from Terraform and OpenTofu.
package main

import (
	"context"
	"log"

	"github.com/hashicorp/terraform-plugin-framework/providerserver"

	"slipway/terraform/provider"
)

// version is set by the build of a release.
var version = "dev"

func main() {
	err := providerserver.Serve(context.Background(), provider.New(version), providerserver.ServeOpts{Address: provider.Address})
	if err != nil {
		log.Fatal(err)
	}
}
