package build

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"slipway/internal/build/buildlog"
	"slipway/internal/build/framework"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/id"
	"slipway/internal/platform/sandbox"
)

// Elsewhere runs builds outside this machine's sandboxes, in pods of a cluster. This package still decides about the
// order, the uid and the artefact (ADR 0044).
type Elsewhere interface {
	// Build builds t and reports its stages to r as a local build does. When it returns, the artefact's files are in
	// t.Output. Its result comes from an untrusted build and is checked here.
	Build(ctx context.Context, t Task, r Report) (Left, error)
}

// Task is a build that has a slot.
type Task struct {
	Job
	ID     string // unique among running builds
	Site   id.Site
	Owner  id.Owner
	Source string // folder of the checkout
	Output string // empty folder for the artefact's files
	// Cache is the file that keeps the cache of [Alone] between builds of the site and branch. Its format belongs to
	// the implementation. It may not exist yet.
	Cache string
}

// Job holds what the remote builder needs. It contains secrets.
type Job struct {
	UID      int               `json:"uid"` // the site's own
	Plan     framework.Plan    `json:"plan"`
	Env      map[string]string `json:"env"`
	Secrets  []Secret          `json:"secrets"`
	Commands []string          `json:"commands"`
	Whole    bool              `json:"whole"`
	Storage  []string          `json:"storage"`
	Server   bool              `json:"serverNode,omitempty"` // Spec.ServerNode and not Spec.ClearCache
	Limits   sandbox.Limits    `json:"limits"`
}

// Left describes the files of an artefact that was built elsewhere.
type Left struct {
	Folder     string                  `json:"folder"`
	Standalone string                  `json:"standalone"`
	Server     string                  `json:"server,omitempty"`
	Node       string                  `json:"node,omitempty"`
	Makeshift  bool                    `json:"makeshift,omitempty"`
	Assets     []framework.AssetFolder `json:"assets"`
}

// Left returns the description that a remote builder sends back.
func (a Artefact) Left() Left {
	return Left{a.Folder, a.Standalone, a.Server, a.Node, a.Makeshift, a.Assets}
}

// maxAssets caps the asset folders of an artefact from elsewhere.
const maxAssets = 100

// check refuses paths that lead out of the artefact.
func (l Left) check() error {
	local := func(name string) bool { return name == "" || filepath.IsLocal(name) }
	ok := local(l.Folder) && local(l.Standalone) && local(l.Server) && len(l.Assets) <= maxAssets
	for _, f := range l.Assets {
		ok = ok && local(f.Folder) && local(f.At)
	}
	if !ok {
		return fault.New(fault.Invalid, "output_missing", "There is nothing to publish", "the build's output can't be read")
	}
	return nil
}

// CarryOut makes e run all builds from now on. Call it before the first build.
func (b *Builds) CarryOut(e Elsewhere) { b.c.Elsewhere, b.c.Why = e, "" }

// elsewhere runs the build elsewhere and hands over the result.
func (b *build) elsewhere(ctx context.Context, use func(context.Context, Artefact) error) error {
	b.dir = filepath.Join(b.c.Dir, "work", b.ID)
	if err := removeTree(b.dir); err != nil { // of an attempt that a crash interrupted
		return fmt.Errorf("clear build directory: %w", err)
	}
	source, output := filepath.Join(b.dir, "source"), filepath.Join(b.dir, "output")
	if err := os.MkdirAll(b.dir, 0o700); err != nil {
		return fmt.Errorf("make build directory: %w", err)
	}
	if err := os.Mkdir(output, 0o700); err != nil {
		return fmt.Errorf("make build directory: %w", err)
	}
	if err := b.makeRoom(ctx); err != nil {
		return err
	}
	var err error
	if b.uid, err = b.uidOf(ctx, b.Site); err != nil {
		return err
	}
	if err := b.Tree.Checkout(ctx, source); err != nil {
		return fmt.Errorf("check out: %w", err)
	}
	if b.ClearCache {
		b.printf("info", "The cache was cleared")
		if err := b.cache.clear(); err != nil {
			return fmt.Errorf("clear cache: %w", err)
		}
	}
	if err := os.MkdirAll(b.cache.dir, 0o700); err != nil {
		return fmt.Errorf("make cache: %w", err)
	}
	b.saved = true
	left, err := b.c.Elsewhere.Build(ctx, Task{
		ID: b.ID, Site: b.Site, Owner: b.Owner, Source: source, Output: output, Cache: b.cache.path("pack"),
		Job: Job{
			UID: b.uid, Plan: b.Plan, Env: b.Env, Secrets: b.Secrets, Commands: b.Commands, Whole: b.Whole, Storage: b.Storage,
			Server: b.ServerNode && !b.ClearCache, Limits: b.c.Limits,
		},
	}, b.report)
	if err != nil {
		return err
	}
	if err := left.check(); err != nil {
		return err
	}
	root, err := os.OpenRoot(output)
	if err != nil {
		return fmt.Errorf("open output: %w", err)
	}
	defer root.Close()
	a := Artefact{
		Files: root, Folder: left.Folder, Node: b.Plan.Node, Runtime: b.Plan.Runtime, Start: b.Plan.Start, Assets: left.Assets,
		Makeshift: left.Makeshift,
	}
	if a.Node == "" && nodeVersion.MatchString(left.Node) {
		a.Node = left.Node
	}
	if left.Standalone != "" && b.Plan.Framework == "next" {
		a.Start, a.Standalone = startStandalone(left.Standalone), left.Standalone
	}
	if left.Server != "" && (b.Plan.Server != "" || a.Runtime == framework.Node) {
		a.Runtime, a.Start, a.Server = framework.Node, startServer(b.Plan.Root, left.Server), left.Server
	}
	if err := b.apache(&a); err != nil {
		return err
	}
	return use(ctx, a)
}

// Alone runs the only build of a place of its own, such as a pod, so it doesn't wait for a slot. Commands find their
// files in work. kept, on the same file system, has the caches of the site and branch, and is updated. c needs no DB
// and no Elsewhere.
func Alone(
	ctx context.Context, c Config, j Job, tree Tree, work, kept string, r Report, use func(context.Context, Artefact) error,
) error {
	c.Limits = j.Limits
	x := &build{
		Builds: New(c), report: r, work: work, uid: j.UID, cache: cache{kept},
		Spec: Spec{
			ID: "alone", Tree: tree, Plan: j.Plan, Env: j.Env, Secrets: slices.Clone(j.Secrets), Commands: j.Commands, Whole: j.Whole,
			Storage: j.Storage, ServerNode: j.Server,
		},
	}
	err := x.carryOut(ctx, use)
	x.end(ctx, err == nil)
	return err
}

// Ended returns the fault of a build that was stopped in a stage for exceeding a limit, in the words of a local build.
func (j Job) Ended(stage string, why sandbox.Reason) error {
	if stage != "install" {
		stage = "build"
	}
	return fault.New(fault.Invalid, CodeFailed, fmt.Sprintf("The %s did not finish", stage),
		buildlog.New(buildlog.Config{}).Cause(buildlog.Failure{
			ExitCode: 128 + int(unix.SIGKILL), OOM: why == sandbox.OutOfMemory, Killed: string(why), Stage: stage, Manager: j.Plan.Manager,
			MemoryLimit: j.Limits.Memory, DiskLimit: j.Limits.Disk, TimeLimit: j.Limits.Wall,
		}))
}
