package kube

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"slipway/cluster/pod"
	"slipway/internal/platform/id"
	"slipway/internal/platform/sandbox"
	"slipway/internal/program/runtime"
)

// served provides connections whose servers send their kind and site.
type served struct {
	dir     string
	done    atomic.Int32
	changed atomic.Int32
}

func (w *served) DatabaseSocket(_ context.Context, s runtime.Spec) (string, func(), error) {
	dir := filepath.Join(w.dir, strings.Repeat("long", 25)) // longer than the path of a Unix socket may be
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", nil, err
	}
	l, socket, err := sandbox.Listen(dir, s.ID+".sock")
	if err != nil {
		return "", nil, err
	}
	go greet(l, "databases of "+string(s.Site))
	return socket, func() { l.Close(); w.done.Add(1) }, nil
}

func (w *served) ServeMail(ctx context.Context, site id.Site, l net.Listener) {
	defer context.AfterFunc(ctx, func() { l.Close() })()
	greet(l, "mail of "+string(site))
}

func (w *served) ServeRedis(ctx context.Context, s runtime.Spec, l net.Listener) {
	defer context.AfterFunc(ctx, func() { l.Close() })()
	greet(l, "Redis of "+string(s.Site))
}

func (w *served) Changed(id.Site) { w.changed.Add(1) }

// greet sends a name on each connection, and then echoes what it receives.
func greet(l net.Listener, name string) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			fmt.Fprintln(c, name)
			_, _ = io.Copy(c, c)
		}()
	}
}

// With a program's own token, a connection reaches only what the program has, up to maxLed connections, until the
// program ends.
func TestLed(t *testing.T) {
	t.Parallel()
	ways := &served{dir: t.TempDir()}
	e := &Engine{c: Config{Log: slog.New(slog.DiscardHandler)}, programs: map[string]*program{}, ways: ways, share: shares{by: map[id.Site]map[*program]bool{}}}
	var err error
	if e.packs, err = newPacks(e.c); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go e.packs.serve(t.Context(), l, nil, e.take)
	start := func(name string, s runtime.Spec) *program {
		x := &program{name: name, token: "secret-of-" + name}
		if x.led, err = e.lead(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		e.mu.Lock()
		defer e.mu.Unlock()
		e.programs[name] = x
		return x
	}
	a := start("a", runtime.Spec{ID: "a", Site: "site_a", Database: true, Mail: true, RedisServer: true})
	start("b", runtime.Spec{ID: "b", Site: "site_b", Mail: true})
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(e.packs.ca))
	// ask returns a forwarded connection, or nil if it is refused.
	ask := func(name, token, verb string) *tls.Conn {
		t.Helper()
		c, err := tls.Dial("tcp", l.Addr().String(), &tls.Config{RootCAs: roots, ServerName: "slipway", NextProtos: []string{pod.WaysProtocol}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		if reply, err := pod.Ask(c, pod.Description{Name: name, Token: token}.Asker(), verb, 0); err != nil || reply != pod.Yes {
			return nil
		}
		return c
	}
	for verb, want := range map[string]string{pod.Database: "databases of site_a", pod.Mail: "mail of site_a", pod.Redis: "Redis of site_a"} {
		c := ask("a", a.token, verb)
		if c == nil {
			t.Fatalf("%s is refused", verb)
		}
		fmt.Fprint(c, "and back")
		_ = c.CloseWrite()
		if got, err := io.ReadAll(c); err != nil || string(got) != want+"\nand back" {
			t.Errorf("%s: %q, %v", verb, got, err)
		}
	}
	for _, q := range [][3]string{
		{"a", "secret-of-b", pod.Database},
		{"a", "", pod.Database},
		{"", a.token, pod.Database},
		{"none", a.token, pod.Database},
		{"b", "secret-of-b", pod.Database},
		{"b", "secret-of-b", pod.Redis},
		{"a", a.token, pod.Dial},
	} {
		if ask(q[0], q[1], q[2]) != nil {
			t.Errorf("%s with the token %q is led to %s", q[0], q[1], q[2])
		}
	}
	var all []*tls.Conn
	for range maxLed {
		c := ask("a", a.token, pod.Database)
		if c == nil {
			t.Fatalf("connection %d is refused", len(all)+1)
		}
		all = append(all, c)
	}
	if ask("a", a.token, pod.Mail) != nil {
		t.Error("a connection over the limit was accepted")
	}
	if ask("b", "secret-of-b", pod.Mail) == nil {
		t.Error("a connection of another program was refused")
	}
	a.led.close()
	for _, c := range all {
		_, _ = io.Copy(io.Discard, c) // until the connection is closed
	}
	if ask("a", a.token, pod.Database) != nil || ways.done.Load() != 1 {
		t.Errorf("after its end it is led on; its databases were given back %d times", ways.done.Load())
	}
}

// A pod listens for its own site at the addresses that the site's names resolve to: 127.0.0.2, and for names under
// localhost also 127.0.0.1.
func TestOwn(t *testing.T) {
	t.Parallel()
	e := &Engine{c: Config{Edge: "10.0.0.1:443"}}
	for own, want := range map[string]string{
		"shop.example.com:443": "127.0.0.2:443",
		"shop.localhost:8443":  "127.0.0.2:8443 127.0.0.1:8443",
		"10.0.0.7:443":         "",
	} {
		if got := strings.Join(e.ownOf(runtime.Spec{Egress: true, Own: []string{own}}), " "); got != want {
			t.Errorf("%s: %q, want %q", own, got, want)
		}
	}
}
