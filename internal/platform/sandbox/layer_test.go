package sandbox

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// release makes a directory that looks like a release, and returns it with a command that sees it at /app under a
// layer.
func release(t *testing.T) (source string, c Command) {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	source = filepath.Join(dir, "release")
	for name, text := range map[string]string{"main.js": "main", "data/a.txt": "a", "lib/deep/b.txt": "b"} {
		at := filepath.Join(source, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return source, Command{
		Dir: "/app", Work: newWork(t), UID: siteUID(), Limits: small(),
		Binds: []Bind{{Source: source, Target: "/app", Layer: filepath.Join(dir, "layer")}},
	}
}

// tree lists a tree's files with their modes and contents, and checks that root owns them.
func tree(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(name string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		text := []byte{}
		if e.Type().IsRegular() {
			if text, err = os.ReadFile(name); err != nil {
				return err
			}
		}
		b.WriteString(strings.TrimPrefix(name, dir) + " " + info.Mode().String() + " " + string(text) + "\n")
		if st := info.Sys().(*syscall.Stat_t); st.Uid != 0 {
			t.Errorf("%s belongs to %d", name, st.Uid)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// A command must be able to change a release as its owner, while the release itself stays unchanged.
func TestLayer(t *testing.T) {
	t.Parallel()
	if !isRoot() {
		t.Skip("only root makes layers")
	}
	b := newSandbox(t)
	source, c := release(t)
	if err := b.Layers(t.TempDir(), source, siteUID()); err != nil {
		t.Fatal(err)
	}
	before := tree(t, source)
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	c.Argv = []string{"/bin/sh", "-ec", `
		echo new > new.txt; mkdir -p logs/x; echo l > logs/x/l
		echo more >> data/a.txt; rm lib/deep/b.txt; mv lib moved; chmod 600 main.js; ln -s /etc/passwd link
		stat -c '%U %n' main.js data; cat data/a.txt; ls moved/deep; echo own > /build/own; sync new.txt`}
	res, err := b.Run(t.Context(), c)
	if err != nil || !res.OK() {
		t.Fatalf("%v %v\n%s", res, err, out.String())
	}
	if got := out.String(); got != "build main.js\nbuild data\namore\n" {
		t.Errorf("the command saw %q", got)
	}
	if after := tree(t, source); after != before {
		t.Errorf("the release is now\n%s\nwant\n%s", after, before)
	}
	if text, err := os.ReadFile(filepath.Join(c.Binds[0].Upper(), "new.txt")); err != nil || string(text) != "new\n" {
		t.Errorf("the layer has %q, %v", text, err)
	}
	// The next start must see none of these changes.
	c.Binds[0].Layer += "2"
	c.Argv = []string{"/bin/sh", "-c", "cat data/a.txt; ls"}
	out.Reset()
	if res, err := b.Run(t.Context(), c); err != nil || !res.OK() || out.String() != "adata\nlib\nmain.js\n" {
		t.Errorf("%v %v %q", res, err, out.String())
	}
}

// A hostile command must not exceed the limits of its layer, and nothing in the layer may lead out of it, not even when
// it is deleted.
func TestHostileLayer(t *testing.T) {
	t.Parallel()
	if !isRoot() {
		t.Skip("only root makes layers")
	}
	b := newSandbox(t)
	for name, tt := range map[string]struct {
		shell string
		want  Reason
		files int64
		says  string
	}{
		"fills the disk":         {shell: `for i in 1 2 3; do head -c 40000000 /dev/zero > big$i; done; exec sleep 30`, want: DiskFull},
		"fills what has no name": {shell: `for i in 3 4 5 6; do eval "exec $i> f"; rm f; head -c 40000000 /dev/zero >&$i; done; exec sleep 30`, want: DiskFull},
		"many files":             {shell: `mkdir $(seq 3000); exec sleep 30`, want: DiskFull, files: 2000},
		"whiteout":               {shell: `mknod w c 0 0 || echo refused`, says: "refused"},
		"device":                 {shell: `mknod d b 8 0 || echo refused`, says: "refused"},
		"attributes":             {shell: `python3 -c 'import os; os.setxattr("data", "trusted.overlay.opaque", b"y")' 2>&1 || echo refused`, says: "refused"},
		"mount":                  {shell: `mount -t tmpfs none data 2>&1 || echo refused`, says: "refused"},
		"set-user-ID":            {shell: `cp /usr/bin/id id; chmod 4755 id; ./id -u`, says: "1000"},
		"folders end in /":       {shell: `rm -rf data; ln -s / data; ls data/app/main.js`, says: "main.js"},
		"deep": {shell: `python3 -c 'import os
for i in range(3000): os.mkdir("d"); os.chdir("d")
'; exec sleep 30`, want: DiskFull},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			source, c := release(t)
			before := tree(t, source)
			var out bytes.Buffer
			c.Stdout, c.Stderr = &out, &out
			c.Limits.Files = tt.files
			c.Argv = []string{"/bin/sh", "-c", tt.shell}
			res, err := b.Run(t.Context(), c)
			if err != nil || res.Killed != tt.want || !strings.Contains(out.String(), tt.says) {
				t.Errorf("%v %v\n%s", res, err, out.String())
			}
			if err := os.RemoveAll(c.Binds[0].Layer); err != nil {
				t.Errorf("the layer isn't deleted: %v", err)
			}
			if after := tree(t, source); after != before {
				t.Errorf("the release is now\n%s", after)
			}
		})
	}
}

// /tmp is on disk, a run's own, and deleted with it; what a crash left is deleted at the next start.
func TestTmp(t *testing.T) {
	t.Parallel()
	b := newSandbox(t)
	c := Command{
		Argv: []string{"/bin/sh", "-c", "stat -fc %T /tmp; stat -c '%a %U' /tmp; echo a > /tmp/a; ln -s / /tmp/link; ls /tmp"},
		Work: newWork(t), UID: siteUID(), Limits: small(),
	}
	for range 2 {
		var out bytes.Buffer
		c.Stdout, c.Stderr = &out, &out
		res, err := b.Run(t.Context(), c)
		if err != nil || !res.OK() || !strings.HasSuffix(out.String(), "1777 build\na\nlink\n") || strings.HasPrefix(out.String(), "tmpfs") {
			t.Errorf("%v %v %q", res, err, out.String())
		}
	}
	left := filepath.Join(b.Dir, tmpDir)
	if list, err := os.ReadDir(left); err != nil || len(list) > 0 {
		t.Errorf("left behind: %v, %v", list, err)
	}
	if err := os.MkdirAll(filepath.Join(left, "crashed"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := b.Reap(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(left); !os.IsNotExist(err) {
		t.Errorf("a crash left %s: %v", left, err)
	}
}
