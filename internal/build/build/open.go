package build

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"slipway/internal/build/root"
	"slipway/internal/build/toolchain"
	"slipway/internal/platform/egress"
	"slipway/internal/platform/sandbox"
)

// OpenConfig says how builds run on this host. Open sets Config's Runner, Toolchain and Why.
type OpenConfig struct {
	Config
	Insecure bool   // no sandbox: every build can read what Slipway can
	ProbeUID int    // uid of the test of the sandbox
	ToolUID  int    // uid that unpacks tools
	Mirror   string // of Debian, for roots. Optional: empty means Debian's own.
	CAFile   string // additional root certificates for downloads of tools. Optional.
}

// Open returns Builds for this host. If the sandbox isn't safe here, builds are refused with the reason, and everything
// else works.
func Open(ctx context.Context, o OpenConfig) (*Builds, error) {
	c := o.Config
	s := sandbox.Config{Dir: filepath.Join(c.Dir, "sandbox"), Log: c.Log}
	if o.Insecure {
		c.Log.WarnContext(ctx, "builds run without a sandbox: every site's build can read what slipway can")
		plain, err := sandbox.NewPlain(s)
		if err != nil {
			return nil, err
		}
		if err := plain.Reap(ctx); err != nil {
			return nil, err
		}
		c.Runner = plain
	} else {
		walled, err := sandbox.New(s)
		if err != nil {
			return nil, err
		}
		if err := walled.Reap(ctx); err != nil {
			return nil, err
		}
		c.Why = lacking(sandbox.Probe(ctx, s, o.ProbeUID))
		if c.Why != "" {
			return New(c), nil
		}
		c.Runner = walled
		sandbox.Prefer(c.Log)
	}
	var err error
	if !o.Insecure {
		c.Roots, err = root.New(root.Config{
			Dir: filepath.Join(c.Dir, "roots"), Sandbox: c.Runner, UID: o.ToolUID, Mirror: o.Mirror, Log: c.Log,
		})
		if err != nil {
			return nil, err
		}
	}
	c.Toolchain, err = toolchain.New(toolchain.Config{
		Dir:     filepath.Join(c.Dir, "tools"),
		Sandbox: c.Runner,
		UID:     o.ToolUID,
		CAFile:  o.CAFile,
		Log:     c.Log,
		Network: func(ctx context.Context) (sandbox.Network, func(), error) { return toolNetwork(ctx, c.Egress, c.Dir) },
	})
	if err != nil {
		return nil, err
	}
	builds := New(c)
	return builds, builds.Clear()
}

// toolNetwork opens the network access for downloading tools, which isn't part of any build.
func toolNetwork(ctx context.Context, out *egress.Egress, dir string) (sandbox.Network, func(), error) {
	own, err := os.MkdirTemp(dir, "way-*")
	if err != nil {
		return sandbox.Network{}, nil, err
	}
	network, done, err := Network(ctx, out, own, func(string) {})
	if err != nil {
		return sandbox.Network{}, nil, errors.Join(err, os.RemoveAll(own))
	}
	return network, func() { done(); os.RemoveAll(own) }, nil
}

// lacking returns why builds wouldn't be safe on this host, or "".
func lacking(report sandbox.Report) string {
	var out []string
	for _, c := range report {
		if c.Required && !c.OK {
			out = append(out, c.Detail)
		}
	}
	return strings.Join(out, " ")
}
