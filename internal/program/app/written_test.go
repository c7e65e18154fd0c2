package app

import (
	"slices"
	"strings"
	"testing"

	"slipway/internal/program/runtime"
)

// A deployment's log must name once the paths that its programs wrote to and that are not kept, relative to the project
// like the paths of storage.
func TestWrittenIsNamedOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p, err := w.apps.program("dep_one")
	if err != nil {
		t.Fatal(err)
	}
	want := Wanted{Site: "site_one", Root: "apps/web"}
	for range 2 {
		losses{p, want}.Wrote([]runtime.Written{
			{Path: "apps/web/data", Folder: true},
			{Path: `apps/web/up "x"`, Folder: true},
			{Path: "apps/web/db.json"},
			{Path: "packages/a", Folder: true},
			{Path: "apps/web/x\nsystem: y"},
		})
	}
	got := w.apps.Status("dep_one").Written
	if want := []runtime.Written{{Path: "data", Folder: true}, {Path: `up "x"`, Folder: true}, {Path: "db.json"}, {Path: "/packages/a"}, {Path: `x\u000asystem: y`}}; !slices.Equal(got, want) {
		t.Errorf("written: %v, want %v", got, want)
	}
	said := strings.Join(w.said(), "\n")
	for _, line := range []string{
		`Files in data/, up "x"/ are lost at the next restart. To keep them: storage = ["data", "up \"x\""] under [run] in slipway.toml`,
		"Files that are lost at the next restart: db.json, /packages/a, x\\u000asystem: y. To keep them, write them to a folder",
	} {
		if strings.Count(said, line) != 1 {
			t.Errorf("the log says %d times %q:\n%s", strings.Count(said, line), line, said)
		}
	}
}
