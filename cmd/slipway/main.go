// Command slipway is the whole program: the server and its command line.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"

	"slipway/internal/client/cli"
	"slipway/internal/operator/upgrade"
	"slipway/internal/platform/db"
)

// version is set by the build.
var version = "dev"

// commands is the command line. Each flag is also an environment variable, SLIPWAY_ and
// its name in capitals, and a key of the file given by --config, in that order.
type commands struct {
	Config configFile `help:"TOML configuration file. Its keys are the names of flags." type:"path" placeholder:"FILE"`

	cli.Commands `embed:""`

	Serve    serveCommand    `cmd:"" group:"Operate" help:"Run the service."`
	User     userCommand     `cmd:"" group:"Operate" help:"Manage users."`
	Team     teamCommand     `cmd:"" group:"Operate" help:"Manage teams."`
	App      appCommand      `cmd:"" group:"Operate" help:"Manage OAuth apps."`
	SSO      ssoCommand      `cmd:"" group:"Operate" name:"sso" help:"Manage providers that people sign in with, such as Google or Okta."`
	Key      keyCommand      `cmd:"" group:"Operate" help:"Manage API keys."`
	Billing  billingCommand  `cmd:"" group:"Operate" help:"Manage plans, invoices and payments of an installation that sells hosting (slipway serve --billing)."`
	Node     nodeCommand     `cmd:"" group:"Operate" help:"Manage the nodes of an installation that several processes serve."`
	Backup   backupCommand   `cmd:"" group:"Operate" help:"Back up and restore the whole installation."`
	Webhooks webhooksCommand `cmd:"" group:"Operate" help:"Receive webhooks for local development."`
	CA       caCommand       `cmd:"" group:"Operate" name:"ca" help:"Manage the local certificate authority."`
	Upgrade  upgradeCommand  `cmd:"" group:"Operate" help:"Upgrade the program, and go back by itself if the new one does not work."`
	Setup    setupCommand    `cmd:"" group:"Operate" help:"Ask five questions, write the settings, make the first user."`
	Doctor   doctorCommand   `cmd:"" group:"Operate" help:"Check this machine: what works and what is missing."`
	Version  versionCommand  `cmd:"" group:"Operate" help:"Print the version."`
}

func main() {
	os.Exit(run(os.Args[1:]))
}

func run(args []string) int {
	var c commands
	parser, err := c.parser()
	if err != nil {
		return complain(err)
	}
	if len(args) > 0 && args[0] == "help" { // as git and go have it
		args = append(args[1:], "--help")
	}
	if len(args) == 1 && args[0] == "--version" { // as most programs have it
		args = []string{"version"}
	}
	cmd, err := parser.Parse(args)
	if err != nil {
		return complain(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends it at once
	cmd.BindTo(ctx, (*context.Context)(nil))
	if err := cmd.Run(); err != nil {
		return complain(err)
	}
	return 0
}

// parser returns what reads the command line into c.
func (c *commands) parser() (*kong.Kong, error) {
	return kong.New(c,
		kong.Name("slipway"),
		kong.Description("Your own Vercel, Netlify and managed WordPress in one program."),
		kong.DefaultEnvars("SLIPWAY"),
		kong.Configuration(tomlFile),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
		kong.BindToProvider(cli.System),
	)
}

// complain says in one line what went wrong.
func complain(err error) int {
	line := strings.Join(strings.Fields(err.Error()), " ")
	var p *kong.ParseError
	if errors.As(err, &p) {
		fmt.Fprintf(os.Stderr, "slipway: %s; run slipway --help for usage\n", line)
		return 2
	}
	fmt.Fprintf(os.Stderr, "slipway: %s\n", line)
	var f *cli.Failure
	if errors.As(err, &f) {
		return f.ExitCode()
	}
	return 1
}

type versionCommand struct {
	JSON bool `name:"json" env:"-" help:"Print version and schema versions as JSON."`
}

// Run prints the version.
func (v versionCommand) Run() error {
	if !v.JSON {
		fmt.Println(versionText())
		return nil
	}
	schema, err := db.Newest()
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(upgrade.About{Version: version, Schema: schema, Oldest: db.OldestReader})
}

// versionText returns the output of `slipway version`: version, commit and its date, where the build knows them.
func versionText() string {
	from := ""
	if info, ok := debug.ReadBuildInfo(); ok {
		of := map[string]string{}
		for _, s := range info.Settings {
			of[s.Key] = s.Value
		}
		if commit := of["vcs.revision"]; commit != "" {
			from = " (" + commit[:min(12, len(commit))]
			if day, _, ok := strings.Cut(of["vcs.time"], "T"); ok { // RFC 3339
				from += ", " + day
			}
			from += ")"
		}
	}
	return fmt.Sprintf("slipway %s%s, %s, %s/%s", version, from, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
