//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"slipway/internal/operator/flags"
	"slipway/internal/operator/installation"
	"slipway/internal/operator/upgrade"
)

// releaseKeys holds the minisign public keys of releases, separated by commas. It is set by the build.
var releaseKeys = ""

type upgradeCommand struct {
	flags.Data
	Archive    string        `arg:"" optional:"" help:"The release: path or https:// address of slipway_VERSION_linux_ARCH.tar.gz, with SHA256SUMS and SHA256SUMS.minisig beside it."`
	ReleaseKey []string      `name:"release-key" help:"Public key of minisign whose releases are trusted, in addition to those built in. Repeatable." placeholder:"KEY"`
	SHA256     string        `name:"sha256" env:"-" help:"SHA-256 that the archive must have, in the place of a signature." placeholder:"HEX"`
	Check      bool          `env:"-" xor:"what" help:"Verify the release and say whether it can be upgraded to. Changes nothing."`
	Undo       bool          `env:"-" xor:"what" help:"Go back to the program before the last upgrade; for 7 days."`
	Continue   bool          `env:"-" xor:"what" help:"End an upgrade that was interrupted, as at the next start of the machine."`
	Package    bool          `env:"-" xor:"what" hidden:"" help:"Watch the program that a package has put in the place of this one. For its scripts."`
	Auto       string        `name:"auto" env:"-" xor:"what" help:"patch: upgrade to the newest release of the installed minor version, if there is a newer one; slipway-auto-upgrade.timer runs this at night." placeholder:"patch"`
	Releases   string        `name:"releases" help:"For --auto: folder or https:// address of releases, with a signed file 'versions' that lists them, a version a line." placeholder:"PLACE"`
	Service    string        `name:"service-command" help:"Command that controls the service; ACTION becomes stop, start or restart." default:"systemctl --no-block ACTION slipway.service" placeholder:"COMMAND"`
	ReadyIn    time.Duration `name:"ready-within" help:"How long the new program may take until it is ready." default:"60s"`
	Watch      time.Duration `name:"watch" help:"How long the new program is watched afterwards." default:"30s"`
	Listen     string        `help:"Address of the API, as for slipway serve." default:"127.0.0.1:8080" placeholder:"HOST:PORT"`
	EdgeHTTPS  *string       `name:"edge-https" help:"Address of sites over HTTPS, as for slipway serve (127.0.0.1:8443)." placeholder:"HOST:PORT"`
	SiteDomain string        `help:"Domain of sites, as for slipway serve." default:"localhost" placeholder:"DOMAIN"`
}

// Run upgrades the installed program.
func (u upgradeCommand) Run(ctx context.Context) error {
	program, err := os.Executable()
	if err == nil {
		program, err = filepath.EvalSymlinks(program)
	}
	if err != nil {
		return fmt.Errorf("find the installed program: %w", err)
	}
	edge := "127.0.0.1:8443"
	if u.EdgeHTTPS != nil {
		edge = *u.EdgeHTTPS
	}
	c := upgrade.Config{
		// The previous program performs the upgrade, since the new one may not work.
		Store: u.Store(), Program: strings.TrimSuffix(program, ".previous"), Control: u.Listen, Edge: edge, SiteDomain: u.SiteDomain,
		Service: u.Service, Image: installation.ImageFile, Start: u.ReadyIn, Watch: u.Watch, Out: os.Stdout,
	}
	from := upgrade.Source{Archive: u.Archive, SHA256: u.SHA256, Keys: slices.Concat(strings.Split(releaseKeys, ","), u.ReleaseKey)}
	switch {
	case u.Package:
		return c.Package(ctx)
	case (u.Undo || u.Continue || u.Auto != "") == (u.Archive != ""):
		return errors.New("name the release to upgrade to, or give --undo, --continue or --auto patch alone")
	case u.Auto != "" && u.Auto != "patch":
		return fmt.Errorf("--auto %s: patch is all that is upgraded to by itself", u.Auto)
	case u.Auto != "" && u.Releases == "":
		return errors.New("--auto needs --releases, or releases in the configuration file: where releases are")
	case u.Auto != "" && u.SHA256 != "":
		return errors.New("--auto trusts signatures alone: --sha256 names one release")
	case u.Auto != "":
		return c.Auto(ctx, u.Releases, from)
	case u.Undo:
		return c.Undo(ctx)
	case u.Continue:
		return c.Continue(ctx)
	case u.Check:
		return c.Check(ctx, from)
	}
	return c.Run(ctx, from)
}
