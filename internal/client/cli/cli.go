// Package cli owns the commands by which developers use an installation: signing in, linking a folder to a site,
// deploying, reading logs, setting variables.
//
// A command prints its result to standard output and everything else to standard error. On a terminal results are
// tables; in a pipe they are tab-separated lines without a header; with --json they are the REST interface's response.
// If a command needs an answer but can't ask, it exits with status 4 and names the flag.
package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"

	"golang.org/x/term"

	"slipway/internal/client/login"
	"slipway/internal/client/rest"
	"slipway/internal/platform/text"
)

// Commands holds the developers' commands.
type Commands struct {
	Login       loginCommand       `cmd:"" group:"Your sites" help:"Sign in at a Slipway server."`
	Logout      logoutCommand      `cmd:"" group:"Your sites" help:"Sign out and revoke this machine's access."`
	Whoami      whoamiCommand      `cmd:"" group:"Your sites" help:"Show who is signed in."`
	Init        initCommand        `cmd:"" group:"Your sites" help:"Create a site from this folder and link it."`
	Import      importCommand      `cmd:"" group:"Your sites" help:"Import sites from Netlify or Vercel, or a WordPress from an archive or by SSH."`
	Export      exportCommand      `cmd:"" group:"Your sites" help:"Print a configuration for Terraform and OpenTofu of what you have."`
	Link        linkCommand        `cmd:"" group:"Your sites" help:"Link this folder to a site."`
	Unlink      unlinkCommand      `cmd:"" group:"Your sites" help:"Remove the link of this folder."`
	Deploy      deployCommand      `cmd:"" group:"Your sites" help:"Deploy this folder, or a branch or commit of the site's repository, and print its URL."`
	Deployments deploymentsCommand `cmd:"" group:"Your sites" help:"List, cancel, retry, promote and roll back deployments."`
	Rollback    rollbackSite       `cmd:"" group:"Your sites" help:"Go back to an earlier deployment."`
	Promote     promoteDeployment  `cmd:"" group:"Your sites" help:"Make a preview live."`
	Logs        logsCommand        `cmd:"" group:"Your sites" help:"Show the log of the site's application, or of a deployment."`
	Env         envCommand         `cmd:"" group:"Your sites" help:"List and change environment variables."`
	Domains     domainsCommand     `cmd:"" group:"Your sites" help:"List, add, verify and remove domains."`
	Sites       sitesCommand       `cmd:"" group:"Your sites" help:"List, show, start, stop and delete sites."`
	DB          dbCommand          `cmd:"" name:"db" group:"Your sites" help:"List and dump databases."`
	Backups     backupsCommand     `cmd:"" group:"Your sites" help:"List, create and restore backups."`
	WP          wpCommand          `cmd:"" name:"wp" group:"Your sites" help:"Show a WordPress site, log in to it, and purge its cache."`
	Exec        execCommand        `cmd:"" group:"Your sites" help:"Run a command in the site's application."`
	Dev         devCommand         `cmd:"" group:"Your sites" help:"Run the project's development server with the site's variables."`
	MCP         mcpCommand         `cmd:"" name:"mcp" group:"Your sites" help:"Connect AI agents to your sites."`
	Usage       usageCommand       `cmd:"" group:"Your sites" help:"Show what your sites used in a month."`
	Status      getSite            `cmd:"" group:"Your sites" help:"Show the folder's site, as sites get does."`
	Open        openCommand        `cmd:"" group:"Your sites" help:"Print the site's URL, and open it where there is a browser."`
	API         apiCommand         `cmd:"" name:"api" group:"Your sites" help:"Call the REST API."`
	Completion  completionCommand  `cmd:"" group:"Your sites" help:"Print what makes bash, zsh or fish complete commands, flags and names of sites."`
	Man         manCommand         `cmd:"" group:"Your sites" help:"Print the manual page."`
	Complete    completeCommand    `cmd:"" hidden:"" name:"__complete" help:"List what may come next, for shells."`
}

// Exit statuses besides 1, which is any other failure, and 2, which the parser uses too.
const (
	exitUsage       = 2 // incompatible flags that the parser can't detect
	exitDeployment  = 3 // a deployment failed or was canceled
	exitAnswer      = 4 // an answer is needed but the user can't be asked
	exitSignedOut   = 5 // not signed in, or not allowed
	exitMissing     = 6 // not found
	exitLimit       = 7 // a limit or quota is reached
	exitUnreachable = 8 // the server doesn't respond
	exitInterrupted = 130
)

// Failure is an error with its own exit status.
type Failure struct {
	Status int
	error
}

// ExitCode returns the program's exit status.
func (f *Failure) ExitCode() int { return f.Status }

// Unwrap returns the wrapped error.
func (f *Failure) Unwrap() error { return f.error }

