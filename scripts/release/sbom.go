package main

import (
	"path/filepath"

	"slipway/scripts/internal/sbom"
)

// sbom writes the list of the program's components.
func (r *release) sbom(program string) error {
	parts, err := sbom.Program(program)
	if err != nil {
		return err
	}
	what := sbom.Component{Type: "application", Name: "slipway", Version: r.version, License: sbom.Own}
	return sbom.Write(filepath.Join(r.out, "slipway_"+r.version+".cdx.json"), r.date, what, parts)
}
