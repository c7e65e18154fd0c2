package nodes

import (
	"cmp"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"slipway/e2e/world"
)

// gate forwards connections between nodes and their database, or between nodes, and can block them.
type gate struct {
	listener    net.Listener
	network, to string

	mu   sync.Mutex // guards the following fields
	way  way
	open map[net.Conn]bool
}

// way is the direction in which a gate forwards data.
type way int

const (
	all     way = iota
	none        // connections are closed, and new ones rejected
	silence     // connections stay open, but no data is forwarded
	forth       // requests are forwarded, responses dropped
)

// newGate opens a gate to a database and returns the database's URL through the gate.
func newGate(t *testing.T, address string) (*gate, string) {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	// The test database listens on a Unix socket, whose path must be short.
	q := u.Query()
	dir := q.Get("host")
	if dir == "" {
		g := between(t, "tcp", u.Host, "127.0.0.1:0")
		u.Host = g.listener.Addr().String()
		return g, u.String()
	}
	short, err := os.MkdirTemp("", "gate")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(short) })
	name := ".s.PGSQL." + cmp.Or(q.Get("port"), u.Port(), "5432")
	q.Set("host", short)
	u.RawQuery = q.Encode()
	return between(t, "unix", filepath.Join(dir, name), filepath.Join(short, name)), u.String()
}

// between opens a gate that listens on at and forwards to to.
func between(t *testing.T, network, to, at string) *gate {
	t.Helper()
	g := &gate{network: network, to: to, open: map[net.Conn]bool{}}
	var err error
	if g.listener, err = net.Listen(network, at); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.listener.Close(); g.set(none) })
	go g.serve()
	return g
}

// set changes what the gate forwards. Connections that may have lost data are closed.
func (g *gate) set(to way) {
	g.mu.Lock()
	defer g.mu.Unlock()
	ends := to == none || g.way != all
	g.way = to
	for c := range g.open {
		if ends {
			c.Close()
		}
	}
}

func (g *gate) lets() way {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.way
}

func (g *gate) serve() {
	for {
		c, err := g.listener.Accept()
		if err != nil {
			return
		}
		go g.carry(c)
	}
}

func (g *gate) carry(c net.Conn) {
	defer c.Close()
	if g.lets() == none { // before dialing, because PostgreSQL starts a process for each connection
		return
	}
	up, err := net.Dial(g.network, g.to)
	if err != nil {
		return
	}
	defer up.Close()
	g.mu.Lock()
	shut := g.way == none
	g.open[c], g.open[up] = true, true
	g.mu.Unlock()
	defer func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.open, c)
		delete(g.open, up)
	}()
	if shut {
		return
	}
	go func() { g.pass(up, c, all, forth); up.Close() }()
	g.pass(c, up, all)
}

// pass copies data while the gate's state is one of lets.
func (g *gate) pass(to io.Writer, from io.Reader, lets ...way) {
	b := make([]byte, 32<<10)
	for {
		n, err := from.Read(b)
		if err == nil && slices.Contains(lets, g.lets()) {
			_, err = to.Write(b[:n])
		}
		if err != nil {
			return
		}
	}
}

// Nodes that miss the notification of a new release switch to it anyway, and until then both releases may be served.
// While PostgreSQL is down for a minute, which is several leases, static sites and awake programs are served by both
// nodes, and sleeping programs return 503 immediately.
func TestNotificationsAndDatabaseAway(t *testing.T) {
	i := related(t)
	at := slices.Index(i.nodes[0].Flags, "--database") + 1
	g, address := newGate(t, i.nodes[0].Flags[at])
	for _, w := range i.nodes {
		w.Flags[slices.Index(w.Flags, "--database")+1] = address
	}
	i.start(i.nodes...)
	i.commit("plain", map[string]string{"index.html": "release one"})
	i.commit("talk", talker)
	i.commit("nap", map[string]string{
		"package.json": talker["package.json"], "server.js": talker["server.js"], "slipway.toml": "[run]\nsleep_after_seconds = 1\n",
	})
	plain := i.site(i.nodes[0], "plain")
	i.site(i.nodes[0], "talk")
	nap := i.site(i.nodes[1], "nap")
	i.until("they are deployed", func() bool {
		return i.count(`SELECT count(DISTINCT site_id) FROM deployments WHERE status = 'success'`) == 3
	})
	for _, w := range i.nodes {
		i.serves(w, "plain", "/", "release one")
		i.serves(w, "talk", "/", "instance")
	}

	stop := make(chan struct{})
	var deaf, ended sync.WaitGroup
	deaf.Add(1)
	ended.Go(func() { // cut the connections, so that no node is notified
		first := sync.OnceFunc(deaf.Done)
		defer first()
		for {
			select {
			case <-stop:
				return
			default:
			}
			var n int
			err := i.db.QueryRow(t.Context(), `
				SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = current_database() AND query = 'LISTEN slipway'`).Scan(&n)
			if err != nil {
				t.Error(err)
				return
			}
			if n > 0 {
				first()
			}
		}
	})
	deaf.Wait()
	i.commit("plain", map[string]string{"index.html": "release two"})
	if err := i.nodes[0].Call(t.Context(), i.key, "POST", "/sites/"+plain+"/deploy", nil, nil); err != nil {
		t.Error(err)
	}
	var switched time.Time
	i.until("either node has the second release", func() bool {
		if switched.IsZero() && i.count(`SELECT count(*) FROM deployments WHERE site_id = $1 AND status = 'success'`, plain) == 2 {
			switched = time.Now()
		}
		second := 0
		for _, w := range i.nodes {
			status, body := i.visit(w, "plain", "/")
			if status != http.StatusOK || body != "release one" && body != "release two" {
				t.Errorf("during the switch: %d %.100q", status, body)
			}
			if body == "release two" {
				second++
			}
		}
		return second == len(i.nodes)
	})
	if took := time.Since(switched); !switched.IsZero() && took > world.Patience(5*time.Second) {
		t.Errorf("the switch took %s", took)
	}
	close(stop)
	ended.Wait()

	i.until("the program that naps is asleep", func() bool {
		for _, w := range i.nodes { // the node that runs it, and the other node, have learned where it runs
			var process struct{ Process struct{ State string } }
			if err := w.Call(t.Context(), i.key, "GET", "/sites/"+nap, nil, &process); err != nil || process.Process.State != "sleeping" {
				return false
			}
		}
		return true
	})
	home := map[*world.World]string{}
	for _, w := range i.nodes {
		_, home[w] = i.visit(w, "talk", "/")
	}
	g.set(none)
	away := time.Now()
	answers := func() (bool, error) {
		for _, w := range i.nodes {
			if status, body := i.visit(w, "plain", "/"); status != http.StatusOK || body != "release two" {
				t.Errorf("without the database a static site is %d %.100q", status, body)
			}
			if status, body := i.visit(w, "talk", "/"); status != http.StatusOK || body != home[w] {
				t.Errorf("without the database a program that is awake is %d %.100q", status, body)
			}
			if status, body := i.visit(w, "nap", "/"); status != http.StatusServiceUnavailable {
				t.Errorf("without the database a program that is asleep is %d %.100q", status, body)
			}
		}
		return t.Failed() || time.Since(away) > time.Minute, nil // several leases have passed
	}
	if err := world.Until(t.Context(), 500*time.Millisecond, answers); err != nil {
		t.Fatal(err)
	}
	g.set(all)
	for _, w := range i.nodes {
		i.until("it is woken again", func() bool {
			status, body := i.visit(w, "nap", "/")
			return status == http.StatusOK && strings.HasPrefix(body, "instance")
		})
	}
}
