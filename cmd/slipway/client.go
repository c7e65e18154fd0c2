//go:build !linux

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	"github.com/alecthomas/kong"

	"slipway/internal/client/cli"
	"slipway/packaging"
)

// commands is the command line on systems without a server: only the developers' commands. Each flag is also an
// environment variable, SLIPWAY_ and its name in capitals.
type commands struct {
	cli.Commands `embed:""`

	env *cli.Env // environment of a developer's command; nil before it runs

	Webhooks webhooksCommand `cmd:"" group:"Your sites" help:"Receive webhooks for local development."`
	Version  versionCommand  `cmd:"" group:"Your sites" help:"Print the version."`
}

// parser returns the parser of the command line.
func (c *commands) parser() (*kong.Kong, error) {
	return kong.New(c,
		kong.Name("slipway"),
		kong.Description("Drives a Slipway installation: your own Vercel, Netlify and managed WordPress."),
		kong.DefaultEnvars("SLIPWAY"),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
		kong.BindToProvider(c.environment),
	)
}

// lasting returns nil, since no command here runs for long.
func (c *commands) lasting(string) func(context.Context) error { return nil }

type versionCommand struct {
	JSON     bool `name:"json" env:"-" help:"Print the version as JSON." xor:"what"`
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
	return json.NewEncoder(os.Stdout).Encode(map[string]string{"version": version})
}
