// Command slipway is the server and its command line. On systems other than Linux it has only the developers' commands.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"
	"golang.org/x/term"

	"slipway/internal/client/cli"
	"slipway/internal/platform/text"
)

// version is set by the build.
var version = "dev"

func main() {
	runtime.MemProfileRate = 0 // nothing reads the samples, whose table takes over 1 MB
	os.Exit(run(os.Args[1:]))
}

func run(args []string) int {
	// Don't collect garbage while building the model of all commands: that would take a sixth of a command's start.
	percent := debug.SetGCPercent(-1)
	var c commands
	parser, err := c.parser()
	if err != nil {
		return complain(err)
	}
	if len(args) > 0 && args[0] == "help" { // accepted by git and go too
		args = append(args[1:], "--help")
	}
	if len(args) == 1 && args[0] == "--version" { // accepted by most programs
		args = []string{"version"}
	}
	cmd, err := parser.Parse(args)
	debug.SetGCPercent(percent)
	if err != nil {
		return complain(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal kills the process
	cmd.BindTo(ctx, (*context.Context)(nil))
	if run := c.lasting(cmd.Command()); run != nil {
		err = run(ctx) // the parser, which takes a megabyte, is garbage from here on
	} else {
		err = cmd.Run()
	}
	if err == nil && c.env != nil {
		err = c.env.Written()
	}
	if err == nil {
		err = stdout.err
	}
	if err != nil {
		if c.env == nil && errors.Is(err, fs.ErrPermission) && os.Geteuid() != 0 {
			err = fmt.Errorf("%w: run it as root", err)
		}
		return complain(err)
	}
	return 0
}

// stdout is the standard output of the operator's commands.
var stdout = new(output)

// output writes to standard output and remembers the first error, since a command whose output is lost has failed. On a
// terminal it escapes untrusted text.
type output struct{ err error }

func (o *output) Write(b []byte) (int, error) {
	shown := b
	if term.IsTerminal(int(os.Stdout.Fd())) {
		shown = []byte(text.Screen(string(b)))
	}
	if _, err := os.Stdout.Write(shown); err != nil {
		o.err = cmp.Or(o.err, err)
		return 0, err
	}
	return len(b), nil
}

// environment returns the environment of a developer's command.
func (c *commands) environment() (*cli.Env, error) {
	e, err := cli.System()
	c.env = e
	return e, err
}

// maxComplaint caps the line of an error, which may contain a server's response.
const maxComplaint = 8 << 10

// sentence formats an error as one line that is safe for a terminal.
func sentence(err error) string {
	return text.Clip(text.Printable(strings.Join(strings.Fields(err.Error()), " ")), maxComplaint)
}

// complain prints an error as one line, or as one line per invalid setting, and returns the exit status.
func complain(err error) int {
	var p *kong.ParseError
	if errors.As(err, &p) {
		fmt.Fprintf(os.Stderr, "slipway: %s; run slipway --help for usage\n", sentence(err))
		return 2
	}
	all := []error{err}
	if many := interface{ Lines() []error }(nil); errors.As(err, &many) {
		all = many.Lines()
	}
	for _, err := range all {
		fmt.Fprintf(os.Stderr, "slipway: %s\n", sentence(err))
	}
	var f *cli.Failure
	if errors.As(err, &f) {
		return f.ExitCode()
	}
	return 1
}

// versionText returns the output of `slipway version`: version, commit and its date, if the build knows them.
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
