//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"slipway/internal/operator/config"
	"slipway/internal/operator/doctor"
	"slipway/internal/operator/setup"
	"slipway/packaging"
)

type setupCommand struct {
	File       string `env:"-" help:"File of settings to write. What it has beside the answers stays." default:"/etc/slipway/server.toml" type:"path" placeholder:"FILE"`
	SiteDomain string `name:"site-domain" help:"Domain of sites: each gets a name below it." placeholder:"DOMAIN"`
	BaseURL    string `name:"base-url" help:"Address of the dashboard, on another domain." placeholder:"URL"`
	Email      string `env:"-" help:"Email address of the first user and for the certificate authority." placeholder:"EMAIL"`
	SMTP       string `name:"smtp" help:"Mail server." placeholder:"HOST:PORT"`
	BackupTo   string `name:"backup-to" help:"Where backups go beside this machine." placeholder:"URL"`
	Yes        bool   `env:"-" short:"y" help:"Ask nothing."`
}

// Run asks for missing settings on a terminal.
func (c setupCommand) Run(ctx context.Context) error {
	info, err := os.Stdin.Stat()
	asking := err == nil && info.Mode()&os.ModeCharDevice != 0 && !c.Yes
	s := setup.Setup{
		File: c.File, New: packaging.Settings, Asking: asking, In: os.Stdin, Out: stdout,
		Given: setup.Answers{SiteDomain: c.SiteDomain, BaseURL: c.BaseURL, Email: c.Email, SMTP: c.SMTP, BackupTo: c.BackupTo},
	}
	answers, text, err := s.Ask()
	if err != nil {
		return err
	}
	settings, err := checkSettings(text)
	if err != nil {
		return fmt.Errorf("nothing was written: %w", err)
	}
	if err := s.Finish(ctx, settings.Store, answers, text); err != nil {
		return err
	}
	fmt.Println()
	sound := doctor.Print(ctx, settings.Store, settings.SMTP, doctor.Certificates{
		SiteDomain: settings.SiteDomain, Public: len(settings.ACMECA) > 0, DNS: settings.ACMEDNS != "",
	}, stdout)
	fmt.Println("\nNext:")
	if _, err := os.Stat("/run/systemd/system"); err == nil {
		fmt.Println("  systemctl enable --now slipway.socket slipway.service")
	} else {
		fmt.Printf("  slipway serve --config %s\n", c.File)
	}
	return sound
}

// checkSettings parses a settings file as slipway serve does.
func checkSettings(text string) (config.Settings, error) {
	dir, err := os.MkdirTemp("", "slipway-setup-")
	if err != nil {
		return config.Settings{}, err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "server.toml")
	// unsynced: scratch
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return config.Settings{}, err
	}
	var c commands
	parser, err := c.parser()
	if err == nil {
		_, err = parser.Parse([]string{"serve", "--config", file})
	}
	if err != nil {
		return config.Settings{}, err
	}
	return c.Serve.Settings(version).Check()
}
