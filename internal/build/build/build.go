// Package build owns building commits: it installs dependencies and runs the project's commands in a sandbox, and hands
// over their output.
//
// Run waits for a free slot, which owners share fairly, prepares a directory that belongs to the site's own uid, runs
// each command in a sandbox over the same files, and passes the artefact to its caller. When Run returns, every process
// of the build is dead. Its directory is then deleted and its caches are saved in the background. The package knows
// nothing of deployments: it is told what to build, and reports progress. It never publishes and never decides the kind
// of project.
package build

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"sync"

	"slipway/internal/platform/id"

	"slipway/internal/build/framework"
	"slipway/internal/build/root"
	"slipway/internal/build/toolchain"
	"slipway/internal/platform/db"
	"slipway/internal/platform/egress"
	"slipway/internal/platform/panics"
	"slipway/internal/platform/sandbox"
)

// Config says where builds run. Without a Runner and Elsewhere, builds are refused with Why.
type Config struct {
	DB        *db.DB
	Runner    sandbox.Runner
	Elsewhere Elsewhere // runs builds if this node can't make sandboxes. Optional: nil means here, with Runner.
	Why       string    // why neither is set
	Toolchain *toolchain.Toolchain
	Roots     *root.Roots    // tools that the host lacks. Optional: nil means the host's alone.
	Node      string         // for projects that name none, as toolchain.Want has it. Optional: empty means the server's own.
	Egress    *egress.Egress // the sandbox's network access. Optional: nil if the Runner needs none.
	Dir       string         // absolute, private: temporary directories and caches
	AtOnce    int            // concurrent builds. Optional: 0 means half the processors, at least one.
	Limits    sandbox.Limits // Optional: zero fields mean the sandbox's defaults.
	Disk      Disk           // its Lacks decides when caches are removed. Optional.
	Log       *slog.Logger   // Optional.
}

// Builds runs builds, at most AtOnce at a time.
type Builds struct {
	c     Config
	slots *slots
	busy  *busy

	sweeping sync.Mutex // only one goroutine makes room at a time

	ending panics.Background // saves and measures caches and deletes folders after builds
}

// New returns Builds. It starts nothing.
func New(c Config) *Builds {
	c.AtOnce = cmp.Or(c.AtOnce, max(1, runtime.NumCPU()/2))
	c.Limits = limits(c.Limits)
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	return &Builds{c: c, slots: newSlots(c.AtOnce), busy: newBusy()}
}

// Limits returns the limits of one stage of a build.
func (b *Builds) Limits() sandbox.Limits { return b.c.Limits }

// Why returns why builds are refused on this node, or "".
func (b *Builds) Why() string { return b.c.Why }

// Runner returns the sandboxes of builds; nil if builds are refused.
func (b *Builds) Runner() sandbox.Runner { return b.c.Runner }

// Roots returns the roots of builds and programs; nil if there are none.
func (b *Builds) Roots() *root.Roots { return b.c.Roots }

// Toolchain returns the tools of builds; nil if builds are refused.
func (b *Builds) Toolchain() *toolchain.Toolchain { return b.c.Toolchain }

// CodeFailed is the code of the fault of a build whose own commands failed.
const CodeFailed = "build_failed"

// Tree is the source of a build: a commit or an upload.
type Tree interface {
	ReadFile(ctx context.Context, name string, max int64) ([]byte, error)
	// Checkout writes the files to dir, which is empty or missing.
	Checkout(ctx context.Context, dir string) error
}

// Spec says what to build.
type Spec struct {
	ID         string   // unique among the builds of this node; names the directory
	Site       id.Site  // its uid and caches are used
	Owner      id.Owner // owners share the slots fairly
	Branch     string   // each branch has its own caches
	MaxCaches  *int64   // bytes of all caches of the owner's builds. Optional.
	ClearCache bool     // build without the cache
	ServerNode bool     // the site's live deployment has the server's Node.js, and keeps it unless ClearCache is set
	Tree       Tree
	Plan       framework.Plan // how to build it
	Env        map[string]string
	Secrets    []Secret // values that must not appear in the log

	Commands []string // commands that a program's release runs besides its start
	Whole    bool     // a program needs all files of the build
	Storage  []string // storage folders from the settings, relative to the plan's root
}

// Secret is a value to hide in logs, and the name of its variable, if any.
type Secret struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Disk reports the free space of the disk that holds the caches.
type Disk interface {
	// Lacks returns how many bytes must be freed; 0 means that there is enough room.
	Lacks() int64
}

// Report receives a build's progress. Line may be called from any goroutine; the others are called from the goroutine
// that called Run.
type Report interface {
	// Line reports a line of the build's log. raw is the line with terminal colors, or empty.
	Line(level, message, raw string)
	// Enter reports the beginning of a stage: queue, prepare, install, build or publish. Skip reports a stage that this
	// build doesn't need.
	Enter(stage string)
	Skip(stage string)
	// Wait reports the place in the queue for a slot (1 is next), and each change of it. Begin reports that the build
	// has a slot after a Wait.
	Wait(place int)
	Begin()
}

func printf(r Report, level, format string, args ...any) {
	r.Line(level, fmt.Sprintf(format, args...), "")
}

func (b *build) printf(level, format string, args ...any) { printf(b.report, level, format, args...) }

// Artefact is the result of a build. It exists until the function that receives it returns.
type Artefact struct {
	Files  *os.Root // the folder to publish or to run from
	Folder string   // its path in the repository; empty for the repository itself
	// Node is the version of Node.js that the build chose because the plan doesn't; empty means the server's.
	Node string
	// Makeshift reports that the artefact has the server's Node.js only because no other could be downloaded.
	Makeshift bool
	// Runtime and Start say how the artefact is served: as files or by a program.
	Runtime string
	Start   *framework.Start
	// Standalone is the folder of the standalone server that Next.js made, which Start starts; empty if there is none.
	Standalone string
	// Server is the built file that Start runs instead of the plan's command, relative to the plan's root. If it is
	// empty, Start runs the plan's command.
	Server string
	// Skip reports whether the program doesn't need a file or a whole folder. Optional.
	Skip func(name string) bool
	// Hidden reports whether the program, not the file server, answers for a file of Assets, given its URL path.
	// Optional.
	Hidden func(name string) bool
	// Assets lists folders, relative to Files, whose files are served before the program is asked.
	Assets []framework.AssetFolder
}

// Clear deletes the files of builds that a crash interrupted. Call it before the first build.
func (b *Builds) Clear() error {
	left, err := filepath.Glob(filepath.Join(b.c.Dir, "way-*"))
	for _, dir := range append(left, filepath.Join(b.c.Dir, "work")) {
		err = errors.Join(err, removeTree(dir))
	}
	if err == nil {
		err = b.distrust()
	}
	if err != nil {
		return fmt.Errorf("clear build directories: %w", err)
	}
	return nil
}
