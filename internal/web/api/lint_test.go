//go:build lint

package api_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// The linters of the field, pinned.
var linters = []string{"@redocly/cli@2.77.0", "@stoplight/spectral-cli@6.16.3"}

// Redocly's and Spectral's linters find nothing in the document.
func TestLinters(t *testing.T) {
	w := newWorld(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "openapi.json")
	if err := os.WriteFile(file, []byte(w.send("GET", "/api/v1/openapi.json", "", nil).body), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "rules.yaml"), []byte(`extends: ["spectral:oas"]`), 0o600); err != nil {
		t.Fatal(err)
	}
	install := exec.CommandContext(t.Context(), "npm", append([]string{
		"install", "--prefix", dir, "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error",
	}, linters...)...)
	if out, err := install.CombinedOutput(); err != nil {
		t.Skipf("npm can't install the linters: %v\n%s", err, out)
	}
	for name, args := range map[string][]string{
		"redocly":  {"lint", file, "--extends=recommended", "--max-problems=1000"},
		"spectral": {"lint", file, "-r", filepath.Join(dir, "rules.yaml"), "--fail-severity=hint"},
	} {
		cmd := exec.CommandContext(t.Context(), filepath.Join(dir, "node_modules", ".bin", name), args...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "REDOCLY_TELEMETRY=off", "NO_UPDATE_NOTIFIER=1", "REDOCLY_SUPPRESS_UPDATE_NOTICE=true")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}
