package build

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"slipway/internal/platform/id"

	"slipway/internal/platform/db"
	"slipway/internal/platform/dbtest"
)

// tree creates files (path → text) below dir. A text that begins with "-> " creates a symbolic link, and a path that
// ends with a slash a folder.
func tree(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		at := filepath.Join(dir, name)
		ok(t, os.MkdirAll(filepath.Dir(at), 0o755))
		switch to, link := strings.CutPrefix(text, "-> "); {
		case strings.HasSuffix(name, "/"):
			ok(t, os.MkdirAll(at, 0o755))
		case link:
			ok(t, os.Symlink(to, at))
		default:
			ok(t, os.WriteFile(at, []byte(text), 0o644))
		}
	}
}

// read is the inverse of tree, without folders.
func read(t *testing.T, dir string) map[string]string {
	t.Helper()
	got := map[string]string{}
	ok(t, filepath.WalkDir(dir, func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		rel, err := filepath.Rel(dir, name)
		if err != nil {
			return err
		}
		if e.Type()&fs.ModeSymlink != 0 {
			to, err := os.Readlink(name)
			got[rel] = "-> " + to
			return err
		}
		text, err := os.ReadFile(name)
		got[rel] = string(text)
		return err
	}))
	return got
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// me is the uid that tests may give files to.
func me() int { return max(os.Geteuid(), 1000) }

// A build finds what the previous one left in its cache folders.
func TestCacheComesBack(t *testing.T) {
	t.Parallel()
	c := cache{filepath.Join(t.TempDir(), "cache")}
	folders := []string{"node_modules/.cache", "packages/app/.next/cache", "never/there"}
	work := t.TempDir()
	tree(t, work, map[string]string{
		"repo/node_modules/.cache/a":        "one",
		"repo/packages/app/.next/cache/b/c": "two",
		"repo/node_modules/kept":            "not of the cache",
	})
	ok(t, c.save("tree", work, "repo", folders))
	if got := read(t, work); len(got) != 1 || got["repo/node_modules/kept"] == "" {
		t.Errorf("left in the work folder: %v", got)
	}
	next := t.TempDir()
	tree(t, next, map[string]string{"repo/package.json": "{}"})
	ok(t, c.restore("tree", next, "repo", folders, me()))
	got := read(t, next)
	if len(got) != 3 || got["repo/node_modules/.cache/a"] != "one" || got["repo/packages/app/.next/cache/b/c"] != "two" {
		t.Errorf("restored: %v", got)
	}
	// A second restore finds nothing and changes nothing.
	ok(t, c.restore("tree", next, "repo", folders, me()))
	if again := read(t, next); len(again) != 3 {
		t.Errorf("restored twice: %v", again)
	}
	// An existing folder is left alone.
	ok(t, c.save("tree", next, "repo", folders))
	tree(t, next, map[string]string{"repo/node_modules/.cache/mine": "committed"})
	ok(t, c.restore("tree", next, "repo", folders, me()))
	if got := read(t, next); got["repo/node_modules/.cache/mine"] != "committed" || got["repo/node_modules/.cache/a"] != "" {
		t.Errorf("over a committed folder: %v", got)
	}
}

