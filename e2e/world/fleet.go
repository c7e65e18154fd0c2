package world

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"slipway/internal/platform/blob/s3test"
	"slipway/internal/platform/dbtest"
)

// NodesVar is an environment variable. If it is 2, every world is an installation of two nodes that share PostgreSQL,
// an object store, a directory for storage, MariaDB and Redis. Each request goes to either node.
const NodesVar = "SLIPWAY_E2E_NODES"

// dsnVar is the environment variable for the tests' PostgreSQL cluster.
const dsnVar = "SLIPWAY_TEST_DSN"

func several() bool { return os.Getenv(NodesVar) == "2" }

// onPostgres runs this test program again with a temporary PostgreSQL.
func onPostgres() int {
	program := filepath.Join(os.Getenv(Built), "withpostgres")
	if os.Getenv(Built) == "" {
		dir, err := os.MkdirTemp("", "slipway-nodes-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		program = filepath.Join(dir, "withpostgres")
		build := exec.Command("go", "build", "-o", program, "./scripts/withpostgres")
		build.Dir = Root()
		if out, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "build withpostgres: %v\n%s", err, out)
			return 1
		}
	}
	cmd := exec.Command(program, os.Args...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	var exit *exec.ExitError
	if err := cmd.Run(); errors.As(err, &exit) {
		return exit.ExitCode()
	} else if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// MainOnPostgres is Main with a temporary PostgreSQL if no other one is configured.
func MainOnPostgres(tests interface{ Run() int }, binary *string) int {
	if os.Getenv(dsnVar) == "" {
		return onPostgres()
	}
	return Main(tests, binary)
}

// fleet holds the nodes of one installation and what they share. Each node listens on the world's ports at its own
// loopback address. Connections to the world's addresses are forwarded to either.
type fleet struct {
	nodes []*World
	own   [][]string // flags of single nodes
	ends  []func()
}

// hosts are the nodes' loopback addresses.
var hosts = []string{"127.0.0.2", "127.0.0.3"}

// objects starts the object store of this process's worlds, which ends with the process.
var objects = sync.OnceValues(func() (*s3test.Server, error) {
	dir, err := os.MkdirTemp("", "buckets-")
	if err != nil {
		return nil, err
	}
	return s3test.Start(dir)
})

// newFleet makes what two nodes of a world share, and adds their flags to the world's.
func newFleet(w *World) (_ *fleet, err error) {
	f := &fleet{}
	defer func() {
		if err != nil {
			f.close()
		}
	}()
	database, drop, err := dbtest.Create(os.Getenv(dsnVar))
	if err != nil {
		return nil, err
	}
	f.ends = append(f.ends, func() { _ = drop() }) // the cluster is deleted with the tests
	store, err := objects()
	if err != nil {
		return nil, err
	}
	bucket, err := store.NewBucket()
	if err != nil {
		return nil, err
	}
	w.Flags = append(w.Flags, "--database", database, "--blobs", bucket, "--backup-to", filepath.Join(w.Dir, "backups"), "--base-url", "http://"+w.Listen)
	if !elsewhere() { // there, volumes have it
		storage := filepath.Join(w.Dir, "storage")
		if err := os.Mkdir(storage, 0o711); err != nil {
			return nil, err
		}
		if err := os.Chmod(storage, 0o711); err != nil { // programs need access to their own folder below it
			return nil, err
		}
		w.Flags = append(w.Flags, "--storage", storage)
	}
	for flag, start := range map[string]func(string, *Receiver) (string, func(), error){"--mariadb": MariaDB, "--redis": Redis} {
		dir := filepath.Join(w.Dir, strings.TrimLeft(flag, "-"))
		if err := os.Mkdir(dir, 0o700); err != nil {
			return nil, err
		}
		address, stop, err := start(dir, w.Hooks)
		if err != nil {
			return nil, err
		}
		f.ends = append(f.ends, stop)
		w.Flags = append(w.Flags, flag, address)
	}

	relays, err := FreePorts(len(hosts))
	if err != nil {
		return nil, err
	}
	key := make([]byte, 32)
	rand.Read(key)
	for n, host := range hosts {
		node := &World{Binary: w.Binary, Dir: filepath.Join(w.Dir, fmt.Sprint("node", n+1)), Hooks: w.Hooks, Git: w.Git}
		node.Data = filepath.Join(node.Dir, "data")
		node.Listen, node.HTTP, node.HTTPS = at(host, w.Listen), at(host, w.HTTP), at(host, w.HTTPS)
		node.client = &http.Client{Transport: &http.Transport{}}
		if err := os.MkdirAll(node.Data, 0o700); err != nil {
			return nil, err
		}
		if err := os.WriteFile(filepath.Join(node.Data, "secrets.key"), []byte(hex.EncodeToString(key)+"\n"), 0o600); err != nil {
			return nil, err
		}
		f.nodes, f.own = append(f.nodes, node), append(f.own, []string{"--node-listen", relays[n]})
	}
	w.Data = f.nodes[0].Data
	for _, address := range []string{w.Listen, w.HTTP, w.HTTPS} {
		l, err := net.Listen("tcp", address)
		if err != nil {
			return nil, err
		}
		f.ends = append(f.ends, func() { l.Close() })
		go balance(l, address)
	}
	return f, nil
}

// at returns an address with another host.
func at(host, address string) string {
	_, port, _ := net.SplitHostPort(address)
	return net.JoinHostPort(host, port)
}

// balance forwards the connections of a listener to a random node that accepts them, until the listener is closed.
func balance(l net.Listener, address string) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			for _, n := range mathrand.Perm(len(hosts)) {
				node, err := net.Dial("tcp", at(hosts[n], address))
				if err != nil {
					continue
				}
				defer node.Close()
				done := make(chan struct{})
				go func() {
					defer close(done)
					_, _ = io.Copy(node, c)
					_ = node.(*net.TCPConn).CloseWrite()
				}()
				_, _ = io.Copy(c, node)
				_ = c.(*net.TCPConn).CloseWrite()
				<-done
				return
			}
		}()
	}
}

