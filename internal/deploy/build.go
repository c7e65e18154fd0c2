package deploy

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

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
	repoDir = "repo"
	homeDir = ".home"
)

// maxTransfer is what one build may send and receive.
const maxTransfer = 4 << 30

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
	if err := os.Mkdir(filepath.Join(b.work, homeDir), 0o755); err != nil {
		return cleanup, fmt.Errorf("make home: %w", err)
	}
	if err := b.cache.restore("home", b.work, homeDir, b.cacheFolders(true), b.uid); err != nil {
		return cleanup, err
	}
	if err := sandbox.Own(b.work, b.uid); err != nil {
		return cleanup, err
	}
	return cleanup, nil
}

// cacheFolders are the plan's folders to keep: those below HOME, or those in the
// repository, relative to it.
func (b *build) cacheFolders(home bool) []string {
	var out []string
	for _, f := range b.plan.Cache {
		rest, inHome := strings.CutPrefix(f, "~/")
		switch {
		case inHome && home:
			out = append(out, rest)
		case !inHome && !home:
			out = append(out, path.Join(b.plan.Root, f))
		}
	}
	return out
}

// environment makes what every command of the build sees, and the log that hides the
// secret part of it.
func (b *build) environment(ctx context.Context) error {
	vars, err := b.d.c.Sites.Variables(ctx, b.s.ID, "build")
	if err != nil {
		return err
	}
	env := map[string]string{
		"CI":                       "true",
		"SLIPWAY":                  "1",
		"SLIPWAY_SITE_ID":          string(b.s.ID),
		"SLIPWAY_SITE_NAME":        b.s.Name,
		"SLIPWAY_DEPLOYMENT":       string(b.x.ID),
		"SLIPWAY_BRANCH":           b.x.Branch,
		"SLIPWAY_COMMIT":           b.x.CommitHash,
		"SLIPWAY_URL":              b.d.c.Sites.URL(b.s.Slug),
		"SLIPWAY_DEPLOY_URL":       b.x.URL,
		"npm_config_fund":          "false",
		"npm_config_audit":         "false",
		"npm_config_progress":      "false",
		"NO_UPDATE_NOTIFIER":       "1",
		"NEXT_TELEMETRY_DISABLED":  "1",
		"ASTRO_TELEMETRY_DISABLED": "1",
		"FORCE_COLOR":              "1",
		"NODE_OPTIONS":             fmt.Sprintf("--max-old-space-size=%d", b.limits().Memory*3/4>>20),
	}
	maps.Copy(env, b.plan.Env)
	var secrets []string
	for _, v := range vars {
		env[v.Key] = v.Value
		if v.Secret {
			secrets = append(secrets, v.Value)
		}
	}
	if cred, err := b.d.c.Sites.CredentialOf(ctx, b.s.ID); err != nil {
		return err
	} else if cred != nil {
		secrets = append(secrets, cred.Token, cred.DeployKey)
	}
	for _, k := range slices.Sorted(maps.Keys(env)) {
		b.env = append(b.env, k+"="+env[k])
	}
	b.log = buildlog.New(buildlog.Config{Secrets: secrets, Line: func(l buildlog.Line) { b.p.line(l.Level, l.Message, l.Raw) }})
	return nil
}