// Saving and restoring follow no links that a repository or a build made: their targets don't change.
func TestCacheFollowsNoLink(t *testing.T) {
	t.Parallel()
	folder := "node_modules/.cache"
	for name, links := range map[string]map[string]string{
		"the folder":        {"repo/node_modules/.cache": "-> VICTIM/node_modules/.cache"},
		"its parent":        {"repo/node_modules": "-> VICTIM/node_modules"},
		"the checkout":      {"repo": "-> VICTIM"},
		"relative":          {"repo/node_modules": "-> ../../VICTIMNAME/node_modules"},
		"to nothing":        {"repo/node_modules/.cache": "-> VICTIM/nothing"},
		"inside":            {"repo/real/.cache/x": "mine", "repo/node_modules": "-> real"},
		"a file":            {"repo/node_modules": "a file"},
		"a file, the place": {"repo": "a file"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			base := t.TempDir()
			victim, work := filepath.Join(base, "victim"), filepath.Join(base, "work")
			tree(t, victim, map[string]string{"node_modules/.cache/precious": "untouched", "node_modules/other": "untouched"})
			made := map[string]string{}
			for k, v := range links {
				made[k] = strings.NewReplacer("VICTIMNAME", "victim", "VICTIM", victim).Replace(v)
			}
			tree(t, work, made)
			before := read(t, work)
			c := cache{filepath.Join(base, "cache")}
			ok(t, c.save("tree", work, "repo", []string{folder}))
			tree(t, c.path("tree", slot(folder)), map[string]string{"kept": "by an earlier build"})
			if err := c.restore("tree", work, "repo", []string{folder}, me()); err != nil {
				t.Errorf("restore: %v", err)
			}
			after, harm := read(t, work), read(t, victim)
			if len(harm) != 2 || harm["node_modules/.cache/precious"] != "untouched" {
				t.Errorf("the victim is %v", harm)
			}
			if len(after) != len(before) {
				t.Errorf("work was %v, is %v", before, after)
			}
			if got := read(t, c.path("tree")); len(got) != 1 {
				t.Errorf("the cache holds %v", got)
			}
		})
	}
}

// The key of the kept modules is deleted as soon as a build takes the modules, so that a failed build leaves neither.
func TestCacheKeyIsTaken(t *testing.T) {
	t.Parallel()
	c := cache{t.TempDir()}
	if key, err := c.takeKey(); err != nil || key != "" {
		t.Errorf("an empty cache has key %q, %v", key, err)
	}
	ok(t, c.keep("of these"))
	if key, err := c.takeKey(); err != nil || key != "of these" {
		t.Errorf("the key is %q, %v", key, err)
	}
	if key, err := c.takeKey(); err != nil || key != "" {
		t.Errorf("the second time it is %q, %v", key, err)
	}
}

// The first start after a boot deletes only the keys of kept modules, which a power failure may have damaged.
func TestCachesAfterBoot(t *testing.T) {
	t.Parallel()
	b := New(Config{Dir: t.TempDir()})
	c := b.cacheOf("site_a", "main")
	ok(t, os.MkdirAll(c.path("home"), 0o700))
	start := func(want string) {
		t.Helper()
		ok(t, c.keep("of these"))
		ok(t, b.Clear())
		if key, err := c.takeKey(); err != nil || key != want {
			t.Errorf("the key is %q, %v; want %q", key, err, want)
		}
	}
	start("") // no boot is recorded
	start("of these")
	ok(t, os.WriteFile(filepath.Join(b.c.Dir, "caches.boot"), []byte("another boot"), 0o600))
	start("")
	if _, err := os.Stat(c.path("home")); err != nil {
		t.Errorf("the package store: %v", err)
	}
}

// A cache over its limit is deleted as a whole. Links in it are not followed, and every entry counts as a block.
func TestCacheIsBounded(t *testing.T) {
	t.Parallel()
	d := New(Config{DB: dbtest.New(t), Dir: t.TempDir()})
	big := filepath.Join(t.TempDir(), "big")
	for name, tt := range map[string]struct {
		size int64
		gone bool
	}{"small": {1 << 20, false}, "at the bound": {maxCache - 5*4096, false}, "over it": {maxCache, true}} {
		t.Run(name, func(t *testing.T) {
			b := &build{Builds: d, Spec: Spec{Site: "site_x", Owner: id.Owner("own_" + name)}, cache: d.cacheOf("site_x", name)}
			tree(t, b.cache.dir, map[string]string{"home/x/store": "", "home/x/link": "-> " + big})
			ok(t, os.Truncate(filepath.Join(b.cache.dir, "home/x/store"), tt.size)) // a sparse file
			ok(t, b.account(t.Context()))
			if _, err := os.Stat(b.cache.dir); (err != nil) != tt.gone {
				t.Errorf("with %d bytes: %v", tt.size, err)
			}
			n, err := d.CacheUse(t.Context(), d.c.DB, b.Owner)
			if want := tt.size + 5*4096; err != nil || tt.gone != (n == 0) || !tt.gone && n != want {
				t.Errorf("recorded are %d bytes, %v; want %d", n, err, want)
			}
		})
	}
	ok(t, cache{filepath.Join(t.TempDir(), "none")}.touch())
}

