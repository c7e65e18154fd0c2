// Command slipway-cluster is the service with the engine that runs programs on Kubernetes. For everything else,
// operators use the command slipway.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"

	"slipway/internal/operator/flags"
	"slipway/internal/platform/process"
	"slipway/internal/server"
	"slipway/packaging"
)

// version is set at build time.
var version = "dev"

// commands is the command line. As in slipway, each flag is also an environment variable and a key of the file given by
// --config.
type commands struct {
	Config  flags.File     `help:"TOML configuration file. Its keys are the names of flags." type:"path" placeholder:"FILE"`
	Serve   serveCommand   `cmd:"" help:"Run the service; programs run on Kubernetes."`
	Version versionCommand `cmd:"" help:"Print the version."`
}

type serveCommand struct {
	flags.Serve
	kubernetes
}

// Run serves until a signal arrives.
func (s serveCommand) Run(ctx context.Context) error {
	process.Prepare()
	return server.Serve(ctx, s.Settings(version), &s.kubernetes)
}

type versionCommand struct {
	Licenses bool `env:"-" help:"Print the licenses of what is in the program."`
}

func (v versionCommand) Run() error {
	if v.Licenses {
		_, err := fmt.Print(packaging.Licenses())
		return err
	}
	_, err := fmt.Println("slipway-cluster", version)
	return err
}

func main() { os.Exit(run(os.Args[1:])) }

func run(args []string) int {
	var c commands
	parser, err := kong.New(&c,
		kong.Name("slipway-cluster"),
		kong.Description("Slipway with programs on Kubernetes."),
		kong.DefaultEnvars("SLIPWAY"),
		kong.Configuration(flags.TOML),
	)
	if err == nil {
		var cmd *kong.Context
		if cmd, err = parser.Parse(args); err == nil {
			ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			context.AfterFunc(ctx, stop) // a second signal ends the process at once
			cmd.BindTo(ctx, (*context.Context)(nil))
			err = cmd.Run()
		}
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "slipway-cluster: %s\n", strings.Join(strings.Fields(err.Error()), " "))
		return 1
	}
	return 0
}
