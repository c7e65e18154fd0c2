package server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"slipway/internal/deploy"
	"slipway/internal/egress"
	"slipway/internal/sandbox"
	"slipway/internal/toolchain"
)

// The uids below those that sites get: one fetches Node and package managers, one tries
// the sandbox out.
const (
	toolUID  = 199_999
	probeUID = 199_998
)

// builds makes what builds run in. A host where the sandbox doesn't hold refuses builds,
// with the reason, and serves everything else.
func (s settings) builds(ctx context.Context, out *egress.Egress) (deploy.Builds, error) {
	dir, err := filepath.Abs(s.path("builds"))
	if err != nil {
		return deploy.Builds{}, fmt.Errorf("data directory: %w", err)
	}
	b := deploy.Builds{Egress: out, Dir: dir, AtOnce: s.Builds,
		Limits: sandbox.Limits{Memory: int64(s.BuildMemory) << 20, Wall: s.BuildTime}}
	c := sandbox.Config{Dir: filepath.Join(dir, "sandbox"), Log: s.Log}
	if s.InsecureBuilds {
		s.Log.WarnContext(ctx, "builds run without a sandbox: every site's build can read what slipway can")
		plain, err := sandbox.NewPlain(c)
		if err != nil {
			return deploy.Builds{}, err
		}
		if err := plain.Reap(ctx); err != nil {
			return deploy.Builds{}, err
		}
		b.Runner = plain
	} else {
		walled, err := sandbox.New(c)
		if err != nil {
			return deploy.Builds{}, err
		}
		if err := walled.Reap(ctx); err != nil {
			return deploy.Builds{}, err
		}
		if b.Why = lacking(sandbox.Probe(ctx, c, probeUID)); b.Why != "" {
			s.Log.WarnContext(ctx, "builds are refused; slipway doctor shows more", "why", b.Why)
			return b, nil
		}
		b.Runner = walled
	}
	if err := b.Clear(); err != nil {
		return deploy.Builds{}, err
	}
	tools := filepath.Join(dir, "tools")
	b.Toolchain, err = toolchain.New(toolchain.Config{Dir: tools, Sandbox: b.Runner, UID: toolUID, CAFile: s.OutboundCAFile, Log: s.Log,
		Network: func(ctx context.Context) (sandbox.Network, func(), error) {
			own, err := os.MkdirTemp(dir, "way-*")
			if err != nil {
				return sandbox.Network{}, nil, err
			}
			network, done, err := b.Way(ctx, own)
			if err != nil {
				return sandbox.Network{}, nil, errors.Join(err, os.RemoveAll(own))
			}
			return network, func() { done(); os.RemoveAll(own) }, nil
		}})
	return b, err
}

// lacking says what keeps builds from being safe here; empty when nothing does.
func lacking(report sandbox.Report) string {
	var out []string
	for _, c := range report {
		if c.Required && !c.OK {
			out = append(out, c.Detail)
		}
	}
	return strings.Join(out, " ")
}
