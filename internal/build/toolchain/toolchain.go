// Package toolchain owns the programs that builds need and the host lacks: versions of
// Node, and package managers.
//
// Ready answers with directories for the front of PATH and the read-only binds that
// show them. What the host has and what fits is used as it is. All else comes from the
// npm registry, once per installation: the host's own npm installs it inside the
// sandbox, under a uid that no site has and without running anybody's script; the bytes
// are then copied into a tree of ours, tried in another sandbox, and renamed into place.
// So a crash leaves nothing that looks whole, and no build can write to what another
// one runs. Builds that want the same wait for one download, in other processes too.
//
// The package never runs anything of the registry's outside a sandbox, never unpacks a
// stranger's archive itself, and never touches a tool that a build still uses.
package toolchain

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/cpu"

	"slipway/internal/platform/lease"
	"slipway/internal/platform/sandbox"
)

// Config says where tools are kept and how they are fetched.
type Config struct {
	// Dir is a directory of our own, absolute, that lasts; made when missing. Under
	// *sandbox.Plain, which shows no binds, a site's uid must be able to walk to it.
	Dir     string
	Sandbox sandbox.Runner
	// Network opens the way out for one run of npm, and the returned function closes it.
	// The registry is all that it need reach. Optional: nil is no way out, which only
	// *sandbox.Plain can do with.
	Network func(context.Context) (sandbox.Network, func(), error)
	// Registry is the URL of an npm registry. Optional: empty means npm's default.
	Registry string
	// CAFile is a PEM file of roots that npm trusts beside its own. Optional.
	CAFile string
	// UID runs npm and the trials. No site may have it. Required when we are root.
	UID int
	// Refresh is how long a range keeps what it resolved to. Optional: 0 means 7 days.
	Refresh time.Duration
	// MaxBytes is how much is kept before the least recently used tools go; those in use
	// stay whatever their size. Optional: 0 means 5 GB.
	MaxBytes int64
	Log      *slog.Logger // Optional.
}

// Want holds what a build asks for. Nothing asked for is nothing given.
type Want struct {
	Node           string // version, npm range, "lts/*", "lts/iron", "latest"; "" is the host's
	Manager        string // npm, pnpm, yarn, bun or ""
	ManagerVersion string // version or npm range; "" chooses one that fits the Node
	Apart          bool   // nothing of the host's: the sandbox has other programs and libraries
}

// Tools holds what a build gets. Release must be called when the build has ended.
type Tools struct {
	Path  []string       // directories as seen inside the sandbox, to put first in PATH, in this order
	Binds []sandbox.Bind // read-only
	// Env is KEY=value that keeps the managers from fetching other versions of themselves,
	// and makes what runs on Node trust Config.CAFile.
	Env []string
	// Node and Manager are the versions, without a "v"; "" where there is none.
	Node, Manager string

	leases []*taken
	host   bool // whether Node is the host's
}

// Release says that the build has ended, so that Sweep may take its tools. It may be
// called more than once.
func (t Tools) Release() {
	for _, l := range t.leases {
		l.release()
	}
}

// Toolchain keeps tools. It is safe for concurrent use, and several processes may share a Dir.
type Toolchain struct {
	c      Config
	locks  *lease.Locks
	arch   string // of Node's packages: x64 or arm64
	avx2   bool
	search []string // where the sandbox's PATH leads
	now    func() time.Time

	mu   sync.Mutex // guards host and seen
	host host
	seen string // what host was read from
}

