//go:build !slipway_init || (!amd64 && !arm64)

package sandbox

// helperProgram is empty: our own binary is the helper.
var helperProgram []byte
