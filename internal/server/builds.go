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
	"slipway/internal/db"
	"slipway/internal/egress"
	"slipway/internal/runtime"
	"slipway/internal/sandbox"
	"slipway/internal/toolchain"
)

// The uids below those that sites get: one fetches Node and package managers, one tries
// the sandbox out.
const (
	toolUID  = 199_999
	probeUID = 199_998
)

// programWays are where programs get to beside public addresses.
type programWays struct {
	database func(site string) (string, error)
	edge     string // host:port; empty: no edge here
	mail     func(ctx context.Context, site string, l net.Listener)
}

// builds makes what builds run in. A host where the sandbox doesn't hold refuses builds,
// with the reason, and serves everything else. The engine runs programs in the same
// sandbox; it is nil where there is none.
func (s settings) builds(ctx context.Context, database *db.DB, out *egress.Egress, bundles *bundle.Bundles, ways programWays) (*build.Builds, *runtime.Processes, error) {
	dir, err := filepath.Abs(s.path("builds"))
	if err != nil {
		return nil, nil, fmt.Errorf("data directory: %w", err)
	}
	b := build.Config{DB: database, Log: s.Log, Egress: out, Dir: dir, AtOnce: s.Builds, Lacks: s.lacks,
		Limits: sandbox.Limits{Memory: int64(s.BuildMemory) << 20, Wall: s.BuildTime}}
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
		if b.Why = lacking(sandbox.Probe(ctx, c, probeUID)); b.Why != "" {
			s.Log.WarnContext(ctx, "builds are refused; slipway doctor shows more", "why", b.Why)
			return build.New(b), nil, nil
		}
		b.Runner = walled
	}
	tools := toolchain.Config{Dir: filepath.Join(dir, "tools"), Sandbox: b.Runner, UID: toolUID, CAFile: s.OutboundCAFile, Log: s.Log,
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
		Dir: filepath.Join(dir, "programs"), UID: builds.UID, Database: ways.database, Edge: ways.edge, Mail: ways.mail, Storage: filepath.Join(filepath.Dir(dir), "storage"), Log: s.Log})
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
