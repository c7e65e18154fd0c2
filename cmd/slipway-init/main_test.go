package main

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// The helper starts twice before each command, while a visitor may wait for it: it is made of
// nothing that is slow to initialize.
func TestHelperIsMadeOfLittle(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	packages := strings.Fields(string(out))
	if !slices.Contains(packages, "slipway/internal/platform/sandbox/inside") {
		t.Fatalf("the helper is made of %v", packages)
	}
	for _, p := range packages {
		own := strings.HasPrefix(p, "slipway/") && p != "slipway/cmd/slipway-init" &&
			p != "slipway/internal/platform/sandbox/inside" && p != "slipway/internal/platform/sandbox/network" &&
			p != "slipway/internal/platform/panics" // which keeps one visitor's connection from ending the network of all
		if own || slices.Contains([]string{"net/http", "regexp", "crypto/tls", "log/slog", "text/template"}, p) {
			t.Errorf("the helper imports %s", p)
		}
	}
}
