package server

import (
	"context"
	"log/slog"

	"slipway/internal/build/build"
	"slipway/internal/build/bundle"
	"slipway/internal/program/runtime"
)

// Elsewhere opens an engine that runs programs elsewhere than on this machine. The module cluster has one, for Kubernetes.
type Elsewhere interface {
	Open(ctx context.Context, n Node) (runtime.Host, error)
}

// Node is what an engine is told of the node that it runs programs for.
type Node struct {
	ID      string // among those of the installation
	Dir     string // of this machine, for what the engine keeps while it runs
	Redis   bool   // whether the operator names a Redis server
	CAFile  string // of roots that builds trust beside their own; empty for none
	Edge    string // where this machine's own sites answer over TLS, host:port
	Bundles *bundle.Bundles
	Users   runtime.Users
	Builds  *build.Builds // CarryOut has them carried out elsewhere, too
	Log     *slog.Logger
}
