package relay

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"slipway/internal/edge/certs"
	"slipway/internal/platform/dbtest"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/id"
	"slipway/internal/platform/node"
	"slipway/internal/platform/seal"
	"slipway/internal/platform/wait"
	"slipway/internal/program/runtime"
	"slipway/internal/program/task"
)

// echo has the programs of a node: one that repeats lines, and one that does not start.
type echo struct {
	carried atomic.Int64
	program net.Conn // a program to which the node passes bytes on instead of repeating them. Optional.
	listens *tls.Config
}

func (e *echo) Reach(_ context.Context, deployment id.Deployment, tasks bool) (Program, func(net.Conn), error) {
	if deployment != "dep_echo" {
		return Program{}, nil, &fault.Error{
			Kind: fault.Unavailable, Message: "It does not start", Details: "see its log", Code: "application_crashed", RetryAfter: 7 * time.Second,
		}
	}
	return Program{Site: "site", MaxBody: 5, FirstByte: time.Minute}, func(c net.Conn) {
		e.carried.Add(1)
		defer e.carried.Add(-1)
		if e.program != nil {
			Splice(c, e.program)
			return
		}
		_, _ = io.Copy(c, c)
	}, nil
}

// Shell repeats what is typed, and the size of the terminal, until "exit" is typed; or it does not start.
func (e *echo) Shell(ctx context.Context, x Shell, t *runtime.Terminal) (runtime.Exit, error) {
	if x.Deployment != "dep_echo" {
		return runtime.Exit{}, &fault.Error{Kind: fault.Conflict, Message: "It does not start", Code: "stopped"}
	}
	e.carried.Add(1)
	defer e.carried.Add(-1)
	fmt.Fprintln(t.Output, x.Command.Shell, x.Process, x.Timeout, t.Size)
	lines := make(chan string)
	go func() {
		defer close(lines)
		for r := bufio.NewScanner(t.Input); r.Scan(); {
			lines <- r.Text()
		}
	}()
	for {
		select {
		case line, ok := <-lines:
			if !ok || line == "exit" {
				return runtime.Exit{Code: 3, Reason: fmt.Sprint("typed: ", line)}, nil
			}
			fmt.Fprintln(t.Output, line)
		case size := <-t.Sizes:
			fmt.Fprintln(t.Output, size)
		case <-ctx.Done():
			return runtime.Exit{}, context.Cause(ctx)
		}
	}
}

func (e *echo) States() []byte { return []byte("states") }

