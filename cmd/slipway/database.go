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
	Move    databaseMove    `cmd:"" help:"Copy the installation's database from SQLite to PostgreSQL, or back, and compare all rows. The old one stays as it is."`
	Compact databaseCompact `cmd:"" help:"Rewrite a SQLite database without its free space, and let it return free space by itself from then on."`
}

type databaseMove struct {
	flags.Data
	To string `env:"-" help:"The new database: the URL of an empty PostgreSQL database (postgres://…), or sqlite." required:"" placeholder:"URL"`
}

// Run moves the database of an installation that isn't served, and notes in the settings what to change.
func (d databaseMove) Run(ctx context.Context, settings flags.File) error {
	return admin.MoveDatabase(ctx, d.Store(), d.To, string(settings), stdout)
}

type databaseCompact struct{ flags.Data }

// Run rewrites the file.
func (d databaseCompact) Run(ctx context.Context) error {
	return admin.CompactDatabase(ctx, d.Store(), stdout)
}
