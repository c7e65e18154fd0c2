//go:build linux

package main

import (
	"context"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/term"

	"slipway/examples"
	"slipway/internal/operator/try"
	"slipway/internal/platform/process"
	"slipway/internal/server"
)

type tryCommand struct {
	DataDir   string `help:"Folder for everything that it makes." default:"slipway-data" placeholder:"DIR"`
	Listen    string `help:"Address of the API and dashboard." default:"127.0.0.1:8080" placeholder:"HOST:PORT"`
	EdgeHTTP  string `name:"edge-http" help:"Address of sites over HTTP." default:"127.0.0.1:8081" placeholder:"HOST:PORT"`
	EdgeHTTPS string `name:"edge-https" help:"Address of sites over HTTPS." default:"127.0.0.1:8443" placeholder:"HOST:PORT"`
}

// Run serves until a signal, with the settings of slipway serve except for those given.
func (t tryCommand) Run(ctx context.Context) error {
	process.Prepare()
	var c commands
	parser, err := c.parser()
	if err != nil {
		return err
	}
	root, err := filepath.Abs(filepath.Join(t.DataDir, "try"))
	if err != nil {
		return err
	}
	if _, err := parser.Parse([]string{
		"serve", "--data-dir", t.DataDir, "--listen", t.Listen, "--edge-http", t.EdgeHTTP, "--edge-https", t.EdgeHTTPS,
		"--drain-delay", "0s", "--git-host", "local=file://" + root,
	}); err != nil {
		return err
	}
	example, err := fs.Sub(examples.Files, "hello")
	if err != nil {
		return err
	}
	return try.Run(ctx, try.Config{
		Store: c.Serve.Store(), Listen: t.Listen, HTTP: t.EdgeHTTP, HTTPS: t.EdgeHTTPS, Example: example,
		Out: os.Stdout, Log: os.Stderr,
		Color: term.IsTerminal(int(os.Stdout.Fd())) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb",
	}, func(ctx context.Context, log io.Writer) error {
		settings := c.Serve.Settings(version)
		settings.Log = c.Serve.Logger(log)
		return server.Serve(ctx, settings, nil)
	})
}
