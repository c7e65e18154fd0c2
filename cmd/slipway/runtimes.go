//go:build linux

package main

import (
	"context"

	"slipway/internal/operator/admin"
	"slipway/internal/operator/flags"
)

type runtimesCommand struct {
	List    runtimesList    `cmd:"" help:"List PHP versions and site generators that Slipway can install on this node, and those that are installed."`
	Install runtimesInstall `cmd:"" help:"Install runtimes ahead of the first site that needs them."`
	Update  runtimesUpdate  `cmd:"" help:"Install the newest packages of all installed runtimes. The service does so every week."`
	Remove  runtimesRemove  `cmd:"" help:"Remove a runtime that nothing uses. The next site that needs it installs it again."`
}

type runtimesList struct{ flags.Data }

// Run lists the runtimes of this node.
func (r runtimesList) Run() error { return admin.ListRuntimes(r.Store(), stdout) }

// mirrored are commands that install packages.
type mirrored struct {
	flags.Data
	DebianMirror string `name:"debian-mirror" help:"Mirror of Debian. Default: http://deb.debian.org/debian." placeholder:"URL"`
}

type runtimesInstall struct {
	mirrored
	Names []string `arg:"" name:"name" help:"Names of runtimes, such as php8.4."`
}

// Run installs the runtimes.
func (r runtimesInstall) Run(ctx context.Context) error {
	return admin.InstallRuntimes(ctx, r.Store(), r.Names, r.DebianMirror, stdout)
}

type runtimesUpdate struct{ mirrored }

// Run updates all installed runtimes.
func (r runtimesUpdate) Run(ctx context.Context) error {
	return admin.UpdateRuntimes(ctx, r.Store(), r.DebianMirror, stdout)
}

type runtimesRemove struct {
	flags.Data
	Name string `arg:"" help:"Name of the runtime."`
}

// Run removes the runtime.
func (r runtimesRemove) Run(ctx context.Context) error {
	return admin.RemoveRuntime(ctx, r.Store(), r.Name, stdout)
}
