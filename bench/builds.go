package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"slipway/e2e/world"
	"slipway/internal/platform/sandbox"
)

// benchUID is a uid that no site has.
const benchUID = 199_997

// builds measures projects with dependencies and install scripts. The first build is compared with npm ci and a build
// with an empty npm cache; the second build with the same with npm's cache, and with a build whose dependencies are
// already installed. It needs npm and the npm registry. As root, yardsticks run under an unprivileged uid, as builds do.
func (b *bench) builds(w *world.World) error {
	registry, err := world.Registry()
	if err != nil {
		return err
	}
	w.Flags = slices.Concat(w.Flags, registry, b.serve)
	if err := errors.Join(os.Chmod(b.dir, 0o755), w.Stop(b.ctx), w.Start(b.ctx)); err != nil {
		return err
	}
	for name := range strings.SplitSeq(b.projects, ",") {
		from := filepath.Join(world.Root(), "bench/testdata", name)
		switch name {
		case "vite-react":
			from = filepath.Join(world.Root(), "e2e/builds/testdata/projects/vite-react")
		case "next":
			from = filepath.Join(world.Root(), "e2e/programs/testdata/next") // it is live when it answers
		}
		if err := b.project(w, name, from); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

func (b *bench) project(w *world.World, name, from string) error {
	work := filepath.Join(b.dir, "bare-"+name)
	repo := filepath.Join(work, "repo")
	if err := os.CopyFS(repo, os.DirFS(from)); err != nil {
		return err
	}
	var failed error // the first error of run
	run := func(as uint32, argv ...string) time.Duration {
		cmd := exec.CommandContext(b.ctx, argv[0], argv[1:]...)
		cmd.Dir, cmd.Env = repo, append(os.Environ(), "HOME="+work, "NUXT_TELEMETRY_DISABLED=1")
		if as != 0 && os.Geteuid() == 0 {
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: as, Gid: as}}
		}
		at := time.Now()
		if failed == nil {
			if out, err := cmd.CombinedOutput(); err != nil {
				failed = fmt.Errorf("%s: %w\n%s", strings.Join(argv, " "), err, out)
			}
		}
		return time.Since(at)
	}
	if _, err := os.Stat(filepath.Join(repo, "package-lock.json")); err != nil {
		run(0, "npm", "install", "--package-lock-only", "--ignore-scripts", "--no-audit", "--no-fund")
	}
	if failed == nil {
		_, failed = w.Git.Commit("bench/"+name, "main", repo, "bench")
	}
	os.RemoveAll(filepath.Join(work, ".npm")) // a first build has no cache
	install := run(0, "npm", "ci", "--no-audit", "--no-fund")
	again := run(0, "npm", "ci", "--no-audit", "--no-fund")
	if err := errors.Join(failed, sandbox.Own(work, benchUID)); err != nil {
		return err
	}
	bareCold := install + run(benchUID, "npm", "run", "build") // fills the framework's cache
	var bare []time.Duration
	for range 3 {
		bare = append(bare, run(benchUID, "npm", "run", "build"))
	}
	if failed != nil {
		return failed
	}
	site, _, err := b.create(w, b.key, name, name)
	if err != nil {
		return err
	}
	var first struct{ Data []struct{ ID string } }
	if err := world.Until(b.ctx, 5*time.Millisecond, func() (bool, error) {
		err := b.call(w, "GET", "/sites/"+site+"/deployments", nil, &first)
		return len(first.Data) > 0, err
	}); err != nil {
		return err
	}
	cold, _, err := b.build(w, first.Data[0].ID)
	if err != nil {
		return err
	}
	var warm []time.Duration
	stages := map[string][]time.Duration{}
	for range 3 {
		var out struct{ DeploymentID string }
		if err := b.call(w, "POST", "/sites/"+site+"/deploy", nil, &out); err != nil {
			return err
		}
		took, steps, err := b.build(w, out.DeploymentID)
		if err != nil {
			return err
		}
		warm = append(warm, took)
		for _, s := range steps {
			stages[s.Name] = append(stages[s.Name], s.CompletedAt.Sub(s.StartedAt))
		}
	}
	var parts []string
	for _, s := range []string{"fetch", "prepare", "install", "build", "publish", "activate"} {
		if len(stages[s]) > 0 {
			parts = append(parts, s+" "+ms(median(stages[s])))
		}
	}
	fmt.Fprintf(os.Stderr, "  %s, steps of a second build: %s\n", name, strings.Join(parts, ", "))
	second := name + ", second build"
	b.timing(name+", first build", cold, bareCold, "`npm ci && npm run build`", "1.15×")
	b.timing(second, median(warm), again+median(bare), "`npm ci && npm run build`, again", "0.6×")
	b.timing(second+", beside the build alone", median(warm), median(bare), "`npm run build` alone", "")
	return nil
}

type buildStep struct {
	Name                   string
	StartedAt, CompletedAt time.Time
}

// build waits for a deployment's success, and returns its duration and its steps.
func (b *bench) build(w *world.World, id string) (took time.Duration, steps []buildStep, err error) {
	if err := b.ends(w, b.key, "/deployments/"+id, "success", "failed"); err != nil {
		return 0, nil, err
	}
	var d struct {
		StartedAt, CompletedAt time.Time
		Stages                 []buildStep
	}
	err = b.call(w, "GET", "/deployments/"+id, nil, &d)
	return d.CompletedAt.Sub(d.StartedAt), d.Stages, err
}
