// Package packaging holds what Slipway is installed with: units, scripts and settings.
package packaging

import _ "embed"

// Settings is the file of settings that a new installation gets, with every line a comment but where data lies and what listens.
//
//go:embed deb/server.toml
var Settings string
