package build

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"slipway/internal/build/buildlog"
	"slipway/internal/build/framework"
	"slipway/internal/build/phpversion"
	"slipway/internal/build/root"
	"slipway/internal/build/toolchain"
	"slipway/internal/platform/disk"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/sandbox"
	"slipway/internal/platform/text"
)

// Names in a build's own directory.
const (
	RepoDir   = "repo" // the checkout; programs run at the same path
	homeDir   = ".home"
	tempDir   = ".tmp"                   // for the whole build: each command has a /tmp of its own
	globalDir = homeDir + "/.npm-global" // target of "npm install -g"; builds may not write to the tools' own folder
)

// build is a running build.
type build struct {
	*Builds
	Spec
	report     Report
	log        *buildlog.Log
	cache      cache
	saved      bool             // whether cache has been saved
	ran        bool             // whether commands ran, so that caches are worth saving
	before     map[string]int64 // when each candidate for the output last changed, before any command ran
	tools      toolchain.Tools
	phpVersion phpversion.Version // if the plan requires PHP
	root       *root.Lease        // the programs that the commands find; nil is the host's
	extra      []toolchain.Tools  // additional tools, released separately
	line       string             // version of Node.js that the packages need if the project names none; "" is the server's
	makeshift  bool               // Artefact.Makeshift
	dir        string             // private: the socket, and work
	work       string             // writable for the build: repo and .home; set in advance for builds elsewhere
	uid        int                // of the site; set in advance for builds elsewhere
	env        []string
}

// Run builds s and calls use with the artefact. Saving the caches and deleting the build's folders continue after Run
// returns; only the next build of the same site and branch waits for that. All caches are saved only if use succeeded.
func (b *Builds) Run(ctx context.Context, s Spec, r Report, use func(context.Context, Artefact) error) error {
	x := &build{Builds: b, Spec: s, report: r, cache: b.cacheOf(s.Site, s.Branch)}
	if len(s.Plan.Install)+len(s.Plan.Build) == 0 {
		return x.asItIs(ctx, use)
	}
	if err := disk.Spare(b.c.Dir, 0); err != nil && b.c.Elsewhere == nil {
		return err
	}
	if b.c.Runner == nil && b.c.Elsewhere == nil {
		return fault.New(fault.Unavailable, "",
			fmt.Sprintf("This %s project needs a build, and this server can't run builds", s.Plan.Name), b.c.Why)
	}
	waited := false
	done, err := b.slots.take(ctx, s.Owner, func(place int) {
		if !waited {
			r.Enter("queue")
		}
		r.Wait(place)
		if !waited {
			printf(r, "info", "Waiting for a free build slot: %s may run at once, position %d in the queue",
				text.Count(b.c.AtOnce, "build"), place)
		}
		waited = true
	})
	if err != nil {
		return err
	}
	defer done()
	if waited {
		r.Begin()
		printf(r, "info", "A build slot is free")
	}
	if err := b.busy.await(ctx, x.cache.dir); err != nil {
		return err
	}
	good := false
	defer func() {
		b.ending.Go(func() {
			defer b.busy.give(x.cache.dir)
			x.end(ctx, good)
			if x.saved {
				x.measure(ctx)
			}
		})
	}()
	if b.c.Elsewhere != nil {
		err = x.elsewhere(ctx, use)
	} else {
		err = x.carryOut(ctx, use)
	}
	good = err == nil
	return err
}

// asItIs hands over a commit that needs no build, such as plain PHP. It needs no slot, sandbox or tools.
func (b *build) asItIs(ctx context.Context, use func(context.Context, Artefact) error) (err error) {
	b.report.Enter("prepare")
	b.warnOfVersions()
	b.dir = filepath.Join(b.c.Dir, "work", b.ID)
	b.work = filepath.Join(b.dir, "work")
	if err := removeTree(b.dir); err != nil { // of an attempt that a crash interrupted
		return fmt.Errorf("clear build directory: %w", err)
	}
	defer func() { err = errors.Join(err, removeTree(b.dir)) }()
	if err := os.MkdirAll(b.work, 0o700); err != nil {
		return fmt.Errorf("make build directory: %w", err)
	}
	if err := b.Tree.Checkout(ctx, filepath.Join(b.work, RepoDir)); err != nil {
		return fmt.Errorf("check out: %w", err)
	}
	b.log = buildlog.New(buildlog.Config{})
	b.report.Skip("install")
	b.report.Skip("build")
	b.report.Enter("publish")
	return b.handOver(ctx, func(ctx context.Context, a Artefact) error {
		if a.Runtime != framework.Node || b.Plan.Node != "" || b.c.Node == "" || b.c.Runner == nil || b.c.Elsewhere != nil {
			return use(ctx, a)
		}
		// It has no package manager, so Node.js alone is what it needs.
		if err := b.bringNode(ctx); err != nil {
			return err
		}
		defer b.giveBack()
		if a.Makeshift = b.makeshift; b.line != "" {
			a.Node = b.tools.Node
		}
		return use(ctx, a)
	})
}

