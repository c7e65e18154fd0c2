// Package packaging holds what Slipway is installed with: units, scripts, settings and licenses.
package packaging

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"io"
)

// Settings is the file of settings that a new installation gets, with every line a comment but where data lies and what listens.
//
//go:embed deb/server.toml
var Settings string

//go:embed licenses.gz
var licenses []byte

// Licenses returns the licenses of what is linked into Slipway's programs and embedded in its pages: a line for each part, with the
// SPDX names of its licenses before its name, an empty line, and the texts. scripts/licenses writes it.
func Licenses() string {
	z, err := gzip.NewReader(bytes.NewReader(licenses))
	if err != nil {
		panic(err) // the build embeds it, and a test reads it
	}
	text, err := io.ReadAll(z)
	if err != nil {
		panic(err)
	}
	return string(text)
}