// Files in a folder that can't be read still count.
func TestCacheCannotHide(t *testing.T) {
	t.Parallel()
	if os.Geteuid() == 0 {
		t.Skip("root looks into every folder")
	}
	c := cache{t.TempDir()}
	tree(t, c.dir, map[string]string{"home/x/store": "x"})
	ok(t, os.Chmod(filepath.Join(c.dir, "home/x"), 0))
	if n, err := c.size(t.Context()); err != nil || n <= maxCache {
		t.Errorf("%d, %v", n, err)
	}
	ok(t, os.Chmod(filepath.Join(c.dir, "home/x"), 0o755))
}

// All caches of an owner stay within the owner's limit: the least recently used ones are deleted, but none of other
// owners or in use.
func TestCachesOfAnOwnerAreBounded(t *testing.T) {
	t.Parallel()
	d := New(Config{DB: dbtest.New(t), Dir: t.TempDir()})
	most := int64(250 << 10)
	use := func(owner id.Owner, site id.Site, branch string) cache {
		b := &build{Builds: d, Spec: Spec{Site: site, Owner: owner, MaxCaches: &most}, cache: d.cacheOf(site, branch)}
		tree(t, b.cache.dir, map[string]string{"home/x": strings.Repeat("x", 100<<10)})
		ok(t, b.account(t.Context()))
		for at := db.Now(); db.Now() == at; { // wait until the times differ
			runtime.Gosched()
		}
		return b.cache
	}
	there := func(c cache) bool { _, err := os.Stat(c.dir); return err == nil }
	first, other, second := use("anna", "site_a", "main"), use("bert", "site_b", "main"), use("anna", "site_a", "next")
	if !there(first) || !there(second) {
		t.Fatal("the cache dropped an entry although two fit")
	}
	d.busy.take(first.dir)
	third := use("anna", "site_c", "main")
	if !there(first) {
		t.Error("the cache of a running build was deleted")
	}
	d.busy.give(first.dir)
	first = use("anna", "site_a", "main")
	if there(second) || !there(first) || !there(third) || !there(other) {
		t.Errorf("there are: %v %v %v %v", there(first), there(second), there(third), there(other))
	}
	if n, err := d.CacheUse(t.Context(), d.c.DB, "anna"); err != nil || n > most || n < 200<<10 {
		t.Errorf("%d bytes, %v", n, err)
	}
}