// end saves what the next build can use and deletes the rest.
func (b *build) end(ctx context.Context, good bool) {
	if b.ran {
		b.saveCaches(ctx, good)
	}
	if err := removeTree(b.dir); err != nil {
		b.c.Log.WarnContext(ctx, "build directory not removed", "site", b.Site, "err", err)
	}
}

// carryOut runs all stages of a build.
func (b *build) carryOut(ctx context.Context, use func(context.Context, Artefact) error) error {
	b.report.Enter("prepare")
	b.warnOfVersions()
	if err := b.makeRoom(ctx); err != nil {
		return err
	}
	defer b.release()
	if err := b.prepare(ctx); err != nil {
		return err
	}
	var network sandbox.Network
	if b.c.Egress != nil {
		var closeNetwork func()
		var err error
		network, closeNetwork, err = Network(ctx, b.c.Egress, b.dir, func(why string) { b.printf("warn", "%s", why) })
		if err != nil {
			return err
		}
		defer closeNetwork()
	}
	b.ran = true
	b.noteOutputs()
	if err := b.install(ctx, network); err != nil {
		return err
	}
	if err := b.run(ctx, network, "build", b.Plan.Build, map[string]string{"NODE_ENV": "production"}, ""); err != nil {
		return err
	}
	b.report.Enter("publish")
	return b.handOver(ctx, func(ctx context.Context, a Artefact) error {
		if a.Node = b.node(); b.Plan.Node == "" && a.Node != "" {
			a.Node = b.tools.Node // it stays that version, however often it starts
		}
		a.Makeshift = b.makeshift
		return use(ctx, a)
	})
}

func (b *build) warnOfVersions() {
	for _, text := range b.Plan.VersionWarnings(b.Env) {
		b.printf("warn", "%s", text)
	}
}

// release releases the resources of the build's commands, and closes its log.
func (b *build) release() {
	b.giveBack()
	if b.log != nil {
		b.log.Close()
	}
}

// prepare checks out the commit, restores caches, gets tools, and changes ownership to the site's uid. The caller must
// call release, even after an error.
func (b *build) prepare(ctx context.Context) (err error) {
	b.dir = filepath.Join(b.c.Dir, "work", b.ID)
	b.work = cmp.Or(b.work, filepath.Join(b.dir, "work"))
	if err := removeTree(b.dir); err != nil { // of an attempt that a crash interrupted
		return fmt.Errorf("clear build directory: %w", err)
	}
	// work is below dir, except for a build that runs alone.
	if err := errors.Join(os.MkdirAll(b.dir, 0o700), os.MkdirAll(b.work, 0o700)); err != nil {
		return fmt.Errorf("make build directory: %w", err)
	}
	if b.uid == 0 {
		if b.uid, err = b.uidOf(ctx, b.Site); err != nil {
			return err
		}
	}
	b.environment(b.texts(ctx))
	if err := b.Tree.Checkout(ctx, filepath.Join(b.work, RepoDir)); err != nil {
		return fmt.Errorf("check out: %w", err)
	}
	if err := b.bring(ctx); err != nil {
		return err
	}
	if b.ClearCache {
		b.printf("info", "The cache was cleared")
		if err := b.cache.clear(); err != nil {
			return fmt.Errorf("clear cache: %w", err)
		}
	}
	for _, dir := range []string{globalDir + "/bin", globalDir + "/lib", tempDir} { // npx requires the first two
		if err := os.MkdirAll(filepath.Join(b.work, dir), 0o755); err != nil {
			return fmt.Errorf("make home: %w", err)
		}
	}
	if err := sandbox.Own(b.work, b.uid); err != nil {
		return err
	}
	// Caches already belong to the uid: changing thousands of files again would take time.
	if err := b.cache.restore("home", b.work, homeDir, b.cacheFolders(true), b.uid); err != nil {
		return err
	}
	return nil
}

// removeTree deletes a directory even if the build removed permissions from folders, which matters when Slipway isn't
// root.
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
