package server

import (
	"context"
	"log/slog"

	"slipway/internal/build/build"
	"slipway/internal/build/bundle"
	"slipway/internal/program/runtime"
)

// Elsewhere opens an engine that runs programs outside of this machine. The module cluster has one for Kubernetes.
type Elsewhere interface {
	Open(ctx context.Context, n Node) (runtime.Host, error)
}

// Node describes this node to such an engine.
type Node struct {
	ID      string // the node's id in the installation
	Dir     string // local directory for the engine's data while it runs
	Redis   bool   // the operator has configured a Redis server
	CAFile  string // file of additional roots for builds; empty if none
	Edge    string // host:port of this machine's sites over TLS
	Bundles *bundle.Bundles
	Users   runtime.Users
	Builds  *build.Builds // CarryOut makes it run builds elsewhere too
	Log     *slog.Logger
}
