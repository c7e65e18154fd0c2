package server

import (
	"context"
	"path/filepath"
	"time"

	"slipway/internal/build/build"
	"slipway/internal/build/bundle"
	"slipway/internal/deploy/screenshot"
	"slipway/internal/edge/ports"
	"slipway/internal/operator/installation"
	"slipway/internal/platform/egress"
	"slipway/internal/platform/sandbox"
	"slipway/internal/program/runtime"
	"slipway/internal/program/wpcli"
)

// openBuilds opens what runs builds and programs: an external engine, or the sandbox on this machine. The engine is nil
// without a sandbox, because programs couldn't be isolated.
func (h *node) openBuilds(
	ctx context.Context, out *egress.Egress, bundles *bundle.Bundles, l *ports.Ports, elsewhere Elsewhere,
) (*build.Builds, error) {
	s := h.s
	dir := s.Path("builds")
	builds, err := build.Open(ctx, build.OpenConfig{
		Config: build.Config{
			DB: h.DB, Log: s.Log, Egress: out, Dir: dir, AtOnce: s.Builds, Disk: s.Store, Node: s.Node,
			Limits: sandbox.Limits{Memory: int64(s.BuildMemory) << 20, Disk: int64(s.BuildDisk) << 20, Wall: s.BuildTime},
		},
		Insecure: s.InsecureBuilds,
		ProbeUID: installation.ProbeUID,
		ToolUID:  installation.ToolUID,
		Mirror:   s.DebianMirror,
		CAFile:   s.OutboundCAFile,
	})
	if err != nil {
		return nil, err
	}
	if elsewhere != nil {
		h.engine, err = elsewhere.Open(ctx, Node{
			ID: h.self.ID(), Dir: filepath.Join(dir, "programs"), CAFile: s.OutboundCAFile, Edge: l.Local(), Redis: s.Redis != "",
			Bundles: bundles, Users: builds, Builds: builds, Log: s.Log,
		})
	}
	if why := builds.Why(); why != "" && err == nil { // an external engine may still run builds
		s.Log.WarnContext(ctx, "builds are refused; slipway doctor shows more", "why", why)
	}
	if elsewhere != nil {
		return builds, err
	}
	if s.InsecureBuilds || builds.Why() != "" {
		return builds, nil
	}
	h.camera = &screenshot.Camera{
		Runner: builds.Runner(), Browser: screenshot.Find(s.Browser), Dir: filepath.Join(dir, "screenshots"), Edge: l.Local(),
	}
	var lease runtime.Lease // a single node needs no lease
	if !h.DB.Single() {
		lease = h.self
	}
	engine, err := runtime.NewProcesses(runtime.Config{
		Runner:     builds.Runner(),
		Bundles:    bundles,
		Toolchain:  builds.Toolchain(),
		Roots:      builds.Roots(),
		Egress:     out,
		Dir:        filepath.Join(dir, "programs"),
		Users:      builds,
		Edge:       l.Local(),
		Redis:      s.RedisServer,
		RedisNamed: s.Redis != "",
		WPCLI: wpcli.New(wpcli.Config{
			Source: s.WPCLI, Dir: filepath.Join(dir, "wp-cli"), Out: out.Client(5 * time.Minute), Log: s.Log,
		}),
		Storage: h.volume.Dir(),
		Volume:  h.volume,
		Lease:   lease,
		Log:     s.Log,
	})
	if err != nil {
		return nil, err
	}
	h.engine = engine
	return builds, nil
}
