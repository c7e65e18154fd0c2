// Package build owns turning a commit into an artefact: installing dependencies and running
// the project's own commands in a sandbox, and handing over their output.
//
// Run waits for a free slot, fairly between owners, prepares a directory that belongs to
// the site's own uid, runs each command in a sandbox of its own over the same files, and
// calls the caller with the artefact while it exists. When Run returns, every process of
// the build is dead; its directory goes and caches are saved for the site's next build meanwhile.
// The package knows nothing of deployments: callers tell it what to build, and it reports
// progress. It never publishes and never decides the kind of project.
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
	"slipway/internal/build/toolchain"
	"slipway/internal/platform/db"
	"slipway/internal/platform/egress"
	"slipway/internal/platform/panics"
	"slipway/internal/platform/sandbox"
)

// Config says what builds run in. Without a Runner and Elsewhere they are refused with Why.
type Config struct {
	DB        *db.DB
	Runner    sandbox.Runner
	Elsewhere Elsewhere // carries builds out where sandboxes can't be made. Optional: nil is here, by Runner.
	Why       string    // why there is neither
	Toolchain *toolchain.Toolchain
	Egress    *egress.Egress // the way out of a sandbox. Optional: nil where the Runner needs none.
	Dir       string         // absolute, ours: scratch directories and caches
	AtOnce    int            // Optional: 0 means half the processors, at least one
	Limits    sandbox.Limits // Optional: zero fields are the sandbox's defaults
	Disk      Disk           // for which caches make room. Optional.
	Log       *slog.Logger   // Optional.
}

// Builds runs builds, a fixed number at once.
type Builds struct {
	c     Config
	slots *slots
	busy  *busy

	sweeping sync.Mutex // one makes room at a time

	ending panics.Background // saves and measures caches and deletes folders, after their builds
}

// New returns Builds. It starts nothing.
func New(c Config) *Builds {
	c.AtOnce = cmp.Or(c.AtOnce, max(1, runtime.NumCPU()/2))
	c.Limits = limits(c.Limits)
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	return &Builds{c: c, slots: newSlots(c.AtOnce), busy: newBusy()}
}

// Limits returns what one stage of a build may use at most.
func (b *Builds) Limits() sandbox.Limits { return b.c.Limits }

// Why says in words why builds are refused on this node; empty: they are not.
func (b *Builds) Why() string { return b.c.Why }

// Runner returns what builds run in, nil where they are refused.
func (b *Builds) Runner() sandbox.Runner { return b.c.Runner }

// Toolchain returns the tools of builds, nil where they are refused.
func (b *Builds) Toolchain() *toolchain.Toolchain { return b.c.Toolchain }

// CodeFailed is the code of the fault of a build whose own commands failed.
const CodeFailed = "build_failed"

// Tree is what is built: a commit, or what was uploaded.
type Tree interface {
	ReadFile(ctx context.Context, name string, max int64) ([]byte, error)
	// Checkout writes it to a folder, which is empty or absent.
	Checkout(ctx context.Context, dir string) error
}

// Spec says what to build.
type Spec struct {
	ID         string         // unique among the builds that run here; names the directory
	Site       id.Site        // whose uid and whose caches
	Owner      id.Owner       // whose turn it is, among owners
	Branch     string         // a branch has caches of its own
	MaxCaches  *int64         // bytes that the caches of all of the owner's builds may take. Optional.
	ClearCache bool           // build as if for the first time
	Tree       Tree           // the commit
	Plan       framework.Plan // what to do with it
	Env        map[string]string
	Secrets    []Secret // values that never appear in the log

	Commands []string // what a program's release runs besides its start
	Whole    bool     // a program runs from all that the build left
	Storage  []string // folders of the project, relative to the plan's root, that the settings call storage
}

// Secret is a value to be hidden, with the name of its variable where it has one.
type Secret struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Disk is the disk that caches lie on.
type Disk interface {
	// Lacks returns how many bytes it lacks.
	Lacks() int64
}

// Report hears how a build goes. Line may be called from any goroutine, the others are called from
// the one that called Run.
type Report interface {
	// Line is a line of the build's log; raw has the terminal's colors, or is empty.
	Line(level, message, raw string)
	// Enter says that a stage begins: queue, prepare, install, build or publish. Skip says that this
	// build doesn't need one.
	Enter(stage string)
	Skip(stage string)
	// Wait says that no slot is free: its place in the queue, 1 being next; again when that changes.
	// Begin says that it has a slot after a Wait.
	Wait(place int)
	Begin()
}

func printf(r Report, level, format string, args ...any) {
	r.Line(level, fmt.Sprintf(format, args...), "")
}

func (b *build) printf(level, format string, args ...any) { printf(b.report, level, format, args...) }

// Artefact holds what a build has made. It exists until the function that got it returns.
type Artefact struct {
	Files  *os.Root // the folder to publish, or to run from
	Folder string   // its path in the repository; empty: the repository itself
	// Node is which version the build had of those that the plan leaves open; empty: the server's.
	Node string
	// Runtime and Start say how the artefact is served: as files, or by a program.
	Runtime string
	Start   *framework.Start
	// Standalone is the folder of the server that Next.js has made, which Start starts; empty: there is none.
	Standalone string
	// Server is the file that the build wrote and Start runs in place of what the plan says, relative to the plan's root. Empty means
	// that Start runs what the plan says.
	Server string
	// Skip reports whether a path, or a whole folder, is none of what a program runs from.
	// Optional.
	Skip func(name string) bool
	// Hidden reports whether a file of Assets, by the path at which it would be served, is
	// left to the program. Optional.
	Hidden func(name string) bool
	// Assets are folders, relative to Files, that are served as files before the program
	// is asked.
	Assets []framework.AssetFolder
}

// Clear removes what builds that a crash ended have left on disk. It is for the start,
// before the first build.
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
