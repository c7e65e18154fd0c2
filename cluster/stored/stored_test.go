package stored

import (
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// served returns a connection to a volume's keeper.
func served(t *testing.T, volume string) net.Conn {
	t.Helper()
	here, there := net.Pipe()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := Serve(volume, there); err != nil {
			t.Log("keeper:", err)
		}
		there.Close()
	}()
	t.Cleanup(func() { here.Close(); <-ended })
	return here
}

func lay(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		at := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if to, ok := strings.CutPrefix(text, "-> "); ok {
			if err := os.Symlink(to, at); err != nil {
				t.Fatal(err)
			}
		} else if err := os.WriteFile(at, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// tree reads the files and links of a directory with their modes, and folders with skipped content.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	err = walk(root, func(e Entry) error {
		switch e.Kind {
		case link:
			all[e.Name] = "-> " + e.Link
		case file:
			text, err := root.ReadFile(e.Name)
			all[e.Name] = os.FileMode(e.Mode).String() + " " + string(text)
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func equal(t *testing.T, what string, got, want map[string]string) {
	t.Helper()
	for name, text := range want {
		if got[name] != text {
			t.Errorf("%s: %q is %.100q, want %.100q", what, name, got[name], text)
		}
	}
	for name := range got {
		if _, ok := want[name]; !ok {
			t.Errorf("%s: %q is there", what, name)
		}
	}
}

func copyOf(t *testing.T) *Copy {
	t.Helper()
	c, err := NewCopy(filepath.Join(t.TempDir(), "copy"))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func fetch(t *testing.T, c *Copy, volume string) {
	t.Helper()
	if err := c.Fetch(served(t, volume)); err != nil {
		t.Fatal(err)
	}
}

var hostile = map[string]string{
	"data/a.txt":           "alpha",
	"data/sub/b\xff\n.txt": "a name of any bytes",
	"data/out":             "-> /etc",
	"data/up":              "-> ../../..",
	"data/zeros":           strings.Repeat("\x00", 200_000) + "end",
	"wp%2Fup/c":            strings.Repeat("c", 3*maxBlock+1),
	"@sessions/sess_1":     "",
	"lost+found/mine":      "the file system's",
	".slipway-next/x":      "of an attempt that was ended",
}

// A copy contains everything that is stored, including unusual names and links, and is updated after changes.
func TestFetch(t *testing.T) {
	t.Parallel()
	volume, c := t.TempDir(), copyOf(t)
	lay(t, volume, hostile)
	for name, mode := range map[string]os.FileMode{"data/a.txt": 0o751, "wp%2Fup/c": 0o440} {
		if err := os.Chmod(filepath.Join(volume, name), mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(filepath.Join(volume, "data/pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	fetch(t, c, volume)
	equal(t, "the copy", tree(t, c.Dir()), tree(t, volume))
	if len(tree(t, c.Dir())) != 7 {
		t.Errorf("%d files are copied", len(tree(t, c.Dir())))
	}
	if err := os.RemoveAll(filepath.Join(volume, "data/sub")); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(volume, "data/out")); err != nil {
		t.Fatal(err)
	}
	lay(t, volume, map[string]string{"data/sub": "a file now", "data/out/in": "a folder now", "data/a.txt": "other"})
	fetch(t, c, volume)
	equal(t, "the copy of what was changed", tree(t, c.Dir()), tree(t, volume))
}

// Give replaces the stored files by the copy's. Unchanged files keep their inode, and folders and their modes stay.
func TestGive(t *testing.T) {
	t.Parallel()
	volume, c := t.TempDir(), copyOf(t)
	lay(t, volume, hostile)
	kept := filepath.Join(volume, "data/closed")
	lay(t, kept, map[string]string{"file": "x"})
	if err := os.Chmod(kept, 0o711); err != nil {
		t.Fatal(err)
	}
	inode := func(name string) uint64 {
		info, err := os.Stat(filepath.Join(volume, name))
		if err != nil {
			t.Fatal(err)
		}
		return info.Sys().(*syscall.Stat_t).Ino
	}
	before, top := inode("wp%2Fup/c"), inode("data")
	fetch(t, c, volume)
	if err := errors.Join(os.Remove(filepath.Join(c.Dir(), "data/a.txt")), os.Remove(filepath.Join(c.Dir(), "data/out"))); err != nil {
		t.Fatal(err)
	}
	lay(t, c.Dir(), map[string]string{"data/new": "new", "more/first": "a folder that is new", "data/out": "no link", ".restore-data/x": "beside"})
	want := tree(t, c.Dir())
	if err := c.Give(served(t, volume)); err != nil {
		t.Fatal(err)
	}
	equal(t, "what is stored", tree(t, volume), want)
	if inode("data") != top {
		t.Error("the folder was replaced, so the running program sees the old one")
	}
	if inode("wp%2Fup/c") != before {
		t.Error("an unchanged file was sent again")
	}
	if info, err := os.Stat(kept); err != nil || info.Mode().Perm() != 0o711 {
		t.Errorf("a folder has the mode %v, %v", info.Mode(), err)
	}
	left, err := filepath.Glob(filepath.Join(volume, ".*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %q, %v", left, err)
	}
	fetch(t, c, volume)
	equal(t, "the copy afterwards", tree(t, c.Dir()), want)
}

// cut is a connection that is closed after left bytes.
type cut struct {
	net.Conn
	left int
}

func (c *cut) Write(p []byte) (int, error) {
	if c.left -= len(p); c.left < 0 {
		c.Close()
		return 0, io.ErrClosedPipe
	}
	return c.Conn.Write(p)
}

// A connection that ends halfway changes nothing in storage.
func TestGiveHalf(t *testing.T) {
	t.Parallel()
	volume, c := t.TempDir(), copyOf(t)
	lay(t, volume, hostile)
	want := tree(t, volume)
	fetch(t, c, volume)
	lay(t, c.Dir(), map[string]string{"data/new": strings.Repeat("n", 10*maxBlock)})
	if err := c.Give(&cut{served(t, volume), 5 * maxBlock}); err == nil {
		t.Error("an incomplete transfer was accepted")
	}
	equal(t, "what is stored", tree(t, volume), want)
	fetch(t, c, volume)
	equal(t, "the copy afterwards", tree(t, c.Dir()), want)
}

// If a keeper is ended while it exchanges files, Finish completes the exchange from any step.
func TestFinish(t *testing.T) {
	t.Parallel()
	for _, was := range []map[string]string{
		{"data/old": "old", "data/both": "old", readyDir + "/data/new": "new", readyDir + "/data/both": "new"},
		{oldDir + "/data/old": "old", "data/both": "old", readyDir + "/data/new": "new", readyDir + "/data/both": "new"},
		{oldDir + "/data/old": "old", oldDir + "/data/both": "old", lastDir + "/data/new": "new", "data/both": "new"},
		{oldDir + "/data/old": "old", "data/both": "new", "data/new": "new"},
	} {
		volume := t.TempDir()
		lay(t, volume, was)
		if err := Finish(volume); err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		for name, text := range tree(t, volume) {
			_, got[name], _ = strings.Cut(text, " ")
		}
		equal(t, "afterwards", got, map[string]string{"data/new": "new", "data/both": "new"})
	}
}

// Requests with paths outside the volume or invalid entries are rejected and change nothing.
func TestRefused(t *testing.T) {
	t.Parallel()
	for _, tree := range [][]Entry{
		{{Kind: folder, Name: "../x"}},
		{{Kind: folder, Name: "/etc/x"}},
		{{Kind: folder, Name: readyDir}},
		{{Kind: folder, Name: "data"}, {Kind: file, Name: "data/../../x"}},
		{{Kind: link, Name: "data", Link: "/etc"}, {Kind: folder, Name: "data/x"}},
		{{Kind: folder, Name: "data"}, {Kind: link, Name: "data/l", Link: "/tmp"}, {Kind: folder, Name: "data/l/x"}},
		{{Kind: folder, Name: "data"}, {Kind: same, Name: "data/none"}},
		{{Kind: 'x', Name: "data"}},
		{{Kind: folder, Name: "data", Size: maxBytes + 1}},
	} {
		volume := t.TempDir()
		lay(t, volume, map[string]string{"data/a": "a"})
		s := newStream(served(t, volume))
		err := s.send(part{Entry: Entry{Kind: write}})
		for _, e := range tree {
			err = errors.Join(err, s.send(part{Entry: e}))
		}
		if err = errors.Join(err, s.last(part{Entry: Entry{Kind: end}})); err != nil {
			t.Log(err)
		}
		if p, err := s.next(); err == nil {
			t.Errorf("%+v is answered with %+v", tree, p)
		}
		left, err := os.ReadDir(volume)
		if err != nil || len(left) != 1 {
			t.Errorf("%+v leaves %v, %v", tree, left, err)
		}
	}
}

// A malicious keeper can't make Fetch write outside the copy, or write files that weren't requested.
func TestLies(t *testing.T) {
	t.Parallel()
	for _, said := range [][]Entry{
		{{Kind: folder, Name: ".."}},
		{{Kind: folder, Name: "data"}, {Kind: link, Name: "data/l", Link: "/tmp"}, {Kind: folder, Name: "data/l/x"}},
		{{Kind: folder, Name: "data"}, {Kind: folder, Name: "data"}},
		{{Kind: file, Name: "data/a", Size: 1 << 60}},
	} {
		here, there := net.Pipe()
		go func() {
			defer there.Close()
			s := newStream(there)
			if _, err := s.next(); err != nil {
				return
			}
			for _, e := range said {
				_ = s.send(part{Entry: e})
			}
			_ = s.last(part{Entry: Entry{Kind: end}})
			_, _ = io.Copy(io.Discard, there)
		}()
		if err := copyOf(t).Fetch(here); err == nil {
			t.Errorf("%+v is believed", said)
		}
		here.Close()
	}
}

// Fetch rejects volumes with too much data, such as huge sparse files or too deep folders, before it copies anything.
func TestMuch(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat("d/", maxDepth+1)
	for what, make := range map[string]func(at string) error{
		"holes": func(at string) error {
			return errors.Join(os.WriteFile(at+"/f", nil, 0o600), os.Truncate(at+"/f", maxBytes+1))
		},
		"levels": func(at string) error { return os.MkdirAll(at+"/"+deep, 0o755) },
	} {
		volume := t.TempDir()
		lay(t, volume, map[string]string{"data/a": "a"})
		if err := make(filepath.Join(volume, "data")); err != nil {
			t.Skip("a file system without it: ", err)
		}
		if err := copyOf(t).Fetch(served(t, volume)); !errors.Is(err, ErrMuch) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// A full file system is reported, and its content doesn't change.
func TestFull(t *testing.T) {
	t.Parallel()
	volume, c := t.TempDir(), copyOf(t)
	if err := syscall.Mount("tmpfs", volume, "tmpfs", 0, "size=1m"); err != nil {
		t.Skip("needs root: ", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(volume, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	lay(t, volume, map[string]string{"data/a": "a"})
	fetch(t, c, volume)
	lay(t, c.Dir(), map[string]string{"data/big": strings.Repeat("b", 2<<20)})
	if err := c.Give(served(t, volume)); !errors.Is(err, ErrFull) {
		t.Errorf("full: %v", err)
	}
	equal(t, "what is stored", tree(t, volume), map[string]string{"data/a": "-rw-r--r-- a"})
	if left, err := os.ReadDir(volume); err != nil || len(left) != 1 {
		t.Errorf("left: %v, %v", left, err)
	}
}