// listening starts a node and returns its programs, its address, and a dialer for it.
func listening(t *testing.T) (*echo, string, *Dialer) {
	t.Helper()
	d := dbtest.New(t)
	sealer, err := seal.Load(filepath.Join(t.TempDir(), "secrets.key"))
	if err != nil {
		t.Fatal(err)
	}
	self, err := node.New(node.Config{DB: d, Dir: t.TempDir()})
	if err == nil {
		err = self.Join(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	listens, connects, err := certs.NodeTLS(t.Context(), d, sealer, self.ID(), node.NewRoster(d, ""))
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	e := &echo{listens: listens}
	s := &Server{Listener: l, TLS: listens, Programs: e, Log: slog.New(slog.DiscardHandler)}
	done := make(chan error, 1)
	go func() { done <- s.Serve() }()
	t.Cleanup(func() {
		if err := s.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return e, l.Addr().String(), &Dialer{TLS: connects}
}

// Another node must learn whether a program closed a connection or reset it: after a reset the request may be sent
// again.
func TestProgramResets(t *testing.T) {
	t.Parallel()
	for _, reset := range []bool{true, false} {
		e, address, d := listening(t)
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		if e.program, err = net.Dial("tcp", l.Addr().String()); err != nil {
			t.Fatal(err)
		}
		c, _, err := d.Dial(t.Context(), address, "dep_echo")
		if err != nil {
			t.Fatal(err)
		}
		if !reset {
			program, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			program.Close()
		}
		l.Close() // a connection that was not accepted is reset
		if n, err := c.Read(make([]byte, 1)); n != 0 || errors.Is(err, io.ErrUnexpectedEOF) != reset || !errors.Is(err, io.EOF) {
			t.Errorf("reset %v: read %d, %v", reset, n, err)
		}
		c.Close()
		wait.Until(t, "it is no longer carried", func() bool { return e.carried.Load() == 0 })
	}
}

func TestReach(t *testing.T) {
	t.Parallel()
	e, address, d := listening(t)
	c, p, err := d.Dial(t.Context(), address, "dep_echo")
	if err != nil {
		t.Fatal(err)
	}
	if p != (Program{Site: "site", MaxBody: 5, FirstByte: time.Minute}) {
		t.Errorf("got %+v", p)
	}
	if _, err := io.WriteString(c, "hello\n"); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(c).ReadString('\n'); err != nil || line != "hello\n" {
		t.Errorf("got %q, %v", line, err)
	}
	if e.carried.Load() != 1 {
		t.Error("the connection was not relayed")
	}
	c.Close()
	wait.Until(t, "it is no longer carried", func() bool { return e.carried.Load() == 0 })

	if text, err := d.States(t.Context(), address); err != nil || string(text) != "states" {
		t.Errorf("got %q, %v", text, err)
	}
	_, _, err = d.Dial(t.Context(), address, "dep_other")
	if f := fault.As(err); f == nil || *f != (fault.Error{
		Kind: fault.Unavailable, Message: "It does not start", Details: "see its log", Code: "application_crashed", RetryAfter: 7 * time.Second,
	}) {
		t.Errorf("got %+v", err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	if _, _, err := d.Dial(t.Context(), l.Addr().String(), "dep_echo"); !errors.Is(err, ErrUnreached) {
		t.Errorf("a node that does not listen: %v", err)
	}
}

// What is typed into a terminal must reach the node that runs its shell, and the output must come back, until either
// end closes the connection.
func TestShell(t *testing.T) {
	t.Parallel()
	e, address, d := listening(t)
	for _, typed := range []string{"exit", ""} { // the empty one types nothing more and hangs up
		in, typing := io.Pipe()
		shown, shows := io.Pipe()
		sizes := make(chan runtime.Size)
		large := strings.Repeat("x", 3*maxFrame)[:60_000]
		go func() {
			r := bufio.NewReader(shown)
			line := func(want string) {
				if got, err := r.ReadString('\n'); err != nil || got != want+"\n" {
					t.Errorf("shown %q, %v; want %q", got, err, want)
				}
			}
			line("sh terminal 1h0m0s {100 30}")
			sizes <- runtime.Size{Columns: 120, Rows: 40}
			line("{120 40}")
			io.WriteString(typing, large+"\n")
			line(large)
			if typed != "" {
				io.WriteString(typing, typed+"\n")
			} else {
				typing.Close()
			}
		}()
		exit, err := d.Shell(
			t.Context(), address, Shell{Deployment: "dep_echo", Command: task.Command{Shell: "sh"}, Process: "terminal", Timeout: time.Hour},
			&runtime.Terminal{Input: in, Output: shows, Size: runtime.Size{Columns: 100, Rows: 30}, Sizes: sizes})
		if err != nil || exit != (runtime.Exit{Code: 3, Reason: "typed: " + typed}) {
			t.Errorf("the shell ended as %+v, %v", exit, err)
		}
		in.Close()
	}

	none := &runtime.Terminal{Input: strings.NewReader(""), Output: io.Discard}
	_, err := d.Shell(t.Context(), address, Shell{Deployment: "dep_other"}, none)
	if f := fault.As(err); f == nil || f.Kind != fault.Conflict || f.Code != "stopped" {
		t.Errorf("a shell that does not start: %v", err)
	}
	in, _ := io.Pipe()
	defer in.Close()
	ctx, leave := context.WithCancelCause(t.Context())
	why := errors.New("left")
	end := make(chan error, 1)
	go func() {
		_, err := d.Shell(ctx, address, Shell{Deployment: "dep_echo"}, &runtime.Terminal{Input: in, Output: io.Discard})
		end <- err
	}()
	wait.Until(t, "it runs", func() bool { return e.carried.Load() == 1 })
	leave(why)
	if err := <-end; !errors.Is(err, why) {
		t.Errorf("the shell's context ended with %v", err)
	}
	wait.Until(t, "it runs no longer", func() bool { return e.carried.Load() == 0 })
}

// A client without a node's certificate, or with one of another installation, must not be let in, and must not let
// itself be connected elsewhere. A request that is not a line, or too long a line, must end its connection.
func TestStrangers(t *testing.T) {
	t.Parallel()
	e, address, d := listening(t)
	_, _, other := listening(t)
	if _, _, err := other.Dial(t.Context(), address, "dep_echo"); !errors.Is(err, ErrUnreached) {
		t.Errorf("a node of another installation: %v", err)
	}
	site := d.TLS.Clone()
	site.Certificates = nil
	for name, config := range map[string]*tls.Config{"without a certificate": site, "of another installation": {
		Certificates: other.TLS.Certificates, InsecureSkipVerify: true, //nolint:gosec // a stranger asks for nothing
	}} {
		c, err := tls.Dial("tcp", address, config)
		if err != nil {
			continue
		}
		_, _ = io.WriteString(c, `{"deployment":"dep_echo"}`+"\n")
		_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
		if text, err := io.ReadAll(c); err == nil || len(text) > 0 {
			t.Errorf("%s: answered %q, %v", name, text, err)
		}
		c.Close()
	}
	for _, line := range []string{"GET / HTTP/1.1\r\n\r\n", "{}\n", strings.Repeat("x", maxLine+1), "\n"} {
		c, err := tls.Dial("tcp", address, d.TLS)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(c, line)
		_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
		if text, _ := io.ReadAll(c); len(text) > 0 {
			t.Errorf("%.20q is answered %q", line, text)
		}
		c.Close()
	}
	if e.carried.Load() != 0 {
		t.Error("a stranger's connection was relayed")
	}
}

// One address must not be able to take all connections without proving that it is a node. Existing connections must
// stay open, and nodes must be let in again once that address has given up.
func TestOneAddressTakesNotAll(t *testing.T) {
	t.Parallel()
	_, address, d := listening(t)
	c, _, err := d.Dial(t.Context(), address, "dep_echo")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var idle []net.Conn
	leave := func() {
		for _, s := range idle {
			s.Close()
		}
		idle = nil
	}
	defer leave()
	wait.Until(t, "one more is refused", func() bool {
		leave() // those of the last attempt may have been given up by now
		for range maxStrange {
			s, err := net.Dial("tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			idle = append(idle, s)
		}
		s, err := net.Dial("tcp", address)
		if err != nil {
			return true
		}
		defer s.Close()
		_ = s.SetReadDeadline(time.Now().Add(time.Second)) // a connection that is let in receives nothing
		_, err = s.Read(make([]byte, 1))
		return errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET)
	})
	if _, err := io.WriteString(c, "hello\n"); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(c).ReadString('\n'); err != nil || line != "hello\n" {
		t.Errorf("what was carried before: %q, %v", line, err)
	}
	leave()
	wait.Until(t, "a node is let in again", func() bool {
		again, _, err := d.Dial(t.Context(), address, "dep_echo")
		if err == nil {
			again.Close()
		}
		return err == nil
	})
}

// A program that closes its connection must be distinguishable from a node that is gone.
func TestEndOfProgramAndNode(t *testing.T) {
	t.Parallel()
	for name, gone := range map[string]bool{"program": false, "node": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inner, _, d := listening(t)
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			go func() {
				raw, err := l.Accept()
				if err != nil {
					return
				}
				c := tls.Server(raw, inner.listens)
				var a asked
				_ = readLine(c, &a)
				_, _ = io.WriteString(c, `{"program":{"site":"site"}}`+"\n")
				_, _ = bufio.NewReader(c).ReadString('\n')
				if gone {
					raw.Close() // as the kernel does for a process that was killed
					return
				}
				c.Close()
			}()
			c, _, err := d.Dial(t.Context(), l.Addr().String(), "dep_echo")
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			_, _ = io.WriteString(c, "hello\n")
			_, err = c.Read(make([]byte, 1))
			if errors.Is(err, io.ErrUnexpectedEOF) != gone || !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("the end is told by %v", err)
			}
		})
	}
}
