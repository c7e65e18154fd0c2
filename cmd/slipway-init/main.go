// Command slipway-init is the helper that Slipway starts in a sandbox before the command itself. It is embedded into
// slipway (internal/platform/sandbox/program.go); users don't run it.
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
