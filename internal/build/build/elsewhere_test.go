package build

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"slipway/internal/build/framework"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/sandbox"
)

// folder is a checkout as a Tree.
type folder string

func (f folder) ReadFile(_ context.Context, name string, most int64) ([]byte, error) {
	root, err := os.OpenRoot(string(f))
	if err != nil {
		return nil, err
	}
	defer root.Close()
	file, err := root.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(io.LimitReader(file, most))
}

func (f folder) Checkout(_ context.Context, dir string) error { return os.Rename(string(f), dir) }

// there implements Elsewhere with Alone, in a site's sandbox.
type there struct {
	c    Config
	left func(*Left) // simulates a malicious result
	uids []int
}

func (e *there) Build(ctx context.Context, t Task, r Report) (left Left, err error) {
	e.uids = append(e.uids, t.UID)
	dir := filepath.Join(filepath.Dir(t.Source), "there")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return left, err
	}
	kept := filepath.Join(dir, "kept")
	if err := os.Rename(t.Cache, kept); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return left, err
	}
	defer os.Rename(kept, t.Cache) // move it back afterwards
	c := Config{Runner: e.c.Runner, Toolchain: e.c.Toolchain, Dir: dir}
	err = Alone(ctx, c, t.Job, folder(t.Source), filepath.Join(dir, "w"), kept, r, func(_ context.Context, a Artefact) error {
		left = a.Left()
		return os.CopyFS(t.Output, a.Files.FS())
	})
	if e.left != nil {
		e.left(&left)
	}
	return left, err
}

// A build that runs elsewhere has the same result as a local one: files, log, stages and errors.
func TestElsewhere(t *testing.T) {
	t.Parallel()
	var e there
	here := newSite(t)
	away := newSite(t, func(c *Config) {
		e.c = *c
		c.Elsewhere, c.Runner, c.Toolchain, c.Egress = &e, nil, nil, nil
	})
	files := map[string]string{"in.txt": "hello", "package.json": `{"scripts":{"build":"mkdir -p dist && cp in.txt dist/index.html"}}`}
	plans := map[string]framework.Plan{
		"good": {Name: "Test", Runtime: framework.Static, Output: "dist", Manager: "npm", Build: []framework.Command{{Argv: []string{"npm", "run", "build"}}}},
		"env":  sh("mkdir dist; echo $A $NODE_ENV $HOME > dist/a"),
		"bad":  sh("echo 'sh: 1: vite: not found' >&2; exit 127"),
		"none": sh("true"),
		"run":  {Name: "Test", Runtime: framework.Node, Build: []framework.Command{{Shell: "echo 1 > made"}}},
		"php":  sh("mkdir dist; php -r 'echo 6 * 7;' > dist/a"),
	}
	server := sh("mkdir dist; echo x > dist/main.js")
	server.Server = "express"
	plans["server"] = server
	php := plans["php"]
	php.Tools = []framework.Tool{{Name: "php"}}
	plans["php"] = php
	for name, plan := range plans {
		env := func(s *Spec) {
			s.Env = map[string]string{"A": "secret-value"}
			s.Secrets = []Secret{{"A", "secret-value"}}
		}
		a, b := here.build(files, plan, env), away.build(files, plan, env)
		for _, o := range []outcome{a, b} { // Git's own files contain times
			maps.DeleteFunc(o.files, func(name, _ string) bool { return strings.HasPrefix(name, ".git/") })
		}
		if !reflect.DeepEqual(a.files, b.files) || !reflect.DeepEqual(a.stages, b.stages) || !reflect.DeepEqual(a.log, b.log) {
			t.Errorf("%s: here %v %v %v\naway %v %v %v", name, a.files, a.stages, a.log, b.files, b.stages, b.log)
		}
		if x, y := fault.As(a.err), fault.As(b.err); !reflect.DeepEqual(x, y) || (a.err == nil) != (b.err == nil) {
			t.Errorf("%s: here %v, away %v", name, a.err, b.err)
		}
	}
	// The next build gets this one's caches, until they are cleared.
	count := sh("cat .cache/n; mkdir -p .cache dist; echo 1 >> .cache/n; cp .cache/n dist/")
	count.Cache = []string{".cache"}
	for i, want := range []string{"1\n", "1\n1\n", "1\n"} {
		clean := func(s *Spec) { s.ClearCache = i == 2 }
		a, b := here.build(files, count, clean), away.build(files, count, clean)
		if a.files["n"] != want || b.files["n"] != want || !reflect.DeepEqual(a.log, b.log) {
			t.Errorf("build %d: here %q %v, away %q %v", i, a.files, a.log, b.files, b.log)
		}
	}
	for _, uid := range e.uids {
		if uid < FirstUID || uid != e.uids[0] {
			t.Errorf("uids %v", e.uids)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(away.c.Dir, "work", "*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}

	// The program keeps the Node.js version that the remote build has chosen.
	for said, want := range map[string]string{"24.99.0": "24.99.0", "24": "24", "24.99.0 --x": "", "../x": ""} {
		e.left = func(l *Left) { l.Node, l.Makeshift = said, true }
		if o := away.build(files, plans["run"]); o.err != nil || o.made.Node != want || !o.made.Makeshift {
			t.Errorf("%s: %v: %+v", said, o.err, o.made)
		}
	}

	// The result of a remote build is untrusted.
	for _, bad := range []func(*Left){
		func(l *Left) { l.Folder = "../x" },
		func(l *Left) { l.Standalone = "/etc" },
		func(l *Left) { l.Server = "../x.js" },
		func(l *Left) { l.Assets = []framework.AssetFolder{{Folder: "../../etc"}} },
		func(l *Left) { l.Assets = make([]framework.AssetFolder, maxAssets+1) },
	} {
		e.left = bad
		if o := away.build(files, plans["good"]); !fault.Is(o.err, fault.Invalid) || o.files != nil {
			t.Errorf("taken: %v, %v", o.err, o.files)
		}
	}
}

// A limit enforced elsewhere is reported like one of the local sandbox.
func TestEndedElsewhere(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(c *Config) { c.Limits.Memory = 64 << 20 })
	o := s.build(map[string]string{"a": ""}, sh("head -c 200m /dev/zero | tail -c 200m > /dev/null"))
	j := Job{Limits: s.Limits()}
	err := j.Ended("build", sandbox.OutOfMemory)
	if !reflect.DeepEqual(fault.As(o.err), fault.As(err)) {
		t.Errorf("here %+v, elsewhere %+v", errors.Join(o.err), fault.As(err))
	}
	if f := fault.As(j.Ended("prepare", sandbox.DiskFull)); !strings.Contains(f.Details, "Disk full") || f.Message != "The build did not finish" {
		t.Errorf("disk: %+v", f)
	}
}
