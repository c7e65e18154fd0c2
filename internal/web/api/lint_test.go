//go:build lint

package api_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var linters = []string{"@redocly/cli@2.77.0", "@stoplight/spectral-cli@6.16.3"}

// rules are Spectral's OpenAPI rules except operation-success-response, which doesn't accept a WebSocket's 101.
// succeeds replaces it.
const rules = `
extends: ["spectral:oas"]
rules:
  operation-success-response: off
`

// succeeds returns an error unless every operation has a response with a success status.
func succeeds(document string) error {
	var d struct {
		Paths map[string]map[string]struct{ Responses map[string]any }
	}
	if err := json.Unmarshal([]byte(document), &d); err != nil {
		return err
	}
	for path, methods := range d.Paths {
		for method, op := range methods {
			well := func(status string) bool {
				return status == "101" || strings.HasPrefix(status, "2") || strings.HasPrefix(status, "3")
			}
			if !slices.ContainsFunc(slices.Collect(maps.Keys(op.Responses)), well) {
				return fmt.Errorf("%s %s has failures only", method, path)
			}
		}
	}
	return nil
}

// Redocly's and Spectral's linters report no problems in the OpenAPI document.
func TestLinters(t *testing.T) {
	w := newWorld(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "openapi.json")
	document := w.send("GET", "/api/v1/openapi.json", "", nil).body
	if err := os.WriteFile(file, []byte(document), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := succeeds(document); err != nil {
		t.Error(err)
	}
	if succeeds(`{"paths": {"/a": {"get": {"responses": {"404": {}}}}}}`) == nil {
		t.Error("an operation that always fails passes")
	}
	if err := os.WriteFile(filepath.Join(dir, "rules.yaml"), []byte(rules), 0o600); err != nil {
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
