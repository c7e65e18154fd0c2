package fetch

import (
	"context"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"slipway/internal/platform/id"
)

// A cache damaged by a crash or by the disk doesn't fail the next fetch.
func TestCacheHeals(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.commit(t, "acme/site", "main", map[string]string{"x": "1", "y": random(50 << 10)})
	each := func(g *generation, fn func(p string)) {
		filepath.WalkDir(filepath.Join(g.git(), "objects"), func(p string, d fs.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() {
				os.Chmod(p, 0o600)
				fn(p)
			}
			return nil
		})
	}
	for name, harm := range map[string]func(g *generation){
		"died while writing": func(g *generation) { g.begin() },
		"stale shallow lock": func(g *generation) { os.WriteFile(filepath.Join(g.git(), "shallow.lock"), nil, 0o600) },
		"stale ref lock":     func(g *generation) { os.WriteFile(filepath.Join(g.git(), headRef+".lock"), nil, 0o600) },
		"ref is garbage":     func(g *generation) { os.WriteFile(filepath.Join(g.git(), headRef), []byte("\x00\x00"), 0o600) },
		"config is garbage":  func(g *generation) { os.WriteFile(filepath.Join(g.git(), "config"), []byte("[["), 0o600) },
		"HEAD is gone":       func(g *generation) { os.Remove(filepath.Join(g.git(), "HEAD")) },
		"packs are empty":    func(g *generation) { each(g, func(p string) { os.Truncate(p, 0) }) },
		"packs are gone":     func(g *generation) { each(g, func(p string) { os.Remove(p) }) },
		"packs are cut":      func(g *generation) { each(g, func(p string) { os.Truncate(p, 600) }) },
		"everything is gone": func(g *generation) { os.RemoveAll(g.dir) },
		"hostile local config": func(g *generation) {
			os.WriteFile(
				filepath.Join(g.git(), "config"),
				[]byte("[core]\n\tfsmonitor = touch "+g.dir+"/PWN\n\tsshCommand = false\n[http]\n\tproxy = http://127.0.0.1:1\n"),
				0o600,
			)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, moved := range []bool{false, true} {
				s := open(t, h, nil)
				r := Request{Site: "s", Repository: repo(t, "git.test/acme/site"), Branch: "main"}
				tree := fetch(t, s, r)
				tree.Close()
				harm(tree.g)
				if moved { // as after a restart
					s = open(t, h, func(c *Config) { c.Dir = s.c.Dir })
				}
				if got := contents(t, fetch(t, s, r)); got["x"] != "1" || len(got["y"]) != 50<<10 {
					t.Errorf("wrong files after the repair: %d", len(got))
				}
			}
		})
	}
}

// A fetch that is killed halfway leaves nothing that disturbs the next one.
func TestKilledFetch(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	want := h.commit(t, "acme/site", "main", map[string]string{"x": random(3 << 20)})
	s := open(t, h, nil)
	r := Request{Site: "s", Repository: repo(t, "git.test/acme/site"), Branch: "main"}
	ctx, cancel := context.WithCancel(t.Context())
	// The pack starts to arrive and then stalls.
	f := http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Method == "GET" {
			h.pass(w, req)
			return
		}
		h.pass(&cut{ResponseWriter: w, left: 1 << 20, at: func() { cancel(); <-req.Context().Done() }}, req)
	})
	h.intercept.Store(&f)
	if _, err := s.Fetch(ctx, r); err == nil || ctx.Err() == nil {
		t.Fatalf("fetch: %v, want it killed", err)
	}
	h.intercept.Store(nil)
	if tree := fetch(t, s, r); tree.Commit != want || len(contents(t, tree)["x"]) != 3<<20 {
		t.Error("the fetch after the kill is wrong")
	}
}

// cut stops a response after left bytes.
type cut struct {
	http.ResponseWriter
	left int
	at   func()
}

func (c *cut) Write(p []byte) (int, error) {
	if c.left -= len(p); c.left < 0 {
		c.ResponseWriter.(http.Flusher).Flush()
		c.at()
	}
	return c.ResponseWriter.Write(p)
}

func TestCacheIsBounded(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.commit(t, "acme/site", "main", map[string]string{"x": "1"})
	h.commit(t, "acme/other", "main", map[string]string{"x": "2"})
	s := open(t, h, nil)
	r := Request{Site: "s", Repository: repo(t, "git.test/acme/site"), Branch: "main"}
	first := fetch(t, s, r)
	for i := range maxPacks + 1 {
		os.WriteFile(filepath.Join(first.g.git(), "objects/pack", string(rune('a'+i%26))+string(rune('a'+i/26))+".pack"), nil, 0o600)
	}
	second := fetch(t, s, r)
	if second.g == first.g {
		t.Fatal("a cache of too many packs is still in use")
	}
	if contents(t, first)["x"] != "1" {
		t.Error("the open tree lost its cache")
	}
	first.Close()
	first.Close()
	if _, err := os.Stat(first.g.dir); !os.IsNotExist(err) {
		t.Error("the old cache outlived its last reader")
	}
	// Another repository starts with an empty cache.
	r.Repository = repo(t, "git.test/acme/other")
	third := fetch(t, s, r)
	if third.g == second.g || contents(t, third)["x"] != "2" {
		t.Error("the caches of two repositories were mixed")
	}
}

