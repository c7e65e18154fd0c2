package build

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"slipway/internal/platform/id"

	"slipway/internal/build/framework"
	"slipway/internal/build/toolchain"
	"slipway/internal/platform/db"
	"slipway/internal/platform/dbtest"
	"slipway/internal/platform/fault"
)

// Each site has its own uid, the same each time, also with concurrent calls. A deleted site's uid isn't reused for 30
// days, and the number of uids is limited.
func TestUIDs(t *testing.T) {
	t.Parallel()
	database := dbtest.New(t)
	w := New(Config{DB: database})
	var mu sync.Mutex
	seen := map[int]id.Site{}
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			id := id.Site(fmt.Sprintf("site_%d", i/2)) // two calls per site
			uid, err := w.uidOf(t.Context(), id)
			mu.Lock()
			defer mu.Unlock()
			if err != nil || uid < FirstUID || uid > lastUID {
				t.Errorf("%s: uid %d, %v", id, uid, err)
			}
			if other, ok := seen[uid]; ok && other != id {
				t.Errorf("%s and %s share uid %d", id, other, uid)
			}
			seen[uid] = id
		})
	}
	wg.Wait()
	if len(seen) != 10 {
		t.Errorf("10 sites have %d uids", len(seen))
	}

	// When all uids are assigned, only one that wasn't used for 30 days is assigned again.
	exec := func(q string, args ...any) {
		ok(t, database.Write(t.Context(), func(tx *db.Tx) error { _, err := tx.Exec(t.Context(), q, args...); return err }))
	}
	exec(
		`INSERT INTO build_uids (uid, site_id, released_at, used_at) VALUES ($1, 'gone/last', $2, 1)`,
		lastUID,
		db.Now().Add(-restUID+time.Hour),
	)
	if uid, err := w.uidOf(t.Context(), "site_new"); err == nil {
		t.Errorf("uid %d was given before its rest was over", uid)
	}
	exec(`UPDATE build_uids SET released_at = $1 WHERE uid = $2`, db.Now().Add(-restUID-time.Hour), lastUID)
	if uid, err := w.uidOf(t.Context(), "site_new"); err != nil || uid != lastUID {
		t.Errorf("after its rest: uid %d, %v", uid, err)
	}
	if uid, err := w.uidOf(t.Context(), "site_newer"); err == nil || fault.As(err) == nil {
		t.Errorf("uid %d was given twice, or the refusal says nothing: %v", uid, err)
	}
	// A site that wasn't built for that long loses its uid to another one.
	exec(`UPDATE build_uids SET used_at = $1 WHERE uid = $2`, db.Now().Add(-restUID-time.Hour), FirstUID+3)
	if uid, err := w.uidOf(t.Context(), "site_newer"); err != nil || uid != FirstUID+3 {
		t.Errorf("uid %d, %v, want the one that nobody used", uid, err)
	}
	// A build in progress keeps its site's uid from being reassigned.
	exec(`UPDATE build_uids SET used_at = $1 WHERE uid = $2`, db.Now().Add(-restUID-time.Hour), lastUID)
	if uid, err := w.uidOf(t.Context(), "site_new"); err != nil || uid != lastUID {
		t.Errorf("uid %d, %v", uid, err)
	}
	if uid, err := w.uidOf(t.Context(), "site_newest"); err == nil {
		t.Errorf("uid %d of a site that was just built was given away", uid)
	}
	// A site that has run a program keeps its uid for years, because its files belong to the uid.
	rested := db.Now().Add(-100 * restUID)
	sleeping := seen[FirstUID+5]
	sleeper, err := w.UID(t.Context(), sleeping)
	ok(t, err)
	exec(`UPDATE build_uids SET used_at = $1 WHERE uid = $2`, rested, sleeper)
	if uid, err := w.uidOf(t.Context(), "site_newest"); fault.As(err) == nil {
		t.Errorf("uid %d was given to another site while %d owns files: %v", uid, sleeper, err)
	}
	if uid, err := w.uidOf(t.Context(), sleeping); err != nil || uid != sleeper { // a build doesn't change that
		t.Errorf("its build has uid %d, %v, want %d", uid, err, sleeper)
	}
	exec(`UPDATE build_uids SET used_at = $1 WHERE uid = $2`, rested, sleeper)
	if uid, err := w.UID(t.Context(), "site_newest"); fault.As(err) == nil {
		t.Errorf("uid %d was given to another site's program: %v", uid, err)
	}
	// After the site is deleted, its uid may be reused after 30 days.
	ok(t, database.Write(t.Context(), func(tx *db.Tx) error { return w.ReleaseUIDTx(t.Context(), tx, sleeping) }))
	if uid, err := w.UID(t.Context(), "site_newest"); fault.As(err) == nil {
		t.Errorf("uid %d of a site that was just deleted was given away: %v", uid, err)
	}
	exec(`UPDATE build_uids SET released_at = $1 WHERE uid = $2`, rested, sleeper)
	if uid, err := w.UID(t.Context(), "site_newest"); err != nil || uid != sleeper {
		t.Errorf("after its rest: uid %d, %v, want %d", uid, err, sleeper)
	}
	exec(`UPDATE build_uids SET used_at = $1 WHERE uid = $2`, rested, sleeper)
	if uid, err := w.uidOf(t.Context(), "site_late"); fault.As(err) == nil { // this site has run a program too
		t.Errorf("uid %d was given away although its new site has files: %v", uid, err)
	}
}

