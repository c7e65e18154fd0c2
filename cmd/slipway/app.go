//go:build linux

package main

import (
	"context"

	"slipway/internal/operator/admin"
	"slipway/internal/operator/flags"
)

type appCommand struct {
	List    appList    `cmd:"" help:"List OAuth apps and how many grants each has."`
	Disable appDisable `cmd:"" help:"Disable an OAuth app for everybody and revoke its access."`
	Enable  appEnable  `cmd:"" help:"Let people authorize a disabled app again."`
}

type appList struct{ flags.Data }

// Run lists the apps, also while the server runs.
func (a appList) Run(ctx context.Context) error { return admin.ListApps(ctx, a.Store(), stdout) }

type appDisable struct {
	flags.Data
	App string `help:"Client ID of the app." required:"" placeholder:"ID"`
}

// Run disables the app, also while the server runs.
func (a appDisable) Run(ctx context.Context) error {
	return admin.SetAppDisabled(ctx, a.Store(), a.App, true, stdout)
}

type appEnable struct {
	flags.Data
	App string `help:"Client ID of the app." required:"" placeholder:"ID"`
}

// Run enables the app, also while the server runs.
func (a appEnable) Run(ctx context.Context) error {
	return admin.SetAppDisabled(ctx, a.Store(), a.App, false, stdout)
}
