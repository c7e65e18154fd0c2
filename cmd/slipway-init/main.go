// Command slipway-init is what Slipway starts inside a sandbox before the command itself. It is
// built into slipway (internal/platform/sandbox/program.go) and never started by hand.
package main

import (
	"os"

	"slipway/internal/platform/sandbox/inside"
)

func main() {
	if len(os.Args) < 2 || os.Args[1] != inside.Name {
		os.Exit(inside.Main(nil))
	}
	os.Exit(inside.Main(os.Args[2:]))
}