// The output is the plan's folder or the first candidate that exists, on a path without symbolic links.
func TestOutput(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		files  map[string]string
		plan   framework.Plan
		want   string
		absent bool
	}{
		"named": {
			map[string]string{"repo/dist/x": "", "repo/build/x": ""},
			framework.Plan{Output: "dist", OutputCandidates: []string{"build"}},
			"dist",
			false,
		},
		"candidate": {
			map[string]string{"repo/build/x": ""},
			framework.Plan{Output: "dist", OutputCandidates: []string{"out", "build"}},
			"build",
			false,
		},
		"below the root": {
			map[string]string{"repo/apps/web/dist/x": ""},
			framework.Plan{Root: "apps/web", Output: "dist"},
			"apps/web/dist",
			false,
		},
		"the repository": {map[string]string{"repo/index.html": ""}, framework.Plan{}, "", false},
		"the root":       {map[string]string{"repo/site/index.html": ""}, framework.Plan{Root: "site"}, "site", false},
		"missing":        {map[string]string{"repo/src/x": ""}, framework.Plan{Output: "dist"}, "", true},
		"a file":         {map[string]string{"repo/dist": ""}, framework.Plan{Output: "dist"}, "", true},
		"a link":         {map[string]string{"repo/real/x": "", "repo/dist": "-> real"}, framework.Plan{Output: "dist"}, "", true},
		"a link above": {
			map[string]string{"repo/real/dist/x": "", "repo/app": "-> real"},
			framework.Plan{Root: "app", Output: "dist"},
			"",
			true,
		},
		"the checkout":  {map[string]string{"old/dist/x": "", "repo": "-> old"}, framework.Plan{Output: "dist"}, "", true},
		"all of a link": {map[string]string{"repo": "-> /etc"}, framework.Plan{}, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := &build{work: t.TempDir(), Spec: Spec{Plan: tt.plan}}
			tree(t, b.work, tt.files)
			if got, there := b.output(); got != tt.want || there == tt.absent {
				t.Errorf("output is %q, %v", got, there)
			}
		})
	}
}

