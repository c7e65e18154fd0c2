//go:build linux

package main

import (
	"context"

	"slipway/internal/operator/flags"
	"slipway/internal/platform/process"
	"slipway/internal/server"
)

type serveCommand struct{ flags.Serve }

// Run serves until a signal.
func (s serveCommand) Run(ctx context.Context) error {
	process.Prepare()
	return server.Serve(ctx, s.Settings(version), nil)
}
