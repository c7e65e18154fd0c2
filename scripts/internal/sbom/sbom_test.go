package sbom

import (
	"encoding/json"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"
)

// The list of an image must have Debian's packages, with package URLs that scanners can read, and the modules of a
// program.
func TestComponents(t *testing.T) {
	const status = "Package: libstdc++6\nStatus: install ok installed\nArchitecture: amd64\nVersion: 1:12.2.0-14+deb12u1\nDescription: text\n Package: not one\n\n" +
		"Package: bash\nArchitecture: amd64\nVersion: 5.2\n"
	all, err := Debian(strings.NewReader(status))
	if err != nil {
		t.Fatal(err)
	}
	want := []Component{
		{"library", "libstdc++6", "1:12.2.0-14+deb12u1", "pkg:deb/debian/libstdc++6@1%3A12.2.0-14%2Bdeb12u1?arch=amd64", ""},
		{"library", "bash", "5.2", "pkg:deb/debian/bash@5.2?arch=amd64", ""},
	}
	if !slices.Equal(all, want) {
		t.Errorf("got %+v", all)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	parts, err := Program(self)
	if err != nil || len(parts) == 0 || parts[0].Name != "Go" || parts[0].License != "BSD-3-Clause" {
		t.Errorf("of this program: %+v, %v", parts, err)
	}
	if m := module(&debug.Module{Path: "github.com/klauspost/compress", Version: "v1"}); m.License != "BSD-3-Clause AND Apache-2.0 AND MIT" {
		t.Errorf("the license of a module: %+v", m)
	}
	if text, err := json.Marshal(Component{Name: "x", License: "MIT"}); err != nil || !strings.Contains(string(text), `"licenses":[{"expression":"MIT"}]`) {
		t.Errorf("written as %s, %v", text, err)
	}
	file := filepath.Join(t.TempDir(), "list.json")
	if err := Write(file, time.Unix(0, 0).UTC(), Component{Type: "container", Name: "x", Version: "1"}, all); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	var read struct {
		BOMFormat  string `json:"bomFormat"`
		Components []Component
	}
	if err != nil || json.Unmarshal(text, &read) != nil || read.BOMFormat != "CycloneDX" || !slices.Equal(read.Components, all) {
		t.Errorf("wrote %s, %v", text, err)
	}
}
