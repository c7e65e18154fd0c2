package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"

	"slipway/internal/build"
	"slipway/internal/bundle"
	"slipway/internal/config"
	"slipway/internal/db"
	"slipway/internal/egress"
	"slipway/internal/installation"
	"slipway/internal/runtime"
	"slipway/internal/sandbox"
	"slipway/internal/toolchain"
)

// programWays are where programs get to beside public addresses.
type programWays struct {
	database func(ctx context.Context, s runtime.Spec) (socket string, done func(), err error)
	edge     string // host:port; empty: no edge here
	mail     func(ctx context.Context, site string, l net.Listener)
	changed  func(site string)
}

// openBuilds makes what builds run in. A host where the sandbox doesn't hold refuses builds,
// with the reason, and serves everything else. The engine runs programs in the same
// sandbox; it is nil where there is none.
func openBuilds(ctx context.Context, s config.Settings, database *db.DB, out *egress.Egress, bundles *bundle.Bundles, ways programWays) (*build.Builds, *runtime.Processes, error) {
	dir, err := filepath.Abs(s.Path("builds"))
	if err != nil {
		return nil, nil, fmt.Errorf("data directory: %w", err)
	}
	b := build.Config{DB: database, Log: s.Log, Egress: out, Dir: dir, AtOnce: s.Builds, Lacks: s.Lacks,
		Limits: sandbox.Limits{Memory: int64(s.BuildMemory) << 20, Disk: int64(s.BuildDisk) << 20, Wall: s.BuildTime}}
	c := sandbox.Config{Dir: filepath.Join(dir, "sandbox"), Log: s.Log}
	if s.InsecureBuilds {
		s.Log.WarnContext(ctx, "builds run without a sandbox: every site's build can read what slipway can")
		plain, err := sandbox.NewPlain(c)
		if err != nil {
			return nil, nil, err
		}
		if err := plain.Reap(ctx); err != nil {
			return nil, nil, err
		}
		b.Runner = plain
	} else {
		walled, err := sandbox.New(c)
		if err != nil {
			return nil, nil, err
		}
		if err := walled.Reap(ctx); err != nil {
			return nil, nil, err
		}
		if b.Why = lacking(sandbox.Probe(ctx, c, installation.ProbeUID)); b.Why != "" {
			s.Log.WarnContext(ctx, "builds are refused; slipway doctor shows more", "why", b.Why)
			return build.New(b), nil, nil
		}
		b.Runner = walled
		sandbox.Prefer(s.Log)
	}
	tools := toolchain.Config{Dir: filepath.Join(dir, "tools"), Sandbox: b.Runner, UID: installation.ToolUID, CAFile: s.OutboundCAFile, Log: s.Log,
		Network: func(ctx context.Context) (sandbox.Network, func(), error) { return toolNetwork(ctx, out, dir) }}
	if b.Toolchain, err = toolchain.New(tools); err != nil {
		return nil, nil, err
	}
	builds := build.New(b)
	if err := builds.Clear(); err != nil {
		return nil, nil, err
	}
	if s.InsecureBuilds {
		return builds, nil, nil // without a sandbox nothing of a program is its own
	}
	engine, err := runtime.NewProcesses(runtime.Config{Runner: b.Runner, Bundles: bundles, Toolchain: b.Toolchain, Egress: out,
		Dir: filepath.Join(dir, "programs"), UID: builds.UID, Database: ways.database, Edge: ways.edge, Mail: ways.mail, Redis: s.RedisServer, WPCLI: s.WPCLI, Changed: ways.changed, Storage: filepath.Join(filepath.Dir(dir), "storage"), Log: s.Log})
	return builds, engine, err
}

// toolNetwork opens the way out for a download of tools, which belongs to no build.
func toolNetwork(ctx context.Context, out *egress.Egress, dir string) (sandbox.Network, func(), error) {
	own, err := os.MkdirTemp(dir, "way-*")
	if err != nil {
		return sandbox.Network{}, nil, err
	}
	network, done, err := build.Network(ctx, out, own, func(string) {})
	if err != nil {
		return sandbox.Network{}, nil, errors.Join(err, os.RemoveAll(own))
	}
	return network, func() { done(); os.RemoveAll(own) }, nil
}

// lacking returns why builds can't be safe here; empty when they can.
func lacking(report sandbox.Report) string {
	var out []string
	for _, c := range report {
		if c.Required && !c.OK {
			out = append(out, c.Detail)
		}
	}
	return strings.Join(out, " ")
}