// New prepares and starts nothing.
func New(c Config) (*Toolchain, error) {
	if !filepath.IsAbs(c.Dir) {
		return nil, fmt.Errorf("prepare toolchain: directory %q is not absolute", c.Dir)
	}
	if c.Sandbox == nil {
		return nil, errors.New("prepare toolchain: no sandbox")
	}
	if os.Geteuid() == 0 && c.UID <= 0 {
		return nil, errors.New("prepare toolchain: no uid to run npm under")
	}
	c.Refresh = cmp.Or(c.Refresh, 7*24*time.Hour)
	c.MaxBytes = cmp.Or(c.MaxBytes, 5<<30)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	// Dir first: as a parent it would get the mode of its child.
	for _, d := range []struct {
		name string
		mode os.FileMode
	}{{"", 0o755}, {"kept", 0o755}, {"new", 0o755}, {"work", 0o711}, {"lock", 0o700}, {"catalogue", 0o700}} {
		if err := os.MkdirAll(filepath.Join(c.Dir, d.name), d.mode); err != nil {
			return nil, fmt.Errorf("prepare toolchain: %w", err)
		}
	}
	dir, err := filepath.EvalSymlinks(c.Dir)
	if err != nil {
		return nil, fmt.Errorf("prepare toolchain: %w", err)
	}
	c.Dir = dir
	return &Toolchain{
		c: c, locks: lease.New(filepath.Join(dir, "lock")),
		arch: map[string]string{"amd64": "x64", "arm64": "arm64"}[runtime.GOARCH], avx2: cpu.X86.HasAVX2,
		search: slices.Clone(sandboxPath), now: time.Now,
	}, nil
}

// Ready finds or fetches what w asks for. say is called from this goroutine with what
// a reader of the build log should know; nil says nothing. The errors that a user can
// do something about are faults: Invalid for versions that don't exist, Unavailable
// when the registry or the server cannot do it now.
func (t *Toolchain) Ready(ctx context.Context, w Want, say func(format string, args ...any)) (_ Tools, err error) {
	if say == nil {
		say = func(string, ...any) {}
	}
	if w.Node == "" && w.Manager == "" {
		binds, env := t.trust()
		return Tools{Binds: binds, Env: env}, nil
	}
	var tools Tools
	fetched := false
	defer func() {
		if err != nil {
			tools.Release()
			return
		}
		if fetched {
			if e := t.Sweep(ctx, t.c.MaxBytes); e != nil && ctx.Err() == nil {
				t.c.Log.WarnContext(ctx, "toolchain not swept", "err", e)
			}
		}
	}()
	h, err := t.lookHost(ctx)
	if err != nil {
		return Tools{}, err
	}
	use := func(p pack, with Tools) error {
		l, isNew, err := t.obtain(ctx, p, with, say)
		if err != nil {
			return err
		}
		fetched = fetched || isNew
		inside := t.inside(p)
		tools.Path = append(tools.Path, filepath.Join(inside, "bin"))
		tools.Binds = append(tools.Binds, sandbox.Bind{Source: t.kept(p), Target: inside})
		tools.leases = append(tools.leases, l)
		return nil
	}

	if w.Apart && w.Node == "" {
		if w.Node, err = t.LTS(ctx, say); err != nil {
			return Tools{}, err
		}
	}
	node, own, err := t.chooseNode(ctx, w, h, say)
	if err != nil {
		return Tools{}, err
	}
	tools.Node, tools.host = node.String(), !own
	if own {
		if err := use(t.nodePack(node), Tools{}); err != nil {
			return Tools{}, err
		}
	}
	alone := tools // Node and nothing else: what a manager is tried with
	if w.Manager != "" {
		m, own, err := t.chooseManager(ctx, w, node, h, say)
		if err != nil {
			return Tools{}, err
		}
		tools.Manager = m.version.String()
		tools.Env = m.env()
		if own {
			if err := use(m, alone); err != nil {
				return Tools{}, err
			}
		}
	}
	if own && w.Manager != "npm" && (w.Apart || !h.npmRunsOn(node)) {
		// Scripts may call npm, and the host's npm doesn't run on this Node.
		m, _, err := t.chooseManager(ctx, Want{Manager: "npm", Apart: w.Apart}, node, h, say)
		if err == nil {
			err = use(m, alone)
		}
		if err != nil {
			return Tools{}, err
		}
	}
	// A build's own packages come the same way as the tools did.
	binds, env := t.trust()
	tools.Binds, tools.Env = append(tools.Binds, binds...), slices.Concat(tools.Env, env)
	return tools, nil
}
