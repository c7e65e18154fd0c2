// Package sbom writes lists of the components of releases and images, in CycloneDX 1.6 (ECMA-424).
package sbom

import (
	"bufio"
	"debug/buildinfo"
	"encoding/json"
	"io"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"slipway/packaging"
)

// Own is Slipway's license.
const Own = "Apache-2.0"

// Component is a component of a release or image.
type Component struct {
	Type    string `json:"type"`
	Name    string `json:"name"`
	Version string `json:"version"`
	PURL    string `json:"purl,omitempty"`
	License string `json:"-"` // SPDX expression. Optional.
}

// MarshalJSON adds the license in CycloneDX's form.
func (c Component) MarshalJSON() ([]byte, error) {
	type plain Component
	var licenses []map[string]string
	if c.License != "" {
		licenses = []map[string]string{{"expression": c.License}}
	}
	return json.Marshal(struct {
		plain
		Licenses []map[string]string `json:"licenses,omitempty"`
	}{plain(c), licenses})
}

// licenses returns the licenses of modules and of Go.
var licenses = sync.OnceValue(func() map[string]string {
	all := map[string]string{}
	list, _, _ := strings.Cut(packaging.Licenses(), "\n\n")
	for line := range strings.Lines(list) {
		license, name, _ := strings.Cut(line, "  ")
		name, _, _ = strings.Cut(strings.TrimSpace(name), " ")
		all[name] = license
	}
	return all
})

// Program returns the components of a Go program, read from its build information: Go and the modules.
func Program(file string) ([]Component, error) {
	info, err := buildinfo.ReadFile(file)
	if err != nil {
		return nil, err
	}
	all := []Component{{Type: "platform", Name: "Go", Version: info.GoVersion, PURL: "pkg:generic/go@" + info.GoVersion, License: licenses()["Go"]}}
	for _, m := range info.Deps {
		all = append(all, module(m))
	}
	return all, nil
}

func module(m *debug.Module) Component {
	license := licenses()[m.Path]
	if m.Replace != nil && m.Replace.Version != "" { // without a version, it is another folder of this repository
		m = m.Replace
	}
	if m.Path == "slipway" {
		license = Own
	}
	return Component{Type: "library", Name: m.Path, Version: m.Version, PURL: "pkg:golang/" + m.Path + "@" + m.Version, License: license}
}

// Debian returns the packages in dpkg's status file.
func Debian(status io.Reader) (all []Component, err error) {
	var name, version, arch string
	end := func() {
		if name != "" {
			purl := "pkg:deb/debian/" + name + "@" + strings.NewReplacer("+", "%2B", ":", "%3A").Replace(version) + "?arch=" + arch
			all = append(all, Component{Type: "library", Name: name, Version: version, PURL: purl})
		}
		name, version, arch = "", "", ""
	}
	lines := bufio.NewScanner(status)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		key, value, _ := strings.Cut(lines.Text(), ": ")
		switch key {
		case "":
			end()
		case "Package":
			name = value
		case "Version":
			version = value
		case "Architecture":
			arch = value
		}
	}
	end()
	return all, lines.Err()
}

// Write writes the list of components.
func Write(file string, date time.Time, what Component, parts []Component) error {
	text, err := json.MarshalIndent(map[string]any{
		"bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1,
		"metadata":   map[string]any{"timestamp": date.Format(time.RFC3339), "component": what},
		"components": parts,
	}, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}
