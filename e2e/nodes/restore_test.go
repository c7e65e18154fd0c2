package nodes

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"slipway/e2e/world"
	"slipway/internal/platform/dbtest"
)

// One command restores a backup of an installation on PostgreSQL into an empty database and a new data directory. It
// doesn't change a database that isn't empty.
func TestRestoreOnPostgreSQL(t *testing.T) {
	must := func(err error) {
		if err != nil {
			t.Helper()
			t.Fatal(err)
		}
	}
	w, err := world.New(binary, t.TempDir())
	must(err)
	t.Cleanup(w.Close)
	old, empty := dbtest.Empty(t), dbtest.Empty(t)
	plain := w.Flags
	on := func(url string) { w.Flags = append(append([]string(nil), plain...), "--database", url) }
	on(old)
	i := &installation{t: t, nodes: []*world.World{w}}
	i.key, err = w.User("ada@example.test")
	must(err)
	i.start(w)
	i.commit("one", map[string]string{"index.html": "one, as it was"})
	site := i.site(w, "one")
	i.serves(w, "one", "/", "one, as it was")
	place, key := filepath.Join(w.Dir, "elsewhere"), filepath.Join(w.Dir, "old.key")
	_, err = w.CLI("", "backup", "create", "--to", place)
	must(err)
	secret, err := os.ReadFile(filepath.Join(w.Data, "secrets.key"))
	must(err)
	must(os.WriteFile(key, secret, 0o600))
	if out, err := w.CLI(
		"", "backup", "verify", "--from", place, "--key", key,
	); err != nil || !strings.Contains(out, "All files are complete") {
		t.Errorf("verify: %q, %v", out, err)
	}
	must(w.Stop(t.Context()))
	must(os.Rename(w.Data, w.Data+".lost"))

	restore := []string{"backup", "restore", "--from", place, "--key", key}
	w.Flags = plain
	if _, err := w.CLI("", restore...); err == nil || !strings.Contains(err.Error(), "name an empty one with --database") {
		t.Errorf("a restore without a database: %v", err)
	}
	on(old)
	if _, err := w.CLI("", restore...); err == nil || !strings.Contains(err.Error(), "already has tables") {
		t.Errorf("a restore over a database: %v", err)
	}
	if err := w.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "run slipway backup restore again") {
		t.Errorf("what is half restored is served: %v", err)
	}
	on(empty)
	out, err := w.CLI("", restore...)
	must(err)
	t.Log(out)
	i.start(w)
	i.serves(w, "one", "/", "one, as it was")
	must(w.Call(t.Context(), i.key, "GET", "/sites/"+site, nil, &struct{}{})) // the API key is valid, and its user owns the site
}
