//go:build linux

package main

import (
	"context"

	"slipway/internal/operator/admin"
)

type appCommand struct {
	List    appList    `cmd:"" help:"List OAuth apps and how many grants each has."`
	Disable appDisable `cmd:"" help:"Disable an OAuth app for everybody and revoke its access."`
	Enable  appEnable  `cmd:"" help:"Let people authorize a disabled app again."`
}

type appList struct{ common }

// Run lists the apps, also while the server runs.
func (a appList) Run(ctx context.Context) error { return admin.ListApps(ctx, a.store(), stdout) }

type appDisable struct {
	common
	App string `help:"Client ID of the app." required:"" placeholder:"ID"`
}

// Run disables the app, also while the server runs.
func (a appDisable) Run(ctx context.Context) error {
	return admin.SetAppDisabled(ctx, a.store(), a.App, true, stdout)
}

type appEnable struct {
	common
	App string `help:"Client ID of the app." required:"" placeholder:"ID"`
}

// Run enables the app, also while the server runs.
func (a appEnable) Run(ctx context.Context) error {
	return admin.SetAppDisabled(ctx, a.store(), a.App, false, stdout)
}
