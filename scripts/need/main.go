// Command need installs the Debian packages that it is given, as far as they are missing.
// Where it can't, it says in one line what to install, and lets what follows try without.
package main

import (
	"fmt"
	"os"

	"slipway/scripts/internal/machine"
)

func main() {
	if err := machine.Install(os.Args[1:]...); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}
