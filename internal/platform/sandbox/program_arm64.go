//go:build slipway_init

package sandbox

import _ "embed"

// helperProgram is the helper inside.
//
//go:embed slipway-init.arm64
var helperProgram []byte
