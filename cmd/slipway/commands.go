//go:build linux

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	"github.com/alecthomas/kong"

	"slipway/internal/client/cli"
	"slipway/internal/operator/flags"
	"slipway/internal/operator/upgrade"
	"slipway/internal/platform/db"
	"slipway/packaging"
)

// commands is the command line. Each flag can also be set by an environment variable, SLIPWAY_ and its name in
// capitals, or in the file given by --config, in this order of precedence.
type commands struct {
	Config flags.File `help:"TOML configuration file. Its keys are the names of flags." type:"path" placeholder:"FILE"`

	cli.Commands `embed:""`

	env *cli.Env // environment of a developer's command; nil before it runs

	Serve    serveCommand    `cmd:"" group:"Operate" help:"Run the service."`
	Try      tryCommand      `cmd:"" group:"Operate" help:"Start an installation to look at, with a first user and a live site, until Ctrl-C."`
	User     userCommand     `cmd:"" group:"Operate" help:"Manage users."`
	Team     teamCommand     `cmd:"" group:"Operate" help:"Manage teams."`
	App      appCommand      `cmd:"" group:"Operate" help:"Manage OAuth apps."`
	SSO      ssoCommand      `cmd:"" group:"Operate" name:"sso" help:"Manage providers that people sign in with, such as Google or Okta."`
	Key      keyCommand      `cmd:"" group:"Operate" help:"Manage API keys."`
	Billing  billingCommand  `cmd:"" group:"Operate" help:"Manage plans, invoices and payments of an installation that sells hosting (slipway serve --billing)."`
	Node     nodeCommand     `cmd:"" group:"Operate" help:"Manage the nodes of an installation that several processes serve."`
	Runtimes runtimesCommand `cmd:"" group:"Operate" help:"Manage PHP versions and site generators that Slipway installs because the server lacks them."`
	Backup   backupCommand   `cmd:"" group:"Operate" help:"Back up and restore the whole installation."`
	GC       gcCommand       `cmd:"" group:"Operate" name:"gc" help:"Free disk space now: delete stored files that nothing refers to, and shrink the database. The service does so every hour."`
	Database databaseCommand `cmd:"" group:"Operate" help:"Manage the database of an installation whose service is stopped."`
	Webhooks webhooksCommand `cmd:"" group:"Operate" help:"Receive webhooks for local development."`
	CA       caCommand       `cmd:"" group:"Operate" name:"ca" help:"Manage the local certificate authority."`
	Upgrade  upgradeCommand  `cmd:"" group:"Operate" help:"Upgrade the program, and go back by itself if the new one does not work."`
	Setup    setupCommand    `cmd:"" group:"Operate" help:"Ask five questions, write the settings, make the first user."`
	Doctor   doctorCommand   `cmd:"" group:"Operate" help:"Check this machine: what works and what is missing."`
	Version  versionCommand  `cmd:"" group:"Operate" help:"Print the version."`
}

// parser returns the parser of the command line.
func (c *commands) parser() (*kong.Kong, error) {
	return kong.New(c,
		kong.Name("slipway"),
		kong.Description("Your own Vercel, Netlify and managed WordPress in one program."),
		kong.DefaultEnvars("SLIPWAY"),
		kong.Configuration(flags.TOML),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
		kong.BindToProvider(c.environment),
		kong.BindToProvider(func() (flags.File, error) { return c.Config, nil }),
	)
}

// lasting returns a function that runs a long-running command without kong, or nil for a short one: kong would keep the
// model of all commands in memory.
func (c *commands) lasting(command string) func(context.Context) error {
	if command == "serve" {
		return c.Serve.Run
	}
	return nil
}

type versionCommand struct {
	JSON     bool `name:"json" env:"-" help:"Print version and schema versions as JSON." xor:"what"`
	Licenses bool `env:"-" help:"Print the licenses of what is in the program." xor:"what"`
}

// Run prints the version, or the licenses.
func (v versionCommand) Run() error {
	if v.Licenses {
		_, err := fmt.Fprint(stdout, packaging.Licenses())
		return err
	}
	if !v.JSON {
		_, err := fmt.Fprintln(stdout, versionText())
		return err
	}
	schema, err := db.Newest()
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(upgrade.About{Version: version, Schema: schema, Oldest: db.OldestReader})
}