// The modules of the last build are reused only if everything that determines them is the same.
func TestModulesKey(t *testing.T) {
	t.Parallel()
	key := func(change func(b *build, files map[string]string)) string {
		t.Helper()
		b := &build{
			work: t.TempDir(), tools: toolchain.Tools{Node: "20.1.0", Manager: "10.2.0"},
			Spec: Spec{Plan: framework.Plan{
				Inputs: []string{"package.json", "package-lock.json"}, Modules: []string{"node_modules"},
				Install: []framework.Command{{Argv: []string{"npm", "ci"}}},
			}},
		}
		files := map[string]string{"repo/package.json": "{}", "repo/package-lock.json": "{}", "repo/src/x.js": "1"}
		change(b, files)
		tree(t, b.work, files)
		got, err := b.modulesKey()
		ok(t, err)
		return got
	}
	same := func(*build, map[string]string) {}
	first := key(same)
	if first == "" || key(same) != first {
		t.Fatalf("the same twice: %q", first)
	}
	if key(func(_ *build, f map[string]string) { f["repo/src/x.js"] = "2" }) != first {
		t.Error("a source file changes the key of the installation")
	}
	for name, change := range map[string]func(b *build, files map[string]string){
		"the lock file": func(_ *build, f map[string]string) { f["repo/package-lock.json"] = `{"x": 1}` },
		"Node":          func(b *build, _ map[string]string) { b.tools.Node = "22.0.0" },
		"the manager":   func(b *build, _ map[string]string) { b.tools.Manager = "9.0.0" },
		"the command":   func(b *build, _ map[string]string) { b.Plan.Install[0].Argv = []string{"npm", "install"} },
		"the folders":   func(b *build, _ map[string]string) { b.Plan.Modules = append(b.Plan.Modules, "apps/web/node_modules") },
		"what counts":   func(b *build, _ map[string]string) { b.Plan.Inputs = b.Plan.Inputs[:1] },
	} {
		if got := key(change); got == first || got == "" {
			t.Errorf("another of %s has the key %q", name, got)
		}
	}
	for name, change := range map[string]func(b *build, files map[string]string){
		"no inputs":    func(b *build, _ map[string]string) { b.Plan.Inputs = nil },
		"no modules":   func(b *build, _ map[string]string) { b.Plan.Modules = nil },
		"a link out":   func(_ *build, f map[string]string) { f["repo/package-lock.json"] = "-> /etc/hostname" },
		"one is gone":  func(_ *build, f map[string]string) { delete(f, "repo/package-lock.json") },
		"a whole link": func(_ *build, f map[string]string) { clear(f); f["repo"] = "-> /etc" },
	} {
		if got := key(change); got != "" {
			t.Errorf("%s: the key is %q, want none", name, got)
		}
	}
}

// Later variables override earlier ones, in the order tools, stage, site. PATH is Slipway's, and starts with the
// project's own programs.
func TestCommandEnvironment(t *testing.T) {
	t.Parallel()
	b := &build{
		env:   []string{"A=site", "PATH=/evil"},
		tools: toolchain.Tools{Path: []string{"/tools/node/bin"}, Env: []string{"A=tool", "B=tool"}},
		Spec:  Spec{Plan: framework.Plan{Root: "apps/web"}},
	}
	got := map[string]string{}
	for _, kv := range b.commandEnv(framework.Command{Dir: "apps/web"}, map[string]string{"NODE_ENV": "production"}) {
		k, v, _ := strings.Cut(kv, "=")
		got[k] = v
	}
	path := strings.Split(got["PATH"], ":")
	want := []string{
		"/build/repo/apps/web/node_modules/.bin", "/build/repo/node_modules/.bin", "/build/.home/.npm-global/bin",
		"/tools/node/bin", "/usr/local/bin", "/usr/bin", "/bin",
	}
	if got["A"] != "site" || got["B"] != "tool" || got["NODE_ENV"] != "production" || !slices.Equal(path, want) {
		t.Errorf("environment: %v", got)
	}
}

// Clear deletes what interrupted builds left, and keeps tools and caches.
func TestClear(t *testing.T) {
	t.Parallel()
	b := New(Config{Dir: t.TempDir()})
	ok(t, b.Clear())
	tree(t, b.c.Dir, map[string]string{
		"work/dep_x/work/repo/locked/": "",
		"way-123/egress.sock":          "",
		"caches/s/b/key":               "k",
		"tools/kept/x":                 "x",
	})
	ok(t, os.Chmod(filepath.Join(b.c.Dir, "work/dep_x/work/repo/locked"), 0))
	ok(t, b.Clear())
	if got := read(t, b.c.Dir); len(got) != 3 || got["caches.boot"] == "" || got["caches/s/b/key"] != "k" || got["tools/kept/x"] != "x" {
		t.Errorf("left: %v", got)
	}
	if _, err := os.Stat(filepath.Join(b.c.Dir, "work")); err == nil {
		t.Error("the work folder is still there")
	}
}
