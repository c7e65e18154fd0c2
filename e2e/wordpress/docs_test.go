package wordpress

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"slipway/e2e/world"
	"slipway/internal/web/docs"
)

var updateDocs = flag.Bool("update-docs", false, "write what the terminal shows into the guide of WordPress")

// The reference's examples that need a WordPress work when pasted into a shell.
func TestDocumentedExamples(t *testing.T) {
	t.Parallel()
	world.Long(t)
	h := install(t)
	archive := h.export(h.ready(h.create("Journal").ID))
	const checked = `until slipway wp info --site journal | grep -q '6.1.90[[:space:]]6.1.90'; do sleep 0.2; done` // after the update check
	// The guide shows the real output. TestDocumentedTerminal runs the other guides.
	if err := h.RunGuide(t.Context(), world.Guide{Name: "cli-wordpress", Key: h.key, Setup: []string{world.SignIn, checked}}, t.TempDir(), *updateDocs); err != nil {
		t.Error(err)
	}
	for _, s := range docs.Scenarios() {
		if s.Name != "wordpress" {
			continue
		}
		dir := t.TempDir()
		ok(t, os.WriteFile(filepath.Join(dir, "site.tar.gz"), archive, 0o600))
		h.offer("6.1.91") // the version that the update finds
		err := h.RunScenario(t.Context(), dir, s, map[string]string{"SLIPWAY_KEY": h.key}, func(name string, env map[string]string) (string, error) {
			if name == "PRODUCTION_ID" {
				return env["CLONE_ID"], nil
			}
			return "", fmt.Errorf("no step gives %s", name)
		})
		if err != nil {
			t.Error(err)
		}
	}
}
