package build

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"slipway/internal/build/framework"
	"slipway/internal/build/toolchain"
	"slipway/internal/git/fetch"
	"slipway/internal/platform/dbtest"
	"slipway/internal/platform/egress"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/sandbox"
)

// site runs one site's builds with a real Git host, sandbox and database.
type site struct {
	*Builds
	t      *testing.T
	repos  string
	source *fetch.Fetcher
	n      int
}

func newSite(t *testing.T, change ...func(*Config)) *site {
	t.Helper()
	dir, err := os.MkdirTemp("", "build-") // short, because a Unix socket's path has at most 108 bytes
	ok(t, err)
	t.Cleanup(func() { removeTree(dir) })
	ok(t, os.Chmod(dir, 0o755))
	out, err := egress.New(egress.Config{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
	ok(t, err)
	runner, err := sandbox.New(sandbox.Config{Dir: filepath.Join(dir, "sandbox")})
	ok(t, err)
	tools, err := toolchain.New(toolchain.Config{
		Dir: filepath.Join(dir, "tools"), Sandbox: runner, UID: lastUID + 1,
		Network: func(context.Context) (sandbox.Network, func(), error) { return sandbox.Network{}, func() {}, nil },
	})
	ok(t, err)
	c := Config{DB: dbtest.New(t), Runner: runner, Toolchain: tools, Egress: out, Dir: filepath.Join(dir, "b")}
	for _, f := range change {
		f(&c)
	}
	s := &site{Builds: New(c), t: t, repos: filepath.Join(dir, "repos")}
	s.source, err = fetch.New(fetch.Config{
		Dir:    filepath.Join(dir, "source"),
		Egress: out,
		Hosts:  map[string]string{"git.test": "file://" + s.repos},
	})
	ok(t, err)
	return s
}

// outcome is the result of one build.
type outcome struct {
	err    error
	files  map[string]string // of the artefact
	log    []string          // each after its level
	stages []string
	made   Artefact // its files are gone
}

func (o outcome) text() string { return strings.Join(o.log, "\n") }

// build commits files and builds them by plan.
func (s *site) build(files map[string]string, plan framework.Plan, change ...func(*Spec)) (o outcome) {
	s.t.Helper()
	dir := filepath.Join(s.repos, "acme", "x")
	ok(s.t, os.MkdirAll(dir, 0o755))
	git := func(args ...string) {
		cmd := exec.Command("git", append([]string{
			"-C", dir, "-c", "user.name=T", "-c", "user.email=t@example.test", "-c", "init.defaultBranch=main",
		}, args...)...)
		if out, err := cmd.CombinedOutput(); err != nil {
			s.t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
	git("init", "-q")
	tree(s.t, dir, files)
	git("add", "-A")
	git("commit", "-q", "--allow-empty", "-m", "change")
	repo, err := fetch.ParseRepository("git.test/acme/x")
	ok(s.t, err)
	t, err := s.source.Fetch(s.t.Context(), fetch.Request{Site: "site_x", Repository: repo})
	ok(s.t, err)
	defer t.Close()
	s.n++
	spec := Spec{ID: fmt.Sprintf("dep_%d", s.n), Site: "site_x", Owner: "anna", Branch: "main", Tree: t, Plan: plan}
	for _, f := range change {
		f(&spec)
	}
	o.err = s.Run(s.t.Context(), spec, &heard{o: &o}, func(_ context.Context, a Artefact) error {
		o.files, o.made = map[string]string{}, a
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
	s.ending.Wait()
	return o
}

// sh returns a plan of shell commands that write their output to dist.
func sh(commands ...string) framework.Plan {
	p := framework.Plan{Name: "Test", Runtime: framework.Static, Output: "dist"}
	for _, c := range commands {
		p.Build = append(p.Build, framework.Command{Shell: c})
	}
	return p
}

// A build runs its commands in the checkout and hands over their output.
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

// blocked is a log whose lines block.
type blocked struct {
	slog.Handler
	once       *sync.Once
	began, end chan struct{}
}

func (b blocked) Handle(context.Context, slog.Record) error {
	b.once.Do(func() { close(b.began) })
	<-b.end
	return nil
}

// A deployment goes live as soon as the artefact is used, while the build's caches are still being saved.
func TestCachesAreSavedAfterTheBuild(t *testing.T) {
	t.Parallel()
	log := blocked{slog.NewTextHandler(io.Discard, nil), new(sync.Once), make(chan struct{}), make(chan struct{})}
	s := newSite(t, func(c *Config) { c.Log = slog.New(log) })
	at := filepath.Dir(s.cacheOf("site_x", "main").dir)
	ok(t, os.MkdirAll(filepath.Dir(at), 0o700))
	ok(t, os.WriteFile(at, nil, 0o600)) // so that saving fails with a log line
	source := t.TempDir()
	plan := sh("mkdir dist; echo hi > dist/index.html")
	plan.Cache = []string{".c"}
	used := false
	spec := Spec{ID: "dep_c", Site: "site_x", Owner: "anna", Branch: "main", Plan: plan, Tree: folder(filepath.Join(source, "repo"))}
	ok(t, os.Mkdir(filepath.Join(source, "repo"), 0o755))
	ok(t, s.Run(t.Context(), spec, quiet{}, func(context.Context, Artefact) error { used = true; return nil }))
	<-log.began
	if _, err := os.Stat(filepath.Join(s.c.Dir, "work", "dep_c")); !used || err != nil {
		t.Errorf("used: %v, its folder: %v", used, err)
	}
	forgotten := make(chan error)
	go func() { forgotten <- s.Forget(t.Context(), "site_x") }()
	select {
	case err := <-forgotten:
		t.Errorf("forgotten while a cache is being saved: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	close(log.end)
	ok(t, <-forgotten)
	s.ending.Wait()
	if left, _ := os.ReadDir(filepath.Join(s.c.Dir, "work")); len(left) > 0 {
		t.Errorf("left on disk: %v", left)
	}
}

// A commit that no command changes needs no slot and no sandbox.
func TestPlainFilesNeedNoSlot(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(c *Config) { c.AtOnce, c.Runner, c.Toolchain = 1, nil, nil })
	done, err := s.slots.take(t.Context(), "bob", func(int) {})
	ok(t, err)
	defer done()
	o := s.build(map[string]string{"index.php": "<?php"}, framework.Plan{Runtime: framework.PHP, Start: &framework.Start{}})
	if o.err != nil || o.files["index.php"] != "<?php" || strings.Join(o.stages, " ") != "prepare -install -build publish" {
		t.Errorf("%v: %v, stages %v\n%s", o.err, o.files, o.stages, o.text())
	}
	if left, _ := os.ReadDir(filepath.Join(s.c.Dir, "work")); len(left) > 0 {
		t.Errorf("left on disk: %v", left)
	}
}

// Dependencies of the last build are reused even if the project has its own scripts, which run again.
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

// Errors include what the project's own files show.
func TestWhatGoesWrong(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		files map[string]string
		plan  framework.Plan
		want  string
	}{
		"merge conflict": {
			map[string]string{"package-lock.json": "{\n<<<<<<< HEAD\n}\n"},
			sh("false"),
			"package-lock.json contains merge conflict markers",
		},
		"CRLF script": {
			map[string]string{"run.sh": "#!/bin/sh\r\necho x\r\n"},
			sh("chmod +x run.sh; ./run.sh"),
			"Script ./run.sh has Windows line endings",
		},
		"linked output": {map[string]string{"out/index.html": "x", "dist": "-> out"}, sh("true"), "Output folder dist is a link to out"},
		"unset variable": {
			map[string]string{".npmrc": "//r.example/:_authToken=${SOME_TOKEN}\n"},
			sh("echo npm error code E401; false"),
			"SOME_TOKEN, which is not set",
		},
		"absent tool": {
			nil,
			framework.Plan{Name: "Zola", Output: "public", Build: []framework.Command{{Argv: []string{"zola", "build"}}}},
			"zola is not on this host",
		},
		"a large file": {nil, sh("truncate -s 70000000 big"), "larger than its disk limit"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, func(c *Config) { c.Limits.Disk = 64 << 20 })
			o := s.build(tt.files, tt.plan)
			f := fault.As(o.err)
			if f == nil || !strings.Contains(f.Details, tt.want) {
				t.Errorf("%v\n%s", o.err, o.text())
			}
		})
	}
}

// Temporary files are on disk, where they only count toward the disk limit, and commands get their working directory in
// PWD.
func TestTemporaryFilesLieOnTheDisk(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(c *Config) { c.Limits.TmpSize = 1 << 20 })
	plan := sh(`mkdir -p $PWD/web/dist; node -e "
		const fs = require('fs'), file = require('os').tmpdir() + '/big'
		fs.writeFileSync(file, Buffer.alloc(4 << 20)); fs.writeFileSync('web/dist/index.html', fs.statSync(file).size + ' in ' + process.env.PWD)"`)
	plan.Output = "web/dist"
	if o := s.build(nil, plan); o.err != nil || o.files["index.html"] != "4194304 in /build/repo" {
		t.Errorf("%v: %v\n%s", o.err, o.files, o.text())
	}
}

// Commands that need bash run in it, also those in package.json.
func TestBash(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	o := s.build(nil, sh("mkdir dist; [[ abc == a* ]] && echo {1..3} > dist/index.html"))
	if o.err != nil || o.files["index.html"] != "1 2 3\n" {
		t.Errorf("%v: %v\n%s", o.err, o.files, o.text())
	}
	manifest := `{"scripts": {"build": "npm run inner", "inner": "[[ -d dist ]] || mkdir dist; source ./vars", "unused": "x"}}`
	o = s.build(map[string]string{
		"package.json": manifest,
	}, sh(`mkdir dist; echo "$npm_config_script_shell npm run build" > dist/index.html`))
	if o.err != nil || o.files["index.html"] != "/bin/bash npm run build\n" {
		t.Errorf("%v: %v\n%s", o.err, o.files, o.text())
	}
	o = s.build(map[string]string{
		"package.json": strings.Replace(manifest, "npm run inner", "vite build", 1),
	}, sh(`mkdir dist; echo "$npm_config_script_shell npm run build" > dist/index.html`))
	if o.err != nil || o.files["index.html"] != " npm run build\n" {
		t.Errorf("%v: %v\n%s", o.err, o.files, o.text())
	}
}

// URLs of Git repositories that a build can't reach are rewritten to https.
func TestGitOverHTTPS(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	o := s.build(
		nil,
		sh(
			"mkdir dist; for u in ssh://git@github.com/a/b.git git@gitlab.com:a/b git://git.example/a/b https://github.com/a/b; do git ls-remote --get-url $u >> dist/index.html; done",
		),
	)
	if want := "https://github.com/a/b.git\nhttps://gitlab.com/a/b\nhttps://git.example/a/b\nhttps://github.com/a/b\n"; o.err != nil ||
		o.files["index.html"] != want {
		t.Errorf("%v: %q\n%s", o.err, o.files["index.html"], o.text())
	}
}

func TestManagersThatCommandsCall(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"yarn build":                     "yarn",
		"npm run x && pnpm -r build":     "npm pnpm",
		"NODE_ENV=production yarn build": "yarn",
		"echo yarn":                      "",
		"node yarn.js":                   "",
		"cd web; yarn":                   "yarn",
		"(bun run x)":                    "bun",
		"pnpm-tool":                      "",
		"./yarn x":                       "",
		"env A=1 pnpm build":             "pnpm",
		"vite build":                     "",
	} {
		if got := strings.Join(managers([]string{text}), " "); got != want {
			t.Errorf("%q calls %q, want %q", text, got, want)
		}
	}
}

// The log names secrets that are too short to be redacted, and hides the others.
func TestShortSecretsAreNamed(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	o := s.build(nil, sh("mkdir dist; echo $PIN $TOKEN | tee dist/index.html"), func(spec *Spec) {
		spec.Env = map[string]string{"PIN": "12345", "TOKEN": "abcdef"}
		spec.Secrets = []Secret{{"PIN", "12345"}, {"TOKEN", "abcdef"}, {"EMPTY", ""}, {"", "x"}}
	})
	if o.err != nil || !strings.Contains(
		o.text(),
		"warn: The value of PIN is too short to be redacted",
	) || !strings.Contains(o.text(), "12345 [secret]") || strings.Count(o.text(), "warn: ") != 1 {
		t.Errorf("%v\n%s", o.err, o.text())
	}
}

// Other hosts have variables that choose a version. The log must name each such variable once, unless the repository's
// own files set the version.
func TestVersionsInVariablesAreNamed(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	plan := sh("mkdir dist; echo hi > dist/index.html")
	plan.Env = map[string]string{"HUGO_VERSION": "0.120.0"}
	o := s.build(nil, plan, func(spec *Spec) {
		spec.Env = map[string]string{"NODE_VERSION": "18", "HUGO_VERSION": "0.120.0", "PHP_VERSION": "7.4", "APP_VERSION": "3"}
	})
	if o.err != nil || !strings.Contains(
		o.text(),
		"warn: The variable NODE_VERSION chooses no Node.js here",
	) || !strings.Contains(o.text(), "warn: The variable PHP_VERSION chooses no program here") || strings.Count(o.text(), "warn: ") != 2 {
		t.Errorf("%v\n%s", o.err, o.text())
	}
}

// A build's first commands find a usual repository: the commit, its dates, the branch, and a writable configuration,
// which husky's prepare needs.
func TestBuildSeesARepository(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.build(map[string]string{"index.html": "one"}, framework.Plan{Runtime: framework.Static})
	o := s.build(map[string]string{
		"index.html":        "two",
		".husky/pre-commit": "#!/bin/sh\n",
	}, framework.Plan{
		Runtime: framework.Static, Output: "out",
		Build: []framework.Command{{Shell: "set -e; git config core.hooksPath .husky; mkdir out; " +
			"git rev-parse HEAD > out/commit.txt; git rev-parse --abbrev-ref HEAD > out/branch.txt; git rev-list --count HEAD > out/count.txt; " +
			"git log -1 --format=%ct -- index.html > out/date.txt; git status --porcelain --untracked-files=no > out/status.txt; git config core.hooksPath > out/hooks.txt"}},
	})
	ok(t, o.err)
	trim := func(name string) string { return strings.TrimSpace(o.files[name]) }
	if len(trim("commit.txt")) != 40 || trim("branch.txt") != "main" || trim("count.txt") != "2" || trim("date.txt") == "" ||
		trim("status.txt") != "" ||
		trim("hooks.txt") != ".husky" {
		t.Errorf("the build saw %q\n%s", o.files, o.text())
	}
}

// heard records a build's progress.
type heard struct {
	mu sync.Mutex // guards o
	o  *outcome
}

func (h *heard) Line(level, message, _ string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.o.log = append(h.o.log, level+": "+message)
}

func (h *heard) stage(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.o.stages = append(h.o.stages, name)
}

func (h *heard) Enter(stage string) { h.stage(stage) }
func (h *heard) Skip(stage string)  { h.stage("-" + stage) }
func (h *heard) Wait(int)           {}
func (h *heard) Begin()             {}

// quiet ignores a build's progress.
type quiet struct{}

func (quiet) Line(string, string, string) {}
func (quiet) Enter(string)                {}
func (quiet) Skip(string)                 {}
func (quiet) Wait(int)                    {}
func (quiet) Begin()                      {}

// lacks is a disk.
type lacks func() int64

func (f lacks) Lacks() int64 { return f() }
