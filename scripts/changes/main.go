// Command changes makes a release from the folder changes: go run ./scripts/changes 1.2.3 moves its lines to
// CHANGELOG.md as that version with today's date, and writes the version to VERSION. Without a version, it prints the
// notes of the next release.
package main

import (
	"fmt"
	"os"
	"time"

	"slipway/scripts/internal/changelog"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "changes:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) > 0 {
		return changelog.Gather(".", args[0], time.Now())
	}
	changes, _, err := changelog.Read(".")
	if err == nil {
		fmt.Print(changes.Text())
	}
	return err
}
