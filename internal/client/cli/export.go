package cli

import (
	"context"
	"errors"

	"slipway/internal/client/terraform"
)

type exportCommand struct {
	Terraform exportTerraform `cmd:"" help:"Print sites and what belongs to them as a configuration for Terraform and OpenTofu that imports them."`
}

type exportTerraform struct{ target }

// Run prints the configuration.
func (x exportTerraform) Run(ctx context.Context, e *Env) error {
	if x.JSON {
		return errors.New("a configuration isn't what the API answers: leave out --json")
	}
	c, err := x.client(e)
	if err != nil {
		return failure(err)
	}
	return failure(terraform.Write(ctx, c, e.Out))
}
