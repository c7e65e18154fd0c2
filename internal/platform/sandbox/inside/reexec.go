//go:build !slipway_init || (!amd64 && !arm64)

package inside

import "os"

// init is the helper's main where the helper is not a program of its own: a plain `go build`
// and tests need no step before them, and each start of a sandbox takes some milliseconds more.
func init() {
	if len(os.Args) > 1 && os.Args[1] == Name {
		os.Exit(Main(os.Args[2:]))
	}
}
