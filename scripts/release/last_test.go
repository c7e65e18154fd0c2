//go:build packages

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/mod/semver"

	"slipway/scripts/internal/changelog"
)

// The last release, built from its commit, must be upgradable to this one under load: by its own command, with a power
// cut in every step, with releases that do not work, and back again on the newer schema. The same must work on two
// nodes, one after the other, in both directions.
func TestLastRelease(t *testing.T) {
	t.Chdir("../..")
	version, _, err := changelog.Newest(".")
	if err != nil {
		t.Fatal(err)
	}
	commits, err := git("log", "--reverse", "--format=%H", "-S## "+version+" ", "--", "CHANGELOG.md")
	commit, _, _ := strings.Cut(commits, "\n")
	if err != nil || commit == "" {
		t.Fatalf("the commit of %s is not found: %v", version, err)
	}
	stories := "UnderLoad|SurvivesPowerCuts|Undone"
	if semver.Compare("v"+version, "v0.2.0") > 0 { // the old program drives the upgrade, and up to 0.2 it reserved no room for going back
		stories += "|OnAFullDisk"
	}
	dir := t.TempDir()
	source, before := filepath.Join(dir, "source"), filepath.Join(dir, "slipway")
	if err := os.Mkdir(source, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, script := range []string{
		"git archive " + commit + " | tar -x -C " + source,
		"cd " + source + "\ngo generate ./internal/platform/sandbox\n" +
			"go build -trimpath -buildvcs=false -tags slipway_init -ldflags '-X main.version=" + version + "' -o " + before + " ./cmd/slipway",
		"export SLIPWAY_E2E_BEFORE=" + before + "\n" +
			"go test -count=1 -timeout 20m -run '^TestUpgrade(" + stories + ")$' -v ./e2e",
		"export SLIPWAY_E2E_BEFORE=" + before + "\n" +
			"go test -count=1 -timeout 20m -run '^TestDrain$' -v ./e2e/nodes",
	} {
		c := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", script)
		c.Env = append(os.Environ(), "CGO_ENABLED=0")
		out, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", script, err, out)
		}
		t.Logf("%s", out)
	}
}
