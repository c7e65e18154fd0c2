package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"slipway/e2e/world"
	"slipway/internal/platform/sandbox"
)

// real measures projects with dependencies and install scripts. The first build is compared with npm ci and a build
// with an empty npm cache; the second build with the same with npm's cache, and with a build whose dependencies are
// already installed.
func real(ctx context.Context, dir string, w *world.World, key string, projects []string) (rows []row, err error) {
	for _, name := range projects {
		from := filepath.Join(world.Root(), "bench/builds/testdata", name)
		switch name {
		case "vite-react":
			from = project()
		case "next":
			from = filepath.Join(world.Root(), "e2e/programs/testdata/next") // it is live when it answers
		}
		got, err := realOne(ctx, dir, w, key, name, from)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		for _, r := range got {
			fmt.Fprintf(os.Stderr, "  %s: %s; %s; %s\n", r.what, r.ours, r.yardstick, r.ratio)
		}
		rows = append(rows, got...)
	}
	return rows, nil
}

func realOne(ctx context.Context, dir string, w *world.World, key, name, from string) ([]row, error) {
	work := filepath.Join(dir, "bare-"+name)
	repo := filepath.Join(work, "repo")
	if err := os.CopyFS(repo, os.DirFS(from)); err != nil {
		return nil, err
	}
	run := func(as uint32, argv ...string) (time.Duration, error) {
		cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
		cmd.Dir, cmd.Env = repo, append(os.Environ(), "HOME="+work, "NUXT_TELEMETRY_DISABLED=1")
		if as != 0 && os.Geteuid() == 0 {
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: as, Gid: as}}
		}
		at := time.Now()
		out, err := cmd.CombinedOutput()
		if err != nil {
			return 0, fmt.Errorf("%s: %w\n%s", strings.Join(argv, " "), err, out)
		}
		return time.Since(at), nil
	}
	if _, err := os.Stat(filepath.Join(repo, "package-lock.json")); err != nil {
		if _, err := run(0, "npm", "install", "--package-lock-only", "--ignore-scripts", "--no-audit", "--no-fund"); err != nil {
			return nil, err
		}
	}
	if _, err := w.Git.Commit("bench/"+name, "main", repo, "bench"); err != nil {
		return nil, err
	}
	if err := os.RemoveAll(filepath.Join(work, ".npm")); err != nil { // a cold start has no cache
		return nil, err
	}
	install, err := run(0, "npm", "ci", "--no-audit", "--no-fund")
	if err != nil {
		return nil, err
	}
	again, err := run(0, "npm", "ci", "--no-audit", "--no-fund")
	if err != nil {
		return nil, err
	}
	if err := sandbox.Own(work, benchUID); err != nil {
		return nil, err
	}
	var bare []time.Duration
	var bareCold time.Duration
	for i := range 4 {
		took, err := run(benchUID, "npm", "run", "build")
		if err != nil {
			return nil, err
		}
		if i == 0 { // fills the framework's cache
			bareCold = install + took
			continue
		}
		bare = append(bare, took)
	}
	site, id, err := create(ctx, w, key, "bench/"+name)
	if err != nil {
		return nil, err
	}
	cold, err := ended(ctx, w, key, id)
	if err != nil {
		return nil, err
	}
	var warm []time.Duration
	stages := map[string][]time.Duration{}
	for range 3 {
		var out struct{ DeploymentID string }
		if err := w.Call(ctx, key, "POST", "/sites/"+site+"/deploy", nil, &out); err != nil {
			return nil, err
		}
		took, err := ended(ctx, w, key, out.DeploymentID)
		if err != nil {
			return nil, err
		}
		warm = append(warm, took)
		var d struct {
			Stages []struct {
				Name                   string
				StartedAt, CompletedAt time.Time
			}
		}
		if err := w.Call(ctx, key, "GET", "/deployments/"+out.DeploymentID, nil, &d); err != nil {
			return nil, err
		}
		for _, s := range d.Stages {
			stages[s.Name] = append(stages[s.Name], s.CompletedAt.Sub(s.StartedAt))
		}
	}
	var parts []string
	for _, s := range []string{"fetch", "prepare", "install", "build", "publish", "activate"} {
		if len(stages[s]) > 0 {
			parts = append(parts, s+" "+ms(quantile(stages[s], 0.5)))
		}
	}
	half, yard := quantile(warm, 0.5), quantile(bare, 0.5)
	bareWarm := again + yard
	return []row{
		{
			name + ", first build",
			ms(cold),
			"bare npm ci && npm run build " + ms(bareCold),
			fmt.Sprintf("%.2f×", float64(cold)/float64(bareCold)),
			"1.15×",
		},
		{
			name + ", second build",
			ms(half),
			"bare npm ci && npm run build, again " + ms(bareWarm),
			fmt.Sprintf("%.2f×", float64(half)/float64(bareWarm)),
			"0.6×",
		},
		{name + ", second build", ms(half), "first build " + ms(cold), fmt.Sprintf("%.0f %%", 100*float64(half)/float64(cold)), "50 %"},
		{
			name + ", second build",
			ms(half) + " (" + strings.Join(parts, ", ") + ")",
			"bare npm run build " + ms(yard),
			fmt.Sprintf("%.2f×", float64(half)/float64(yard)),
			"",
		},
	}, nil
}
