// Command slipway-build runs a pod's build. With an argument it is the pod's entry point, like slipway-program, so that
// the build image needs only one program.
package main

import (
	"os"

	"slipway/cluster/builder"
	"slipway/cluster/inside"
)

func main() {
	if len(os.Args) > 1 {
		os.Exit(inside.Main(os.Args[1:]))
	}
	os.Exit(builder.Main())
}
