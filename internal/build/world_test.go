package build

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"slipway/internal/dbtest"
	"slipway/internal/egress"
	"slipway/internal/framework"
	"slipway/internal/sandbox"
	"slipway/internal/source"
	"slipway/internal/toolchain"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == sandbox.ShimName {
		os.Exit(sandbox.Shim(os.Args[2:])) // we are inside a sandbox, as its first process
	}
	os.Exit(m.Run())
}

// site is one site's builds with everything real below them: git, sandbox, database.
type site struct {
	*Builds
	t      *testing.T
	repos  string
	source *source.Source
	n      int
}

func newSite(t *testing.T, change ...func(*Config)) *site {
	t.Helper()
	dir, err := os.MkdirTemp("", "build-") // short: a unix socket's path has 108 bytes
	ok(t, err)
	t.Cleanup(func() { removeTree(dir) })
	ok(t, os.Chmod(dir, 0o755))
	out, err := egress.New(egress.Config{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
	ok(t, err)
	runner, err := sandbox.New(sandbox.Config{Dir: filepath.Join(dir, "sandbox")})
	ok(t, err)
	tools, err := toolchain.New(toolchain.Config{Dir: filepath.Join(dir, "tools"), Sandbox: runner, UID: lastUID + 1,
		Network: func(context.Context) (sandbox.Network, func(), error) { return sandbox.Network{}, func() {}, nil }})
	ok(t, err)
	c := Config{DB: dbtest.New(t), Runner: runner, Toolchain: tools, Egress: out, Dir: filepath.Join(dir, "b")}
	for _, f := range change {
		f(&c)
	}
	s := &site{Builds: New(c), t: t, repos: filepath.Join(dir, "repos")}
	s.source, err = source.New(source.Config{Dir: filepath.Join(dir, "source"), Egress: out, Hosts: map[string]string{"git.test": "file://" + s.repos}})
	ok(t, err)
	return s
}

// outcome is what one build came to.
type outcome struct {
	err    error
	files  map[string]string // of the artefact
	log    []string          // each with its level in front
	stages []string
}

func (o outcome) text() string { return strings.Join(o.log, "\n") }

// build commits files and builds them by plan.
func (s *site) build(files map[string]string, plan framework.Plan, change ...func(*Spec)) (o outcome) {
	s.t.Helper()
	dir := filepath.Join(s.repos, "acme", "x")
	ok(s.t, os.MkdirAll(dir, 0o755))
	git := func(args ...string) {
		cmd := exec.Command("git", append([]string{"-C", dir, "-c", "user.name=T", "-c", "user.email=t@example.test", "-c", "init.defaultBranch=main"}, args...)...)
		if out, err := cmd.CombinedOutput(); err != nil {
			s.t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
	git("init", "-q")
	tree(s.t, dir, files)
	git("add", "-A")
	git("commit", "-q", "--allow-empty", "-m", "change")
	repo, err := source.ParseRepository("git.test/acme/x")
	ok(s.t, err)
	t, err := s.source.Fetch(s.t.Context(), source.Request{Site: "site_x", Repository: repo})
	ok(s.t, err)
	defer t.Close()
	s.n++
	spec := Spec{ID: fmt.Sprintf("dep_%d", s.n), Site: "site_x", Owner: "anna", Branch: "main", Tree: t, Plan: plan}
	for _, f := range change {
		f(&spec)
	}
	var mu sync.Mutex // guards o
	stage := func(mark string) func(string) {
		return func(name string) {
			mu.Lock()
			defer mu.Unlock()
			o.stages = append(o.stages, mark+name)
		}
	}
	report := Report{
		Line: func(level, message, _ string) {
			mu.Lock()
			defer mu.Unlock()
			o.log = append(o.log, level+": "+message)
		},
		Enter: stage(""), Skip: stage("-"), Wait: func(int) {}, Begin: func() {},
	}
	o.err = s.Run(s.t.Context(), spec, report, func(_ context.Context, a Artefact) error {
		o.files = map[string]string{}
		return fs.WalkDir(a.Files.FS(), ".", func(name string, e fs.DirEntry, err error) error {
			if err != nil || !e.Type().IsRegular() {
				return err
			}
			f, err := a.Files.Open(name)
			if err != nil {
				return err
			}
			defer f.Close()
			text, err := io.ReadAll(f)
			o.files[name] = string(text)
			return err
		})
	})
	return o
}

// sh is a plan of shell commands that leave their output in dist.
func sh(commands ...string) framework.Plan {
	p := framework.Plan{Name: "Test", Runtime: framework.Static, Output: "dist"}
	for _, c := range commands {
		p.Build = append(p.Build, framework.Command{Shell: c})
	}
	return p
}

// A build runs its commands over the commit, and hands on what they leave.
func TestRun(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	o := s.build(map[string]string{"in.txt": "hello"}, sh("mkdir dist", "cp in.txt dist/index.html; echo built; echo odd >&2"))
	if o.err != nil || o.files["index.html"] != "hello" || len(o.files) != 1 {
		t.Errorf("%v: %v\n%s", o.err, o.files, o.text())
	}
	if got := strings.Join(o.stages, " "); got != "prepare -install build publish" {
		t.Errorf("stages: %s", got)
	}
	if got := o.text(); got != "info: $ mkdir dist\ninfo: $ cp in.txt dist/index.html; echo built; echo odd >&2\ninfo: built\ninfo: odd" {
		t.Errorf("log: %s", got)
	}
	if left, _ := os.ReadDir(filepath.Join(s.c.Dir, "work")); len(left) > 0 {
		t.Errorf("left on disk: %v", left)
	}
}

// Dependencies that the last build installed are reused although the project has scripts
// of its own, and those scripts run again.
func TestScriptsRunOverReusedModules(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	plan := sh("mkdir dist; cat node_modules/dep prepared > dist/index.html")
	plan.Install = []framework.Command{{Shell: "mkdir node_modules; date +%N > node_modules/dep; cp source prepared"}}
	plan.Scripts = []framework.Command{{Shell: "cp source prepared"}}
	plan.Inputs, plan.Modules = []string{"lock"}, []string{"node_modules"}
	first := s.build(map[string]string{"lock": "1", "source": "one"}, plan)
	second := s.build(map[string]string{"lock": "1", "source": "two"}, plan)
	if first.err != nil || second.err != nil {
		t.Fatal(first.err, second.err, second.text())
	}
	dep, ok := strings.CutSuffix(first.files["index.html"], "one")
	if !ok || second.files["index.html"] != dep+"two" {
		t.Errorf("first %q, second %q", first.files["index.html"], second.files["index.html"])
	}
	third := s.build(map[string]string{"lock": "2"}, plan)
	if third.err != nil || third.files["index.html"] == dep+"two" {
		t.Errorf("another lock file: %v, %q", third.err, third.files["index.html"])
	}
}
