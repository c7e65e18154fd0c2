package dbtest

import (
	"io"
	"net"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

// Gate is a proxy between a test and PostgreSQL.
type Gate struct {
	network, address string // of the server

	mu    sync.Mutex // guards open
	open  map[*way]bool
	quiet atomic.Bool // don't respond on new connections either
}

// way is one connection through the gate.
type way struct{ silent atomic.Bool }

// Through returns a database's URL through a gate. On SQLite, which has no connections, it skips the test.
func Through(t testing.TB, dsn string) (string, *Gate) {
	t.Helper()
	if strings.HasPrefix(dsn, "sqlite:") {
		t.Skip("SQLite has no connections to lose")
	}
	to, err := pgconn.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := &Gate{open: map[*way]bool{}}
	g.network, g.address = pgconn.NetworkAddress(to.Host, to.Port)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			go g.serve(client)
		}
	}()
	through := url.URL{
		Scheme: "postgres", User: url.UserPassword(to.User, to.Password), Host: l.Addr().String(), Path: to.Database, RawQuery: "sslmode=disable",
	}
	return through.String(), g
}

// Silence stops forwarding on all open connections permanently, but keeps them open. New connections work or, if all is
// true, get no response until Heal is called.
func (g *Gate) Silence(all bool) {
	g.quiet.Store(all)
	g.mu.Lock()
	defer g.mu.Unlock()
	for w := range g.open {
		w.silent.Store(true)
	}
}

// Heal makes new connections work again.
func (g *Gate) Heal() { g.quiet.Store(false) }

func (g *Gate) serve(client net.Conn) {
	defer client.Close()
	if g.quiet.Load() {
		io.Copy(io.Discard, client)
		return
	}
	server, err := net.Dial(g.network, g.address)
	if err != nil {
		return
	}
	defer server.Close()
	w := &way{}
	g.mu.Lock()
	g.open[w] = true
	g.mu.Unlock()
	defer func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.open, w)
	}()
	go func() {
		defer client.Close()
		w.pass(client, server)
	}()
	w.pass(server, client)
}

func (w *way) pass(to io.Writer, from io.Reader) {
	b := make([]byte, 64<<10)
	for {
		n, err := from.Read(b)
		if err != nil {
			return
		}
		if w.silent.Load() {
			continue
		}
		if _, err := to.Write(b[:n]); err != nil {
			return
		}
	}
}
