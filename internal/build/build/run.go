package build

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"slipway/internal/build/buildlog"
	"slipway/internal/build/toolchain"
	"slipway/internal/platform/disk"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/sandbox"
	"slipway/internal/platform/text"
)

// What a build's own directory holds, as it is made.
const (
	RepoDir   = "repo" // the checkout; programs find what runs at that path too
	homeDir   = ".home"
	tempDir   = ".tmp"                   // on the disk: /tmp lives in memory
	globalDir = homeDir + "/.npm-global" // what "npm install -g" brings; the tools' own folder is not the build's to write
)

// build is one build under way.
type build struct {
	*Builds
	Spec
	report Report
	log    *buildlog.Log
	cache  cache
	saved  bool             // whether cache has been saved
	ran    bool             // whether its commands were reached, so that caches are worth saving
	before map[string]int64 // when the folders that may be the output had changed last, before anything ran
	tools  toolchain.Tools
	extra  []toolchain.Tools // what of tools is released apart
	line   string            // of Node, which the packages need where the project names no version; "" is the server's
	dir    string            // ours: the socket, and work
	work   string            // the build's: repo and .home, or whatever it puts in their place; set before where it is elsewhere
	uid    int               // likewise
	env    []string
}

// Run builds what s says and calls use with the artefact. When it returns, caches for the next build are still being saved
// and the build's folders deleted: the site's next build of the branch waits for that, visitors don't. Caches are saved
// whole only when use succeeded.
func (b *Builds) Run(ctx context.Context, s Spec, r Report, use func(context.Context, Artefact) error) error {
	x := &build{Builds: b, Spec: s, report: r, cache: b.cacheOf(s.Site, s.Branch)}
	if len(s.Plan.Install)+len(s.Plan.Build) == 0 {
		return x.asItIs(ctx, use)
	}
	if err := disk.Spare(b.c.Dir, 0); err != nil && b.c.Elsewhere == nil {
		return err
	}
	if b.c.Runner == nil && b.c.Elsewhere == nil {
		return &fault.Error{
			Kind:    fault.Unavailable,
			Message: fmt.Sprintf("This %s project needs a build, and this server can't run builds", s.Plan.Name),
			Details: b.c.Why,
		}
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

// asItIs hands over a commit that no command changes, such as plain PHP: it needs no slot, no sandbox and no tools.
func (b *build) asItIs(ctx context.Context, use func(context.Context, Artefact) error) (err error) {
	b.report.Enter("prepare")
	b.warnOfVersions()
	b.dir = filepath.Join(b.c.Dir, "work", b.ID)
	b.work = filepath.Join(b.dir, "work")
	if err := removeTree(b.dir); err != nil { // of an attempt that a crash ended
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
	return b.handOver(ctx, use)
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

// carryOut is a build from its first stage to its last.
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
		a.Node = b.node()
		return use(ctx, a)
	})
}

func (b *build) warnOfVersions() {
	for _, text := range b.Plan.VersionWarnings(b.Env) {
		b.printf("warn", "%s", text)
	}
}

// release gives back what a build needed while its commands ran, and ends its log.
func (b *build) release() {
	b.giveBack()
	if b.log != nil {
		b.log.Close()
	}
}

// prepare checks the commit out, brings caches and tools, and gives it all to the
// site's uid. release is always to be called after it.
func (b *build) prepare(ctx context.Context) (err error) {
	b.dir = filepath.Join(b.c.Dir, "work", b.ID)
	b.work = cmp.Or(b.work, filepath.Join(b.dir, "work"))
	if err := removeTree(b.dir); err != nil { // of an attempt that a crash ended
		return fmt.Errorf("clear build directory: %w", err)
	}
	// The place of the commands is below it, but for a build that is alone.
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
	for _, dir := range []string{globalDir + "/bin", globalDir + "/lib", tempDir} { // npx wants the first two there
		if err := os.MkdirAll(filepath.Join(b.work, dir), 0o755); err != nil {
			return fmt.Errorf("make home: %w", err)
		}
	}
	if err := sandbox.Own(b.work, b.uid); err != nil {
		return err
	}
	// What caches hold is the uid's already: walking thousands of files again costs time.
	if err := b.cache.restore("home", b.work, homeDir, b.cacheFolders(true), b.uid); err != nil {
		return err
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