func (b *build) limits() sandbox.Limits {
	l, def := b.d.c.Builds.Limits, sandbox.Defaults
	l.Memory = cmp.Or(l.Memory, def.Memory)
	l.Pids = cmp.Or(l.Pids, def.Pids)
	l.Disk = cmp.Or(l.Disk, def.Disk)
	l.Files = cmp.Or(l.Files, def.Files)
	l.Wall = cmp.Or(l.Wall, def.Wall)
	l.Output = cmp.Or(l.Output, def.Output)
	l.NoFile = cmp.Or(l.NoFile, def.NoFile)
	l.TmpSize = cmp.Or(l.TmpSize, def.TmpSize)
	return l
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

// Way opens the only way out of one sandbox: our proxy, on a socket in dir, which is
// ours and closed to others.
func (c Builds) Way(ctx context.Context, dir string) (sandbox.Network, func(), error) {
	name := filepath.Join(dir, "egress.sock")
	l, err := net.Listen("unix", name)
	if err != nil {
		return sandbox.Network{}, nil, fmt.Errorf("open the build's way out: %w", err)
	}
	if err := os.Chmod(name, 0o666); err != nil {
		l.Close()
		return sandbox.Network{}, nil, fmt.Errorf("open the build's way out: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	served := make(chan struct{})
	go func() {
		defer close(served)
		c.Egress.Proxy(egress.ProxyConfig{Quota: maxTransfer}).Serve(ctx, l)
	}()
	return sandbox.Network{Proxy: name}, func() { cancel(); <-served }, nil
}

// install brings the dependencies, or takes those of the last build where nothing that
// decides them has changed.
func (b *build) install(ctx context.Context, network sandbox.Network) error {
	if len(b.plan.Install) == 0 {
		b.p.skip("install")
		return nil
	}
	key, err := b.modulesKey()
	if err != nil {
		return err
	}
	kept, err := b.cache.takeKey()
	if err != nil {
		return err
	}
	if key != "" && key == kept {
		if err := b.cache.restore("modules", b.work, repoDir, b.plan.Modules, b.uid); err != nil {
			return err
		}
		b.p.Printf("info", "Dependencies are unchanged since the last build: installation skipped")
		b.p.skip("install")
		return nil
	}
	return b.run(ctx, network, "install", b.plan.Install, nil)
}

// modulesKey names everything that decides what an installation brings; empty where
// that can't be told.
func (b *build) modulesKey() (string, error) {
	if len(b.plan.Inputs) == 0 || len(b.plan.Modules) == 0 {
		return "", nil
	}
	root, err := os.OpenRoot(b.work)
	if err != nil {
		return "", fmt.Errorf("open checkout: %w", err)
	}
	defer root.Close()
	h := sha256.New()
	fmt.Fprintf(h, "%s\n%s\n%q\n%q\n", b.tools.Node, b.tools.Manager, b.plan.Install, b.plan.Modules)
	for _, name := range slices.Sorted(slices.Values(b.plan.Inputs)) {
		f, err := root.Open(path.Join(repoDir, name))
		if err != nil {
			return "", nil // a link out, or gone: install as if for the first time
		}
		fmt.Fprintf(h, "%q\n", name)
		_, err = io.Copy(h, io.LimitReader(f, 64<<20))
		f.Close()
		if err != nil {
			return "", nil
		}
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// run runs a stage's commands in order, each in a sandbox of its own over the same files.
func (b *build) run(ctx context.Context, network sandbox.Network, stage string, commands []framework.Command, extra map[string]string) error {
	if len(commands) == 0 {
		b.p.skip(stage)
		return nil
	}
	b.p.enter(stage, Building)
	if stage == "build" {
		if err := b.cache.restore("tree", b.work, repoDir, b.cacheFolders(false), b.uid); err != nil {
			return err
		}
	}
	limits := b.limits()
	stop := time.Now().Add(limits.Wall) // of the stage, not of each command
	for _, c := range commands {
		fmt.Fprintf(b.log.Stdout(), "$ %s\n", c) // through the log, for a command may spell a secret out
		limits.Wall = time.Until(stop)
		cmd := sandbox.Command{
			Argv: c.Argv, Dir: path.Join(sandbox.Root, repoDir, c.Dir), Env: b.commandEnv(c, extra), Work: b.work, Binds: b.tools.Binds,
			UID: b.uid, Network: network, Limits: limits, Stdout: b.log.Stdout(), Stderr: b.log.Stderr(),
		}
		if c.Shell != "" { // the user's own text, in the user's own sandbox
			cmd.Argv = []string{"/bin/sh", "-c", c.Shell}
		}
		res, err := b.d.c.Builds.Runner.Run(ctx, cmd)
		b.log.Flush()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			return fmt.Errorf("run %s: %w", stage, err)
		}
		if !res.OK() {
			return b.failed(stage, c, res, limits)
		}
	}
	return nil
}

func (b *build) commandEnv(c framework.Command, extra map[string]string) []string {
	var bins []string
	for _, dir := range []string{c.Dir, b.plan.Root, ""} {
		bins = append(bins, path.Join(sandbox.Root, repoDir, dir, "node_modules/.bin"))
	}
	bins = append(slices.Compact(bins), b.tools.Path...)
	env := slices.Clone(b.tools.Env)
	for k, v := range extra {
		env = append(env, k+"="+v)
	}
	env = append(env, b.env...)
	return append(env, "PATH="+strings.Join(append(bins, "/usr/local/bin", "/usr/bin", "/bin"), ":"))
}

// failed turns the end of a command into an excerpt of its log and a likely cause.
func (b *build) failed(stage string, c framework.Command, res sandbox.Result, limits sandbox.Limits) error {
	if lines := b.log.Excerpt(20); len(lines) > 0 {
		b.p.Printf("info", "From the output above:")
		for _, line := range lines {
			b.p.Printf("error", "%s", line)
		}
	}
	limit := b.limits()
	why := b.log.Cause(buildlog.Failure{
		ExitCode: res.ExitCode, OOM: res.OOM, Killed: string(res.Killed), Stage: stage, Manager: b.plan.Manager,
		MemoryLimit: limit.Memory, DiskLimit: limit.Disk, TimeLimit: limit.Wall,
	})
	message := fmt.Sprintf("The %s failed (%s)", stage, res)
	if res.Killed != sandbox.NotKilled { // the cause says by what
		message = fmt.Sprintf("The %s did not finish", stage)
	}
	return &fault.Error{Kind: fault.Invalid, Message: message, Details: why, Code: "build_failed"}
}

// publish finds the output folder and makes a release of it. Every process of the build
// is dead by now, so nothing moves under our hands.
func (b *build) publish(ctx context.Context) (release.Sealed, error) {
	folder, ok := b.output()
	if !ok {
		missing := path.Join(b.plan.Root, b.plan.Output)
		return release.Sealed{}, &fault.Error{Kind: fault.Invalid, Message: "There is nothing to publish", Code: "output_missing",
			Details: b.log.Cause(buildlog.Failure{Stage: "publish", Missing: missing, Found: b.found(), Manager: b.plan.Manager})}
	}
	root, err := os.OpenRoot(filepath.Join(b.work, repoDir, folder))
	if err != nil {
		return release.Sealed{}, fmt.Errorf("open output: %w", err)
	}
	defer root.Close()
	w, err := b.d.c.Releases.Begin(ctx, release.ID(b.s.LiveRelease))
	if err != nil {
		return release.Sealed{}, fmt.Errorf("begin release: %w", err)
	}
	defer w.Abort()
	if err := w.AddDir(ctx, root); err != nil {
		return release.Sealed{}, fmt.Errorf("collect output: %w", err)
	}
	return b.d.seal(ctx, w, folder, b.p)
}

// output is the plan's output folder, or the first of its candidates that is there.
func (b *build) output() (string, bool) {
	for _, f := range append([]string{b.plan.Output}, b.plan.OutputCandidates...) {
		// The way begins above the checkout: a build may put a link in its place, too.
		folder := path.Join(b.plan.Root, f)
		if !plainDir(b.work, path.Join(repoDir, folder)) {
			continue
		}
		if folder == "." {
			folder = ""
		}
		return folder, true
	}
	return "", false
}

// found lists folders that look like output, for a message that helps.
func (b *build) found() []string {
	var out []string
	for _, f := range []string{"dist", "build", "public", "out", "_site", ".output/public", "www", "site", "docs", "target"} {
		folder := path.Join(b.plan.Root, f)
		if plainDir(b.work, path.Join(repoDir, folder)) {
			out = append(out, folder)
		}
	}
	return out
}

// saveCaches keeps what the next build can use. A cache that can't be kept costs time,
// not the deployment. Of a build that failed or was canceled only the package stores are
// kept, whose tools check every entry: what else it leaves may be why it failed.
func (b *build) saveCaches(ctx context.Context, good bool) {
	err := b.cache.save("home", b.work, homeDir, b.cacheFolders(true))
	var key string
	if err == nil && good {
		if err = b.cache.save("tree", b.work, repoDir, b.cacheFolders(false)); err == nil {
			key, err = b.modulesKey()
		}
	}
	if err == nil && key != "" {
		if err = b.cache.save("modules", b.work, repoDir, b.plan.Modules); err == nil {
			err = b.cache.keep(key)
		}
	}
	if err == nil {
		err = b.cache.touch()
	}
	if err != nil {
		b.d.c.Log.WarnContext(ctx, "build cache not kept", "site", b.s.ID, "err", err)
	}
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
