//go:build !slipway_init || (!amd64 && !arm64)

package inside

import "os"

// init runs the helper's main if the helper isn't a separate program: so a plain `go build` and tests need no
// preparation, but each sandbox starts some milliseconds later.
func init() {
	if len(os.Args) > 1 && os.Args[1] == Name {
		os.Exit(Main(os.Args[2:]))
	}
}