// each calls do for all nodes concurrently, with the world's current flags and environment.
func (f *fleet) each(w *World, do func(node *World) error) error {
	errs := make([]error, len(f.nodes))
	var all sync.WaitGroup
	for n, node := range f.nodes {
		node.Binary, node.Env, node.Flags = w.Binary, w.Env, slices.Concat(w.Flags, f.own[n])
		all.Go(func() { errs[n] = do(node) })
	}
	all.Wait()
	return errors.Join(errs...)
}

func (f *fleet) start(ctx context.Context, w *World) error {
	return f.each(w, func(node *World) error { return node.Start(ctx) })
}

func (f *fleet) log(bytes int) string {
	var b strings.Builder
	for n, node := range f.nodes {
		fmt.Fprintf(&b, "node %d:\n%s\n", n+1, node.Log(bytes))
	}
	return b.String()
}

// close stops what the nodes share. The nodes must have been killed.
func (f *fleet) close() {
	for _, node := range f.nodes {
		clearGroups(node.Data)
		node.client.CloseIdleConnections()
	}
	for _, end := range slices.Backward(f.ends) {
		end()
	}
}

// transport returns t, or, if there are several nodes, a transport that sends each request through a random copy of t,
// one per node.
func (w *World) transport(t *http.Transport) http.RoundTripper {
	if w.fleet == nil {
		return t
	}
	dial := t.DialContext
	if dial == nil {
		dial = (&net.Dialer{}).DialContext
	}
	var out anyNode
	for _, host := range hosts {
		to := t.Clone()
		to.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
			if dialed := w.address(address); slices.Contains([]string{w.Listen, w.HTTP, w.HTTPS}, dialed) {
				return (&net.Dialer{}).DialContext(ctx, network, at(host, dialed))
			}
			return dial(ctx, network, address)
		}
		out = append(out, to)
	}
	return out
}

// Everywhere returns a client for each node of a world's client, because a change becomes visible on one node after the
// other.
func Everywhere(c *http.Client) (all []*http.Client) {
	nodes, ok := c.Transport.(anyNode)
	if !ok {
		return []*http.Client{c}
	}
	for _, t := range nodes {
		one := *c
		one.Transport = t
		all = append(all, &one)
	}
	return all
}

// Somewhere returns a client for one node of a world's client, like a load balancer with sticky sessions. Tests of what
// a node stores itself, such as cached pages, need it.
func Somewhere(c *http.Client) *http.Client {
	all := Everywhere(c)
	return all[mathrand.IntN(len(all))]
}

// Nodes returns the number of nodes.
func (w *World) Nodes() int {
	if w.fleet == nil {
		return 1
	}
	return len(w.fleet.nodes)
}

// Database returns the URL of the installation's database.
func (w *World) Database() string {
	if n := slices.Index(w.Flags, "--database"); n >= 0 {
		return w.Flags[n+1]
	}
	return "sqlite:" + filepath.Join(w.Data, "slipway.db")
}

// Storage returns the directory of all sites' storage.
func (w *World) Storage() string {
	if dir := os.Getenv(Volumes); dir != "" {
		return dir
	}
	if w.fleet != nil {
		return filepath.Join(w.Dir, "storage")
	}
	return filepath.Join(w.Data, "storage")
}

// Holds lists the directories with sites' data, except backups.
func (w *World) Holds() []string {
	if w.fleet == nil {
		return []string{w.Data}
	}
	all := []string{w.Storage()}
	for _, node := range w.fleet.nodes {
		all = append(all, node.Data)
	}
	return all
}

// Schemas returns a pattern for the folders of all sites' databases.
func (w *World) Schemas() string {
	if !w.OwnServers() {
		return filepath.Join(w.Dir, "mariadb", "data", "s??????????????????????????")
	}
	return filepath.Join(w.Data, "mariadb", "owners", "*", "data", "s??????????????????????????")
}

// anyNode sends each request through a random transport.
type anyNode []*http.Transport

func (a anyNode) RoundTrip(q *http.Request) (*http.Response, error) {
	return a[mathrand.IntN(len(a))].RoundTrip(q)
}

// CloseIdleConnections implements the method that http.Client calls.
func (a anyNode) CloseIdleConnections() {
	for _, t := range a {
		t.CloseIdleConnections()
	}
}
