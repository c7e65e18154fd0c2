package bundle

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"slipway/internal/platform/id"

	"slipway/internal/platform/blob"
	"slipway/internal/platform/fault"
)

func start(t *testing.T, change ...func(*Config)) (*Bundles, *blob.Store) {
	t.Helper()
	dir := t.TempDir()
	blobs, err := blob.OpenDir(filepath.Join(dir, "blobs"))
	if err != nil {
		t.Fatal(err)
	}
	c := Config{Blobs: blobs, Dir: filepath.Join(dir, "bundles")}
	for _, f := range change {
		f(&c)
	}
	b, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return b, blobs
}

// project writes files: "-> x" creates a symbolic link, and a trailing "*" in the name makes the file executable.
func project(t *testing.T, files map[string]string) *os.Root {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		name, exec := strings.CutSuffix(name, "*")
		at := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if to, ok := strings.CutPrefix(text, "-> "); ok {
			if err := os.Symlink(to, at); err != nil {
				t.Fatal(err)
			}
			continue
		}
		mode := os.FileMode(0o600)
		if exec {
			mode = 0o700
		}
		if err := os.WriteFile(at, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	return root
}

func store(t *testing.T, b *Bundles, files map[string]string) Stored {
	t.Helper()
	s, err := b.Store(t.Context(), project(t, files), nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// list returns a tree as lines: path, mode, and content or target.
func list(t *testing.T, dir string) (out []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		rel, _ := filepath.Rel(dir, name)
		if e.Type()&fs.ModeSymlink != 0 {
			to, err := os.Readlink(name)
			out = append(out, rel+" -> "+to)
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		text, err := os.ReadFile(name)
		out = append(out, fmt.Sprintf("%s %o %s", rel, info.Mode().Perm()&^0o200, text)) // root's files are its own to change
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(out)
	return out
}

// A stored bundle can be opened with its contents, executable bits and inner links. Everything else is skipped and
// reported.
func TestStoreAndOpen(t *testing.T) {
	t.Parallel()
	b, _ := start(t)
	root := project(t, map[string]string{
		"server.js":              "run",
		"bin/tool*":              "tool",
		"node_modules/.bin/tool": "-> ../../bin/tool",
		"a/b/c":                  "deep",
		".env":                   "kept",
		".git/config":            "never",
		"out":                    "-> /etc/passwd",
		"up":                     "-> ../../x",
		"skipped/x":              "no",
	})
	if err := syscall.Mkfifo(filepath.Join(root.Name(), "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := b.Store(t.Context(), root, func(name string) bool { return name == "skipped" })
	if err != nil {
		t.Fatal(err)
	}
	if slices.Sort(s.Left); s.Files != 4 || !slices.Equal(s.Left, []string{"out", "pipe", "up"}) {
		t.Errorf("stored %+v", s)
	}
	dir, done, err := b.Open(t.Context(), "anna", s.ID)
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	want := []string{
		".env 444 kept", "a/b/c 444 deep", "bin/tool 555 tool", "node_modules/.bin/tool -> ../../bin/tool",
		"server.js 444 run",
	}
	if got := list(t, dir); !slices.Equal(got, want) {
		t.Errorf("the tree holds\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if again := store(t, b, map[string]string{"server.js": "run"}); again.ID == s.ID {
		t.Error("a different tree has the same id")
	}
}

// Files that two trees share exist once on disk, and stored contents aren't written again.
func TestSharedFiles(t *testing.T) {
	t.Parallel()
	b, _ := start(t)
	first := store(t, b, map[string]string{"lib/big": strings.Repeat("x", 1<<20), "server.js": "one"})
	second := store(t, b, map[string]string{"lib/big": strings.Repeat("x", 1<<20), "server.js": "two"})
	of := func(owner id.Owner, id ID) *syscall.Stat_t {
		dir, done, err := b.Open(t.Context(), owner, id)
		if err != nil {
			t.Fatal(err)
		}
		defer done()
		info, err := os.Stat(filepath.Join(dir, "lib/big"))
		if err != nil {
			t.Fatal(err)
		}
		return info.Sys().(*syscall.Stat_t)
	}
	if of("anna", first.ID).Ino != of("anna", second.ID).Ino {
		t.Error("two trees of an owner store one file twice")
	}
	before := of("anna", first.ID)
	if of("eve", first.ID).Ino == before.Ino || of("eve", second.ID).Ino == before.Ino {
		t.Error("two owners share a file")
	}
	if after := of("anna", first.ID); after.Nlink != before.Nlink || after.Ctim != before.Ctim {
		t.Error("a file changes when another owner stores the same content")
	}
}

// An owner's name becomes a folder's name: invalid ones are refused, and so is that of the shared files.
func TestOwners(t *testing.T) {
	t.Parallel()
	b, _ := start(t)
	s := store(t, b, map[string]string{"a": "one"})
	for _, owner := range []id.Owner{"", "..", "a/b", "common", id.Owner(strings.Repeat("a", 101))} {
		if _, _, err := b.Open(t.Context(), owner, s.ID); err == nil {
			t.Errorf("a tree for %q", owner)
		}
	}
}

// A damaged blob makes no tree; opening works again once it is repaired.
func TestDamagedBlob(t *testing.T) {
	t.Parallel()
	b, _ := start(t)
	s := store(t, b, map[string]string{"server.js": "console.log(1)"})
	d := blob.Sum([]byte("console.log(1)"))
	name := filepath.Join(filepath.Dir(b.c.Dir), "blobs", d.String()[:2], d.String())
	if _, err := os.Stat(name); err != nil {
		matches, _ := filepath.Glob(filepath.Join(filepath.Dir(b.c.Dir), "blobs", "*", "*"+d.String()[2:]+"*"))
		if len(matches) != 1 {
			t.Fatalf("the blob's file is not found: %v", matches)
		}
		name = matches[0]
	}
	if err := os.Chmod(name, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte("console.log(2)"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := b.Open(t.Context(), "anna", s.ID); err == nil {
		t.Fatal("a tree was opened although its bytes differ")
	}
	if left, _ := os.ReadDir(b.path(treesDir)); len(left) != 0 {
		t.Errorf("half a tree stays: %v", left)
	}
	store(t, b, map[string]string{"server.js": "console.log(1)"}) // writes the content again
	_, done, err := b.Open(t.Context(), "anna", s.ID)
	if err != nil {
		t.Fatal(err)
	}
	done()
}

// Exceeding a bundle's limits is a fault with a message.
func TestLimits(t *testing.T) {
	t.Parallel()
	b, _ := start(t, func(c *Config) { c.MaxFiles, c.MaxBytes = 3, 100 })
	for name, files := range map[string]map[string]string{
		"files": {"a": "", "b": "", "c": "", "d": ""}, "bytes": {"a": strings.Repeat("x", 60), "b": strings.Repeat("y", 60)},
		"depth": {strings.Repeat("d/", 70) + "x": ""},
	} {
		if _, err := b.Store(t.Context(), project(t, files), nil); fault.As(err) == nil || fault.As(err).Code != "application_too_large" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Tidy keeps trees in use and deletes the others, which are written again when they are opened.
func TestTidy(t *testing.T) {
	t.Parallel()
	b, _ := start(t)
	used, idle := store(t, b, map[string]string{"a": "used"}), store(t, b, map[string]string{"a": "idle"})
	dir, done, err := b.Open(t.Context(), "anna", used.ID)
	if err != nil {
		t.Fatal(err)
	}
	_, give, err := b.Open(t.Context(), "anna", idle.ID)
	if err != nil {
		t.Fatal(err)
	}
	give()
	if err := b.Tidy(0); err != nil {
		t.Fatal(err)
	}
	if got := list(t, dir); !slices.Equal(got, []string{"a 444 used"}) {
		t.Errorf("what is in use: %v", got)
	}
	if _, err := os.Stat(b.path(treesDir, "anna", string(idle.ID))); err == nil {
		t.Error("an unused tree was kept")
	}
	done()
	if err := b.Tidy(time.Hour); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); err != nil {
		t.Error("a recently used tree was deleted")
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			dir, done, err := b.Open(t.Context(), "anna", idle.ID)
			if err != nil {
				t.Error(err)
				return
			}
			defer done()
			if got := list(t, dir); !slices.Equal(got, []string{"a 444 idle"}) {
				t.Errorf("reopened: %v", got)
			}
		})
	}
	all.Wait()
}

// Blobs returns every blob that a tree needs.
func TestBlobs(t *testing.T) {
	t.Parallel()
	b, _ := start(t)
	s := store(t, b, map[string]string{"a": "one", "b": "two", "c": "-> a"})
	var got []string
	for d, err := range b.Blobs(t.Context(), s.ID) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, d.String())
	}
	want := []string{string(s.ID), blob.Sum([]byte("one")).String(), blob.Sum([]byte("two")).String()}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// A shared file is a hard link to the blob in each tree, except an executable one, whose mode all trees would share.
// Using a tree never changes the blob.
func TestTreeIsLinked(t *testing.T) {
	t.Parallel()
	b, blobs := start(t)
	core, err := b.StoreCommon(
		t.Context(),
		project(t, map[string]string{"lib/big": strings.Repeat("x", 1<<20), "bin/run*": "same", "same": "same"}),
	)
	if err != nil {
		t.Fatal(err)
	}
	s, err := b.Join(t.Context(), core.ID, store(t, b, map[string]string{"big": strings.Repeat("x", 1<<20)}).ID, "own")
	if err != nil {
		t.Fatal(err)
	}
	dir, done, err := b.Open(t.Context(), "anna", s.ID)
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	of := func(name string) *syscall.Stat_t {
		info, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		return info.Sys().(*syscall.Stat_t)
	}
	at := func(text string) string {
		d := blob.Sum([]byte(text)).String()
		return filepath.Join(filepath.Dir(b.c.Dir), "blobs", d[:2], d)
	}
	big, tree := of(at(strings.Repeat("x", 1<<20))), of(filepath.Join(dir, "lib/big"))
	if big.Ino != tree.Ino || tree.Mode&0o777 != 0o444 {
		t.Errorf("the file was written again: inode %d, the blob's is %d; mode %o", tree.Ino, big.Ino, tree.Mode)
	}
	if of(filepath.Join(dir, "own/big")).Ino == big.Ino {
		t.Error("own/big shares the blob's inode")
	}
	if run := of(filepath.Join(dir, "bin/run")); run.Mode&0o777 != 0o555 || run.Ino == of(filepath.Join(dir, "same")).Ino {
		t.Errorf("an executable has mode %o and shares its file with one that is none", run.Mode)
	}
	if swept, err := blobs.Sweep(t.Context(), func(blob.Digest) bool { return false }, 0); err != nil || swept.Files == 0 {
		t.Fatalf("swept %+v: %v", swept, err)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "same")); err != nil || string(text) != "same" {
		t.Errorf("a tree lost a file to the sweep of its blob: %q %v", text, err)
	}
}

// Links to skipped files and folders are skipped, too.
func TestSkippedLinks(t *testing.T) {
	t.Parallel()
	b, _ := start(t)
	root := project(t, map[string]string{
		"server.js":                "run",
		"node_modules/tool/cli.js": "x",
		"node_modules/.bin/tool":   "-> ../tool/cli.js",
		"node_modules/.bin/other":  "-> ../../server.js",
	})
	s, err := b.Store(t.Context(), root, func(name string) bool { return name == "node_modules/tool" })
	if err != nil {
		t.Fatal(err)
	}
	dir, done, err := b.Open(t.Context(), "anna", s.ID)
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	if got, want := list(t, dir), []string{"node_modules/.bin/other -> ../../server.js", "server.js 444 run"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// After a reboot, no earlier tree is used; after a restart of the service, all are.
func TestTreesAfterPowerFailure(t *testing.T) {
	t.Parallel()
	b, _ := start(t)
	s := store(t, b, map[string]string{"a": "one"})
	dir, done, err := b.Open(t.Context(), "anna", s.ID)
	if err != nil {
		t.Fatal(err)
	}
	done()
	if _, err := New(b.c); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); err != nil {
		t.Errorf("a restart of the service cost a tree: %v", err)
	}
	if err := os.WriteFile(b.path("boot"), []byte("another"), 0o600); err != nil {
		t.Fatal(err)
	}
	again, err := New(b.c)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("a tree from before the power failure is used")
	}
	if _, done, err = again.Open(t.Context(), "anna", s.ID); err != nil {
		t.Fatal(err)
	}
	done()
}

// BenchmarkTree creates the tree of 30,000 small files, like a node_modules.
func BenchmarkTree(b *testing.B) {
	dir := b.TempDir()
	blobs, err := blob.OpenDir(filepath.Join(dir, "blobs"))
	if err != nil {
		b.Fatal(err)
	}
	defer blobs.Close()
	bundles, err := New(Config{Blobs: blobs, Dir: filepath.Join(dir, "bundles")})
	if err != nil {
		b.Fatal(err)
	}
	from := b.TempDir()
	for i := range 30_000 {
		at := filepath.Join(from, fmt.Sprintf("node_modules/p%d/lib/%d.js", i/30, i))
		if i%30 == 0 {
			if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
				b.Fatal(err)
			}
		}
		if err := os.WriteFile(at, []byte(strings.Repeat(fmt.Sprintln(i), 800)), 0o644); err != nil {
			b.Fatal(err)
		}
	}
	root, err := os.OpenRoot(from)
	if err != nil {
		b.Fatal(err)
	}
	defer root.Close()
	for b.Loop() {
		begun := time.Now()
		s, err := bundles.Store(b.Context(), root, nil)
		if err != nil {
			b.Fatal(err)
		}
		stored := time.Now()
		_, done, err := bundles.Open(b.Context(), "anna", s.ID)
		if err != nil {
			b.Fatal(err)
		}
		done()
		b.ReportMetric(stored.Sub(begun).Seconds(), "s/store")
		b.ReportMetric(time.Since(stored).Seconds(), "s/open")
		b.StopTimer()
		if err := removeAll(bundles.path(treesDir, "anna", string(s.ID))); err != nil {
			b.Fatal(err)
		}
		if err := removeAll(bundles.path("files")); err != nil {
			b.Fatal(err)
		}
		bundles.trees = map[place]*tree{}
		if err := os.MkdirAll(bundles.path("files"), 0o711); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}
