// Command try starts Slipway for somebody who wants to see it: with a first user, a first
// key and a first site, and a screen that says where everything is.
//
// It does what a user would do: the command line makes the user and the key, and the REST
// interface makes the site, from a Git repository that is a copy of examples/hello. What
// it made it remembers in the data directory, so a second start makes nothing twice. It
// serves until a signal comes, passes that on, and ends as the server ends.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"slipway/scripts/internal/machine"
)

func main() {
	runtime.LockOSThread() // the server's life hangs on the thread that started it
	binary := flag.String("binary", "bin/slipway", "the program to start")
	example := flag.String("example", "examples/hello", "the site to begin with")
	flag.Parse()
	if err := run(*binary, *example); err != nil {
		fmt.Fprintln(os.Stderr, "make run:", err)
		os.Exit(1)
	}
}

func run(binary, example string) error {
	binary, err := filepath.Abs(binary)
	if err != nil {
		return err
	}
	t := &try{
		binary: binary,
		data:   cmp.Or(os.Getenv("SLIPWAY_DATA_DIR"), "slipway-data"),
		listen: cmp.Or(os.Getenv("SLIPWAY_LISTEN"), "127.0.0.1:8080"),
		http:   cmp.Or(os.Getenv("SLIPWAY_EDGE_HTTP"), "127.0.0.1:8081"),
		https:  cmp.Or(os.Getenv("SLIPWAY_EDGE_HTTPS"), "127.0.0.1:8443"),
		paint:  machine.Colors(os.Stdout),
	}
	if err := t.portsAreFree(); err != nil {
		return err
	}
	fmt.Printf("%s\n\n", t.paint("1", "Slipway"))
	if err := t.prepare(example); err != nil {
		return err
	}
	server, err := t.serve()
	if err != nil {
		return err
	}
	defer server.end()
	site, err := t.firstSite(server)
	if err != nil {
		return server.explain(err)
	}
	t.screen(site)
	server.log.show(os.Stderr)
	return server.wait()
}

// try is one run.
type try struct {
	binary, data        string
	listen, http, https string
	paint               func(code, text string) string
	memory              memory
}

func (t *try) path(name string) string { return filepath.Join(t.data, "try", name) }

// step says what is being done and how long it took.
func (t *try) step(format string, args ...any) func() {
	at := time.Now()
	text := fmt.Sprintf(format, args...)
	return func() {
		fmt.Printf("  %s %s %s\n", t.paint("32", "✓"), text, t.paint("2", time.Since(at).Round(time.Millisecond).String()))
	}
}

// server is the running service.
type server struct {
	cmd  *exec.Cmd
	log  *log
	done chan struct{} // closed when it has ended
	err  error         // how it ended; read after done
	back func()        // gives the terminal back
}

// serve starts the service in the terminal's foreground, so that Ctrl-C reaches it alone:
// make and this program would only die of it and hide how the service ended.
func (t *try) serve() (*server, error) {
	root, err := filepath.Abs(t.path(""))
	if err != nil {
		return nil, err
	}
	s := &server{log: &log{}, done: make(chan struct{}), back: func() {}}
	if s.log.file, err = os.OpenFile(t.path("serve.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600); err != nil {
		return nil, err
	}
	s.cmd = exec.Command(
		t.binary, "serve", "--data-dir", t.data, "--listen", t.listen, "--edge-http", t.http, "--edge-https", t.https,
		"--drain-delay", "0s", "--git-host",
		"local=file://"+root,
	)
	s.cmd.Stdout, s.cmd.Stderr = s.log, s.log
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	if tty, err := os.OpenFile("/dev/tty", os.O_RDWR, 0); err == nil && foreground(tty) {
		s.cmd.SysProcAttr.Foreground, s.cmd.SysProcAttr.Ctty = true, int(tty.Fd())
		s.back = func() { takeBack(tty) }
	}
	if err := s.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", t.binary, err)
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	go func() {
		for range signals {
			s.cmd.Process.Signal(syscall.SIGTERM)
		}
	}()
	go func() {
		s.err = s.cmd.Wait()
		close(s.done)
	}()
	return s, nil
}

// wait returns when the service has ended, with an error only if it ended badly.
func (s *server) wait() error {
	<-s.done
	if s.err != nil {
		return fmt.Errorf("the server ended: %w", s.err)
	}
	return nil
}

// end stops the service if it still runs, and gives the terminal back.
func (s *server) end() {
	s.cmd.Process.Signal(syscall.SIGTERM)
	<-s.done
	s.back()
	s.log.file.Close()
}

// explain adds the server's own last words to an error; a signal in between is none.
func (s *server) explain(err error) error {
	select {
	case <-s.done:
		if s.err == nil {
			return nil
		}
		return errors.New(s.log.last())
	default:
		return err
	}
}

// context ends when the service ends.
func (s *server) context() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		select {
		case <-s.done:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}
