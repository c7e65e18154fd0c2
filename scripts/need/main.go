// Command need installs missing Debian packages. If it can't, it prints one line that says what to install, and exits
// with 0, so that the next command runs anyway.
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
