package main

import (
	"debug/buildinfo"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"
)

// component is one of CycloneDX 1.6 (ECMA-424).
type component struct {
	Type    string `json:"type"`
	Name    string `json:"name"`
	Version string `json:"version"`
	PURL    string `json:"purl,omitempty"`
}

// sbom writes what the program is built from, as the program itself tells it: the modules in it,
// and the Go they were compiled with.
func (r *release) sbom(program string) error {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return err
	}
	components := []component{{
		Type: "platform", Name: "Go", Version: info.GoVersion,
		PURL: "pkg:generic/go@" + info.GoVersion,
	}}
	for _, m := range info.Deps {
		components = append(components, componentOf(m))
	}
	text, err := json.MarshalIndent(map[string]any{
		"bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1,
		"metadata": map[string]any{
			"timestamp": r.date.Format(time.RFC3339),
			"component": component{Type: "application", Name: "slipway", Version: r.version},
		},
		"components": components,
	}, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.out, "slipway_"+r.version+".cdx.json"), append(text, '\n'), 0o644)
}

func componentOf(m *debug.Module) component {
	if m.Replace != nil {
		m = m.Replace
	}
	return component{Type: "library", Name: m.Path, Version: m.Version, PURL: "pkg:golang/" + m.Path + "@" + m.Version}
}
