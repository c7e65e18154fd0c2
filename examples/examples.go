// Package examples holds sites that Slipway deploys. Each has a README and is deployed by a test.
package examples

import "embed"

// Files has the example that `slipway try` begins with, in hello.
//
//go:embed hello
var Files embed.FS
