//go:build linux

package main

import (
	"context"

	"slipway/internal/operator/admin"
	"slipway/internal/operator/flags"
	"slipway/internal/operator/recovery"
)

type gcCommand struct{ flags.Data }

// Run makes the running service collect garbage, and waits for it.
func (g gcCommand) Run(ctx context.Context) error { return recovery.Collect(ctx, g.Store(), stdout) }

type databaseCommand struct {
	Compact databaseCompact `cmd:"" help:"Rewrite a SQLite database without its free space, and let it return free space by itself from then on."`
}

type databaseCompact struct{ flags.Data }

// Run rewrites the file.
func (d databaseCompact) Run(ctx context.Context) error {
	return admin.CompactDatabase(ctx, d.Store(), stdout)
}
