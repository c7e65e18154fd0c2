// Package try owns `slipway try`: an installation to look at, with a first user, key and site, and a screen that says where everything is.
//
// It does what a user would do: it makes the user and the key as the command line does, and the site through the REST API, from a copy
// of an example. It remembers in the data directory what it made, so that a second start makes nothing twice.
package try

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"slipway/internal/client/rest"
	"slipway/internal/operator/installation"
)

// Config says what to start. All fields are required.
type Config struct {
	Store               installation.Store
	Listen, HTTP, HTTPS string    // addresses of the API, and of sites
	Example             fs.FS     // the files of the first site
	Out                 io.Writer // gets the screen
	Log                 io.Writer // gets the server's log once the screen is written
	Color               bool
}

// Root returns the folder of what is made beside the installation: repositories that it may deploy, the example, the memory and the log.
func Root(s installation.Store) string { return s.Path("try") }

// Run makes what isn't there yet, and serves until ctx ends. serve is the service, which writes its log to the given writer.
func Run(ctx context.Context, c Config, serve func(context.Context, io.Writer) error) error {
	if err := c.portsAreFree(); err != nil {
		return err
	}
	t := &try{Config: c, base: "http://" + reachable(c.Listen)}
	if _, err := t.client(); err != nil { // before anything is made
		return err
	}
	fmt.Fprintf(c.Out, "%s\n\n", t.paint("1", "Slipway"))
	if err := t.prepare(ctx); err != nil {
		return err
	}
	file, err := os.OpenFile(t.path("serve.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	log := &log{file: file}
	g, ctx := errgroup.WithContext(ctx)
	// uncaught: a panic ends the program, as outside a goroutine
	g.Go(func() error { return serve(ctx, log) })
	// uncaught: the same
	g.Go(func() error {
		site, err := t.firstSite(ctx)
		if ctx.Err() != nil {
			return nil // what ended it has an error of its own, or is a signal
		}
		if err != nil {
			return fmt.Errorf("%w; the server's log is in %s", err, file.Name())
		}
		t.screen(site)
		log.show(c.Log)
		return nil
	})
	return g.Wait()
}

// try is one run.
type try struct {
	Config
	base   string // URL of API and dashboard
	memory memory
}

func (t *try) path(name string) string { return filepath.Join(Root(t.Store), name) }

func (t *try) paint(code, text string) string {
	if !t.Color {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// client returns a client with the first user's key.
func (t *try) client() (*rest.Client, error) {
	return rest.New(rest.Config{
		Server: t.base, Agent: "slipway-try",
		Token: func(context.Context) (string, error) { return t.memory.Key, nil },
	})
}

// step returns a function that says what was done and how long it took.
func (t *try) step(format string, args ...any) (done func()) {
	at := time.Now()
	return func() {
		took := t.paint("2", time.Since(at).Round(time.Millisecond).String())
		fmt.Fprintf(t.Out, "  %s %s %s\n", t.paint("32", "✓"), fmt.Sprintf(format, args...), took)
	}
}

// portsAreFree names the first address that another program uses, before anything is made.
func (c Config) portsAreFree() error {
	for _, a := range [][2]string{{"SLIPWAY_LISTEN", c.Listen}, {"SLIPWAY_EDGE_HTTP", c.HTTP}, {"SLIPWAY_EDGE_HTTPS", c.HTTPS}} {
		l, err := net.Listen("tcp", a[1])
		if op := (*net.OpError)(nil); errors.As(err, &op) {
			err = op.Err
		}
		if err != nil {
			return fmt.Errorf("can't listen on %s (%w): stop the program that uses it, or choose another address: %s=127.0.0.1:PORT",
				a[1], err, a[0])
		}
		l.Close()
	}
	return nil
}

// reachable returns an address of this machine for one that may be of all its interfaces.
func reachable(listen string) string {
	host, port, err := net.SplitHostPort(listen)
	if ip := net.ParseIP(host); err == nil && (host == "" || ip != nil && ip.IsUnspecified()) {
		return net.JoinHostPort("127.0.0.1", port)
	}
	return listen
}

// ready waits until the server answers.
func (t *try) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, time.Minute, errors.New("the server isn't ready after a minute"))
	defer cancel()
	for {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, t.base+"/readyz", nil)
		if err != nil {
			return err
		}
		if answer, err := http.DefaultClient.Do(r); err == nil {
			answer.Body.Close()
			if answer.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// log keeps the server's log in a file, and shows it once the screen is written.
type log struct {
	file io.Writer

	mu sync.Mutex // guards to
	to io.Writer
}

// Write writes a line of the log.
func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.to != nil {
		l.to.Write(p)
	}
	return l.file.Write(p)
}

// show also writes later lines to a screen.
func (l *log) show(to io.Writer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.to = to
}