// failure adds the matching exit status to an error.
func failure(err error) error {
	var f *Failure
	var no *rest.Error
	switch {
	case err == nil || errors.As(err, &f):
		return err
	case errors.Is(err, login.ErrSignedOut):
		return &Failure{exitSignedOut, fmt.Errorf("%w: run slipway login", err)}
	case errors.Is(err, rest.ErrUnreachable):
		return &Failure{exitUnreachable, err}
	case errors.Is(err, context.Canceled):
		return &Failure{exitInterrupted, errors.New("interrupted")}
	case errors.As(err, &no):
		switch no.Status {
		case http.StatusUnauthorized:
			return &Failure{exitSignedOut, fmt.Errorf("%w; run slipway login", err)}
		case http.StatusForbidden:
			return &Failure{exitSignedOut, err}
		case http.StatusNotFound:
			return &Failure{exitMissing, err}
		case http.StatusPaymentRequired, http.StatusTooManyRequests:
			return &Failure{exitLimit, err}
		}
	}
	return err
}

func needed(format string, args ...any) error {
	return &Failure{exitAnswer, fmt.Errorf(format, args...)}
}

// Env is the environment of commands.
type Env struct {
	In    io.Reader
	Out   io.Writer
	Err   io.Writer
	TTY   bool // Out is a terminal
	Ask   bool // In and Err are terminals, so the user can be asked
	Store *login.Store
	Dir   string // the working directory
}

// System returns the environment of this process.
func System() (*Env, error) {
	store, err := login.Open()
	if err != nil {
		return nil, err
	}
	dir, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	terminal := func(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }
	out, said := &output{file: os.Stdout, screen: terminal(os.Stdout)}, &output{file: os.Stderr, screen: true}
	return &Env{
		In: os.Stdin, Out: out, Err: said, Store: store, Dir: dir,
		TTY: terminal(os.Stdout), Ask: terminal(os.Stdin) && terminal(os.Stderr),
	}, nil
}

// Written returns the first error of writing to standard output, so that a truncated result doesn't look successful.
func (e *Env) Written() error {
	if o, ok := e.Out.(*output); ok {
		return o.err
	}
	return nil
}

// raw returns the file behind an output, for child processes and progress lines that need a terminal.
func raw(w io.Writer) io.Writer {
	if o, ok := w.(*output); ok {
		return o.file
	}
	return w
}

// output is standard output or standard error. It remembers the first error.
type output struct {
	file   *os.File
	screen bool // shown to people, so untrusted text is made safe for a terminal
	err    error
}

func (o *output) Write(b []byte) (int, error) {
	shown := b
	if o.screen {
		shown = []byte(text.Screen(string(b)))
	}
	_, err := o.file.Write(shown)
	if err != nil {
		o.err = cmp.Or(o.err, err)
		return 0, err
	}
	return len(b), nil
}

// say prints a line to standard error.
func (e *Env) say(format string, args ...any) { fmt.Fprintf(e.Err, format+"\n", args...) }

// target holds the flags, common to all commands, that select an installation.
type target struct {
	Server string `env:"SLIPWAY_SERVER" help:"URL of the server. Default: the linked one, or where you signed in last." placeholder:"URL"`
	Token  string `env:"SLIPWAY_TOKEN" help:"API key to use instead of signing in. Better set as SLIPWAY_TOKEN: command lines are visible to others." placeholder:"KEY"`
	CAFile string `name:"ca-file" env:"SLIPWAY_CA_FILE" help:"PEM file of further certificate authorities to trust." type:"path" placeholder:"FILE"`
	JSON   bool   `name:"json" env:"-" help:"Print what the API answers."`
}

// client returns a client for the installation from the flags, the folder's link or the last sign-in.
func (t target) client(e *Env) (*rest.Client, error) {
	server := t.Server
	linked := false
	if server == "" {
		l, _ := e.findLink()
		server, linked = l.Server, l.Server != ""
	}
	if server == "" {
		var err error
		if server, err = e.Store.Default(); err != nil {
			return nil, err
		}
	}
	if server == "" {
		return nil, login.ErrSignedOut
	}
	origin, err := rest.Origin(server)
	if err != nil {
		return nil, err
	}
	c := rest.Config{Server: origin, CAFile: t.CAFile, Notice: e.Err}
	if _, err := e.Store.Account(origin); t.Token != "" && linked && err != nil {
		// A key belongs to one server, which may not be the linked one.
		return nil, needed("%s is linked to %s, where you are not signed in: give --server %s to send it your key", e.Dir, origin, origin)
	}
	if t.Token != "" {
		c.Token = func(context.Context) (string, error) { return t.Token, nil }
		return rest.New(c)
	}
	a, err := e.Store.Account(origin)
	if err != nil {
		return nil, fmt.Errorf("%w at %s", err, origin)
	}
	c.CAFile = cmp.Or(c.CAFile, a.CAFile)
	h, err := rest.HTTP(c.CAFile)
	if err != nil {
		return nil, err
	}
	c.Token = func(ctx context.Context) (string, error) { return e.Store.Token(ctx, h, origin) }
	return rest.New(c)
}