func TestForget(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.commit(t, "acme/site", "main", map[string]string{"x": "1"})
	s := open(t, h, nil)
	r := Request{Site: "s", Repository: repo(t, "git.test/acme/site"), Branch: "main"}
	tree := fetch(t, s, r)
	if err := s.Forget(t.Context(), "s"); err != nil {
		t.Fatal(err)
	}
	if contents(t, tree)["x"] != "1" {
		t.Error("the open tree lost its cache")
	}
	again := fetch(t, s, r)
	tree.Close()
	if contents(t, again)["x"] != "1" {
		t.Error("the new cache went with the old one")
	}
	again.Close()
	if err := s.Forget(t.Context(), "s"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(s.path("sites", "s")); !os.IsNotExist(err) {
		t.Errorf("after Forget: %v", err)
	}
	for _, id := range []id.Site{"", "..", "a/b", "../../x"} {
		if err := s.Forget(t.Context(), id); err == nil {
			t.Errorf("Forget(%q) did something", id)
		}
	}
	if err := s.Forget(t.Context(), "never_seen"); err != nil {
		t.Errorf("unknown site: %v", err)
	}
}

// Fetches of one site take turns. Different sites don't wait for each other.
func TestConcurrentFetches(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	want := h.commit(t, "acme/site", "main", map[string]string{"x": "1"})
	s := open(t, h, nil)
	var all sync.WaitGroup
	for _, id := range []id.Site{"a", "a", "a", "b"} {
		all.Go(func() {
			tree, err := s.Fetch(t.Context(), Request{Site: id, Repository: repo(t, "git.test/acme/site"), Branch: "main"})
			if err != nil || tree.Commit != want {
				t.Errorf("site %s: %v", id, err)
				return
			}
			contents(t, tree)
			tree.Close()
		})
	}
	all.Wait()
}

func BenchmarkFetch(b *testing.B) {
	h := newHost(b)
	files := map[string]string{}
	for i := range 100 {
		files["dir"+string(rune('a'+i%10))+"/file"+string(rune('a'+i/10))+".txt"] = random(4 << 10)
	}
	h.commit(b, "acme/site", "main", files)
	for _, kind := range []string{"first", "again"} {
		b.Run(kind, func(b *testing.B) {
			s := open(b, h, nil)
			r := Request{Site: "s", Repository: repo(b, "git.test/acme/site"), Branch: "main"}
			for b.Loop() {
				if kind == "first" {
					s.Forget(b.Context(), "s")
				}
				tree, err := s.Fetch(b.Context(), r)
				if err != nil {
					b.Fatal(err)
				}
				if got := contents(b, tree); len(got) != 100 {
					b.Fatal(len(got))
				}
				tree.Close()
			}
		})
	}
}

// While the disk lacks room, the least recently fetched caches are deleted, and no more than needed. A cache in use is
// kept, and a site whose cache was deleted is fetched from scratch.
func TestCachesMakeRoom(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.commit(t, "acme/site", "main", map[string]string{"x": "1"})
	room := 10 // number of caches that fit on the disk
	var s *Fetcher
	list := func() string {
		entries, _ := os.ReadDir(s.path("sites"))
		var names []string
		for _, e := range entries {
			names = append(names, e.Name())
		}
		return strings.Join(names, " ")
	}
	s = open(t, h, func(c *Config) {
		c.Disk = lacks(func() int64 { return int64(len(strings.Fields(list())) - room) })
	})
	get := func(id id.Site) *Tree {
		return fetch(t, s, Request{Site: id, Repository: repo(t, "git.test/acme/site"), Branch: "main"})
	}
	reading := get("a")
	for i, id := range []id.Site{"b", "c", "d"} {
		get(id).Close()
		old := time.Now().Add(-time.Duration(10-i) * time.Minute)
		dir, err := s.latest(string(id))
		if err != nil {
			t.Fatal(err)
		}
		os.Chtimes(dir, old, old)
	}
	long := time.Now().Add(-time.Hour)
	os.Chtimes(reading.g.dir, long, long)
	for _, step := range []struct {
		room int
		want string
	}{{4, "a b c d"}, {2, "a d"}, {0, "a"}} {
		room = step.room
		if err := s.makeRoom(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := list(); got != step.want {
			t.Fatalf("with room for %d: %q, want %q", step.room, got, step.want)
		}
	}
	if got := contents(t, reading); got["x"] != "1" {
		t.Errorf("the one that was read is damaged: %v", got)
	}
	if got := contents(t, get("b")); got["x"] != "1" || list() != "a b" { // a is still being read
		t.Errorf("fetched again: %v, and there is %q", got, list())
	}
}

// lacks is a fake disk.
type lacks func() int64

func (f lacks) Lacks() int64 { return f() }
