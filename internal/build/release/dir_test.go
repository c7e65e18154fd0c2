package release

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"slipway/internal/platform/blob"
)

// lay creates a directory. A value is a file's text, or "-> target" for a symbolic link.
func lay(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		if target, ok := strings.CutPrefix(files[name], "-> "); ok {
			err = os.Symlink(target, path)
		} else {
			err = os.WriteFile(path, []byte(files[name]), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func addDir(t *testing.T, w *Writer, dir string) error {
	t.Helper()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	return w.AddDir(t.Context(), root, func(name, why string) { t.Logf("left out %s: %s", name, why) })
}

func TestAddDir(t *testing.T) {
	t.Parallel()
	r := open(t)
	dir := lay(t, map[string]string{
		"index.html":               "home",
		"assets/app.js":            "js",
		"v2/page.html":             "v2",
		"latest":                   "-> v2",
		"current.html":             "-> latest/../v2/page.html",
		"assets/home.html":         "-> ../index.html",
		"chain.html":               "-> current.html",
		".env":                     "SECRET",
		".git/config":              "[core]",
		".well-known/security.txt": "contact",
		"assets/.cache/x":          "x",
		"a.php":                    "<?php",
		"b.html":                   "-> a.php",
		"old/config.PHP.bak":       "<?php",
		"wiki.php/index.html":      "exported",
	})
	if err := os.Chmod(filepath.Join(dir, "index.html"), 0o755|fs.ModeSetuid); err != nil {
		t.Fatal(err)
	}
	w := begin(t, r, "")
	if err := addDir(t, w, dir); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for f := range load(t, r, seal(t, w).ID).Files() {
		got[f.Path] = read(t, r, f.Body)
	}
	want := map[string]string{
		"index.html": "home", "assets/app.js": "js", "v2/page.html": "v2", "latest/page.html": "v2", "current.html": "v2",
		"wiki.php/index.html": "exported", "assets/home.html": "home", "chain.html": "v2", ".well-known/security.txt": "contact",
	}
	if !maps.Equal(got, want) {
		t.Errorf("published %v\nwant %v", got, want)
	}
}

func TestAddDirRefuses(t *testing.T) {
	t.Parallel()
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	node := func(mode uint32) func(string) error {
		return func(dir string) error { return syscall.Mknod(filepath.Join(dir, "bad"), mode|0o644, 0) }
	}
	link := func(target string) func(string) error {
		return func(dir string) error { return os.Symlink(target, filepath.Join(dir, "bad")) }
	}
	for name, tt := range map[string]struct {
		make func(dir string) error
		says string // why a link is skipped, or why anything else is rejected
	}{
		"absolute link": {link(secret), "points outside"},
		"absolute link inside": {
			func(dir string) error { return os.Symlink(filepath.Join(dir, "a.html"), filepath.Join(dir, "bad")) },
			"points outside",
		},
		"link above":               {link("../../../../../../etc/passwd"), "points outside"},
		"link above and back":      {link("sub/../../x"), "points outside"},
		"link to itself":           {link("bad"), "loop"},
		"link to the root":         {link("."), "that it is in"},
		"link to a hidden file":    {link(".env"), "hidden"},
		"link through a hidden":    {link(".git/../a.html"), "hidden"},
		"link to a file as folder": {link("a.html/../.env"), ""},
		"fifo":                     {node(syscall.S_IFIFO), "named pipe"},
		"socket":                   {node(syscall.S_IFSOCK), "socket"},
		"link to a fifo": {func(dir string) error {
			return errorsFirst(syscall.Mkfifo(filepath.Join(dir, ".p"), 0o644), os.Symlink(".p", filepath.Join(dir, "bad")))
		}, "hidden"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := lay(t, map[string]string{"a.html": "a", ".env": "SECRET", ".git/config": "x", "sub/b.html": "b"})
			if err := tt.make(dir); err != nil {
				t.Fatal(err)
			}
			if info, err := os.Lstat(filepath.Join(dir, "bad")); err == nil && info.Mode()&fs.ModeSymlink != 0 {
				root, err := os.OpenRoot(dir)
				if err != nil {
					t.Fatal(err)
				}
				defer root.Close()
				w, left := begin(t, open(t), ""), ""
				err = w.AddDir(t.Context(), root, func(name, why string) { left += name + ": " + why })
				if err != nil || !strings.HasPrefix(left, "bad: ") || !strings.Contains(left, tt.says) {
					t.Errorf("left out %q, %v", left, err)
				}
				if rel := seal(t, w); rel.Files != 2 { // a.html and sub/b.html
					t.Errorf("published %d files", rel.Files)
				}
				if err := os.Rename(filepath.Join(dir, "bad"), filepath.Join(dir, "_headers")); err != nil {
					t.Fatal(err)
				}
				if name != "link to itself" { // this one is a broken link now
					invalid(t, addDir(t, begin(t, open(t), ""), dir), tt.says)
				}
				invalid(t, addDir(t, begin(t, open(t), ""), dir), "_headers")
				return
			}
			err := addDir(t, begin(t, open(t), ""), dir)
			invalid(t, err, "bad")
			invalid(t, err, tt.says)
		})
	}
}

// Files with invalid names are skipped and reported, and don't fail the release.
func TestAddDirSkipsNames(t *testing.T) {
	t.Parallel()
	dir := lay(t, map[string]string{
		"a.html": "a", "bad\nname": "x", "bad\xff": "x", "bad\\x": "x", ".env": "SECRET", ".gitignore": "x", "sub/.hidden/a": "x", "sub/.hidden/b": "x",
		".1": "", ".2": "", ".3": "", ".4": "", ".well-known/security.txt": "x",
	})
	w := begin(t, open(t), "")
	if err := addDir(t, w, dir); err != nil {
		t.Fatal(err)
	}
	rel := seal(t, w)
	want := []string{
		"Skipped bad\ufffd: it is not valid UTF-8", "Skipped bad\\x: it contains a backslash", "Skipped bad\ufffdname: it contains a control character",
		"Skipped .1, .2, .3, .4, .env and 1 more: names that begin with a dot are not published",
	}
	slices.Sort(rel.Skipped)
	slices.Sort(want)
	if rel.Files != 2 || !slices.Equal(rel.Skipped, want) {
		t.Errorf("%d files, skipped %q", rel.Files, rel.Skipped)
	}
}

func errorsFirst(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func TestAddDirLimits(t *testing.T) {
	t.Parallel()
	r := open(t)
	r.MaxFiles = 10
	files := map[string]string{}
	for i := range 11 {
		files[fmt.Sprint(i)] = ""
	}
	invalid(t, addDir(t, begin(t, r, ""), lay(t, files)), "10 files")

	// Links to directories multiply: the 2^20 paths through twenty levels stop at the limit.
	bomb := map[string]string{"d20/x": ""}
	for i := range 20 {
		bomb[fmt.Sprintf("d%d/a", i)] = fmt.Sprintf("-> ../d%d", i+1)
		bomb[fmt.Sprintf("d%d/b", i)] = fmt.Sprintf("-> ../d%d", i+1)
	}
	invalid(t, addDir(t, begin(t, r, ""), lay(t, bomb)), "10 files")
}

// While a file is swapped for a link to a secret, and a directory for a link out of the tree, no outside content is
// published.
func TestAddDirRace(t *testing.T) {
	t.Parallel()
	outside := t.TempDir()
	if err := os.WriteFile(filepath.Join(outside, "page.html"), []byte("SECRET"), 0o600); err != nil {
		t.Fatal(err)
	}
	dir := lay(t, map[string]string{"page.html": "public", "sub/page.html": "public"})
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		page, sub, spare := filepath.Join(
			dir,
			"page.html",
		), filepath.Join(dir, "sub"), filepath.Join(filepath.Dir(dir), "spare-"+filepath.Base(dir))
		for {
			select {
			case <-done:
				return
			default:
			}
			os.Remove(page)
			os.Symlink(filepath.Join(outside, "page.html"), page)
			os.Rename(sub, spare)
			os.Symlink(outside, sub)
			os.Remove(page)
			os.WriteFile(page, []byte("public"), 0o644)
			os.Remove(sub)
			os.Rename(spare, sub)
			os.Remove(page)
			syscall.Mkfifo(page, 0o644)
		}
	})
	r := open(t)
	for range 150 {
		w := begin(t, r, "")
		addDir(t, w, dir) // an error is also fine
		for path, e := range w.entries {
			w.squeeze.Wait()
			if e.Body.Digest != digest("public") && e.Body.Digest != digest("") {
				t.Fatalf("published %s from outside", path)
			}
		}
		w.Abort()
	}
	close(done)
	wg.Wait()
}

func digest(s string) blob.Digest { return blob.Sum([]byte(s)) }

// Broken links are skipped and reported, and have no other effect.
func TestAddDirLeavesOutDanglingLinks(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, to := range map[string]string{"gone": "nowhere", "far": "a/b/../c", "through": "gone"} {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "index.html"), []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	w := begin(t, open(t), "")
	var left []string
	if err := w.AddDir(t.Context(), root, func(name, _ string) { left = append(left, name) }); err != nil {
		t.Fatal(err)
	}
	slices.Sort(left)
	if !slices.Equal(left, []string{"far", "gone", "through"}) {
		t.Errorf("left out: %v", left)
	}
	if rel, err := w.Seal(t.Context()); err != nil || rel.Files != 1 {
		t.Errorf("%+v, %v", rel, err)
	}
}