// A build waits while its cache is being deleted.
func TestBusyCaches(t *testing.T) {
	t.Parallel()
	b := newBusy()
	b.take("a")
	if b.take("a") || !b.take("b") {
		t.Error("one is taken, the other is not")
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	canceled := errors.New("canceled")
	time.AfterFunc(time.Millisecond, func() { cancel(canceled) })
	if err := b.await(ctx, "a"); !errors.Is(err, canceled) {
		t.Errorf("canceled while it waits: %v", err)
	}
	got := make(chan error)
	go func() { got <- b.await(t.Context(), "a") }()
	b.give("a")
	if err := <-got; err != nil || b.take("a") {
		t.Errorf("a waiting build did not get the cache: %v", err)
	}
}

// Caches are deleted after two weeks without use, and those unknown to the database after a day. A deleted site's are
// deleted immediately, even if the build removed permissions from its folders.
func TestCachesAreSwept(t *testing.T) {
	t.Parallel()
	d := New(Config{DB: dbtest.New(t), Dir: t.TempDir()})
	old, used, unknown, fresh := d.cacheOf(
		"site_a",
		"old",
	), d.cacheOf("site_a", "used"), d.cacheOf("site_a", "unknown"), d.cacheOf("site_a", "fresh")
	if old.dir == used.dir || filepath.Dir(old.dir) != filepath.Dir(used.dir) || d.cacheOf("site_b", "old").dir == old.dir {
		t.Fatalf("caches are at %s and %s", old.dir, used.dir)
	}
	for c, age := range map[cache]time.Duration{
		old:     cacheAge + time.Hour,
		used:    cacheAge - time.Hour,
		unknown: unknownAge + time.Hour,
		fresh:   time.Hour,
	} {
		tree(t, c.dir, map[string]string{"home/x/file": "x"})
		if c == old || c == used {
			ok(t, (&build{Builds: d, Spec: Spec{Site: "site_a", Owner: "anna"}, cache: c}).account(t.Context()))
		}
		ok(t, os.Chmod(filepath.Join(c.dir, "home/x"), 0))
		ago := time.Now().Add(-age)
		ok(t, os.Chtimes(c.dir, ago, ago))
	}
	ok(t, d.Sweep(t.Context()))
	for c, want := range map[cache]bool{old: false, used: true, unknown: false, fresh: true} {
		if _, err := os.Stat(c.dir); (err == nil) != want {
			t.Errorf("%s: %v", c.dir, err)
		}
	}
	ok(t, d.Forget(t.Context(), "site_a"))
	if _, err := os.Stat(filepath.Dir(used.dir)); err == nil {
		t.Error("the site's caches are still there")
	}
	if n, err := d.CacheUse(t.Context(), d.c.DB, "anna"); err != nil || n != 0 {
		t.Errorf("%d bytes, %v", n, err)
	}
	ok(t, New(Config{}).Sweep(t.Context()))
	ok(t, New(Config{}).Forget(t.Context(), "x"))
}

// A branch's name is untrusted, but its cache's path isn't.
func TestCachePlace(t *testing.T) {
	t.Parallel()
	d := New(Config{Dir: "/caches-here"})
	for _, branch := range []string{"", "main", "../../etc", "a/b", strings.Repeat("x", 5000), "\x00"} {
		rel, err := filepath.Rel("/caches-here/caches/site_x", d.cacheOf("site_x", branch).dir)
		if err != nil || strings.ContainsAny(rel, "/.\x00") || len(rel) > 40 {
			t.Errorf("%.20q is kept at %q, %v", branch, rel, err)
		}
	}
}

// If the disk lacks room, the least recently used caches of all owners are deleted first, no more than necessary, and
// none in use.
func TestCachesMakeRoom(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var d *Builds
	list := func() (names []string) {
		for i := range 5 {
			if _, err := os.Stat(d.cacheOf(id.Site(fmt.Sprint("site_", i)), "main").dir); err == nil {
				names = append(names, fmt.Sprint(i))
			}
		}
		return names
	}
	room := 0 // caches that fit on the disk
	d = New(Config{DB: dbtest.New(t), Dir: dir, Disk: lacks(func() int64 { return int64(len(list()) - room) })})
	for i := range 5 {
		c := d.cacheOf(id.Site(fmt.Sprint("site_", i)), "main")
		tree(t, c.dir, map[string]string{"home/x/file": "x"})
		ok(t, (&build{Builds: d, Spec: Spec{Site: id.Site(fmt.Sprint("site_", i)), Owner: id.Owner(fmt.Sprint("owner", i))}, cache: c}).account(t.Context()))
		ago := time.Now().Add(-time.Duration(10-i) * time.Minute)
		ok(t, os.Chtimes(c.dir, ago, ago))
	}
	for _, step := range []struct {
		room int
		busy string
		want string
	}{{5, "", "0 1 2 3 4"}, {3, "", "2 3 4"}, {2, "site_2", "2 4"}, {0, "site_2", "2"}, {0, "", ""}} {
		room = step.room
		if step.busy != "" {
			d.busy.take(d.cacheOf(id.Site(step.busy), "main").dir)
		}
		ok(t, d.makeRoom(t.Context()))
		if step.busy != "" {
			d.busy.give(d.cacheOf(id.Site(step.busy), "main").dir)
		}
		if got := strings.Join(list(), " "); got != step.want {
			t.Fatalf("with room for %d: %q, want %q", step.room, got, step.want)
		}
	}
	if n, err := d.CacheUse(t.Context(), d.c.DB, "owner4"); err != nil || n != 0 {
		t.Errorf("%d bytes are still counted, %v", n, err)
	}
}
