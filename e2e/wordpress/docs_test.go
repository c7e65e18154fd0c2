package wordpress

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"slipway/internal/web/docs"
)

// The examples of the reference that need a WordPress work as pasted into a shell.
func TestDocumentedExamples(t *testing.T) {
	t.Parallel()
	h := install(t)
	archive := h.export(h.ready(h.create("Old blog").ID))
	for _, s := range docs.Scenarios() {
		if s.Name != "wordpress" {
			continue
		}
		dir := t.TempDir()
		ok(t, os.WriteFile(filepath.Join(dir, "site.tar.gz"), archive, 0o600))
		h.offer("6.1.91") // what the update finds
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
