package deploy

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"slipway/internal/buildlog"
	"slipway/internal/egress"
	"slipway/internal/fault"
	"slipway/internal/framework"
	"slipway/internal/release"
	"slipway/internal/sandbox"
	"slipway/internal/site"
	"slipway/internal/source"
	"slipway/internal/toolchain"
)

// Builds says what builds run in. Without a Runner they are refused with Why.
type Builds struct {
	Runner    sandbox.Runner
	Why       string // why there is none
	Toolchain *toolchain.Toolchain
	Egress    *egress.Egress
	Dir       string         // absolute, ours: scratch directories and caches
	AtOnce    int            // Optional: 0 means half the processors, at least one
	Limits    sandbox.Limits // Optional: zero fields are the sandbox's defaults
}

// What a build's own directory holds, as it is made.
const (
	repoDir   = "repo"
	homeDir   = ".home"
	globalDir = homeDir + "/.npm-global" // what "npm install -g" brings; the tools' own folder is not the build's to write
)

// build is one build under way.
type build struct {
	d     *Deployments
	s     site.Site
	x     *Deployment
	plan  framework.Plan
	p     *progress
	log   *buildlog.Log
	cache cache
	tools toolchain.Tools
	dir   string // ours: the socket, and work
	work  string // the build's: repo and .home, or whatever it puts in their place
	uid   int
	env   []string
}

// built makes a release of what a build leaves in its output folder.
func (d *Deployments) built(ctx context.Context, s site.Site, x *Deployment, tree *source.Tree, plan framework.Plan, p *progress) (rel release.Sealed, err error) {
	if d.c.Builds.Runner == nil {
		return rel, &fault.Error{Kind: fault.Unavailable, Message: fmt.Sprintf("This %s project needs a build, and this server can't run builds", plan.Name),
			Details: d.c.Builds.Why}
	}
	waited := false
	done, err := d.turns.take(ctx, s.Owner, func(ahead int) {
		waited = true
		p.clock.stop() // a place in the queue costs nobody his time
		p.enter("queue", Building)
		p.Printf("info", "Waiting for a free place: %d builds may run at once, %d wait before this one", d.c.Builds.AtOnce, ahead)
	})
	if err != nil {
		return rel, err
	}
	defer done()
	if waited {
		p.clock.start()
		p.Printf("info", "It is this build's turn")
	}
	b := &build{d: d, s: s, x: x, plan: plan, p: p, cache: d.cacheOf(s.ID, x.Branch)}
	p.enter("prepare", Building)
	cleanup, err := b.prepare(ctx, tree)
	defer func() { err = errors.Join(err, cleanup()) }()
	if err != nil {
		return rel, err
	}
	network, closeNetwork, err := d.c.Builds.Way(ctx, b.dir)
	if err != nil {
		return rel, err
	}
	defer closeNetwork()
	defer func() { b.saveCaches(ctx, err == nil) }()
	if err := b.install(ctx, network); err != nil {
		return rel, err
	}
	if err := b.run(ctx, network, "build", plan.Build, map[string]string{"NODE_ENV": "production"}); err != nil {
		return rel, err
	}
	p.enter("publish", Deploying)
	return b.publish(ctx)
}

// prepare checks the commit out, brings caches and tools, and gives it all to the
// site's uid. The cleanup it returns is always to be called.
func (b *build) prepare(ctx context.Context, tree *source.Tree) (cleanup func() error, err error) {
	b.dir = filepath.Join(b.d.c.Builds.Dir, "work", string(b.x.ID))
	b.work = filepath.Join(b.dir, "work")
	cleanup = func() error {
		b.tools.Release()
		if b.log != nil {
			b.log.Close()
		}
		if err := removeTree(b.dir); err != nil {
			return fmt.Errorf("clear build directory: %w", err)
		}
		return nil
	}
	if err := removeTree(b.dir); err != nil { // of an attempt that a crash ended
		return cleanup, fmt.Errorf("clear build directory: %w", err)
	}
	if err := os.MkdirAll(b.work, 0o700); err != nil {
		return cleanup, fmt.Errorf("make build directory: %w", err)
	}
	if b.uid, err = b.d.uidOf(ctx, b.s.ID); err != nil {
		return cleanup, err
	}
	if err := b.environment(ctx); err != nil {
		return cleanup, err
	}
	if err := tree.Checkout(ctx, filepath.Join(b.work, repoDir)); err != nil {
		return cleanup, fmt.Errorf("check out: %w", err)
	}
	want := toolchain.Want{Node: b.plan.Node, Manager: b.plan.Manager, ManagerVersion: b.plan.ManagerVersion}
	if b.tools, err = b.d.c.Builds.Toolchain.Ready(ctx, want, func(format string, args ...any) { b.p.Printf("info", format, args...) }); err != nil {
		return cleanup, fmt.Errorf("prepare tools: %w", err)
	}
	if b.x.ClearCache {
		b.p.Printf("info", "The cache was cleared")
		if err := b.cache.clear(); err != nil {
			return cleanup, fmt.Errorf("clear cache: %w", err)
		}
	}
	for _, dir := range []string{"bin", "lib"} { // npx wants them there
		if err := os.MkdirAll(filepath.Join(b.work, globalDir, dir), 0o755); err != nil {
			return cleanup, fmt.Errorf("make home: %w", err)
		}
	}
	if err := b.cache.restore("home", b.work, homeDir, b.cacheFolders(true), b.uid); err != nil {
		return cleanup, err
	}
	if err := sandbox.Own(b.work, b.uid); err != nil {
		return cleanup, err
	}
	return cleanup, nil
}

// Clear removes what builds that a crash ended have left on disk. It is for the start,
// before the first build.
func (c Builds) Clear() error {
	left, err := filepath.Glob(filepath.Join(c.Dir, "way-*"))
	for _, dir := range append(left, filepath.Join(c.Dir, "work")) {
		err = errors.Join(err, removeTree(dir))
	}
	if err != nil {
		return fmt.Errorf("clear build directories: %w", err)
	}
	return nil
}

// removeTree deletes a directory that a build may have made hard to delete: folders
// without permissions, when we are not root.
func removeTree(dir string) error {
	err := os.RemoveAll(dir)
	if err == nil || os.Geteuid() == 0 {
		return err
	}
	filepath.WalkDir(dir, func(name string, e os.DirEntry, _ error) error {
		if e != nil && e.IsDir() {
			os.Chmod(name, 0o700)
		}
		return nil
	})
	return os.RemoveAll(dir)
}
