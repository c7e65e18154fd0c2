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

// NodesVar is the variable that, with the value 2, makes every world an installation of two nodes, which share what an operator of
// several machines shares: PostgreSQL, an object store, a directory for storage, MariaDB and Redis. Each request goes to either.
const NodesVar = "SLIPWAY_E2E_NODES"

// dsnVar names the PostgreSQL cluster to tests.
const dsnVar = "SLIPWAY_TEST_DSN"

func several() bool { return os.Getenv(NodesVar) == "2" }

// onPostgres runs this test program once more, with a throw-away PostgreSQL.
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

// MainOnPostgres is Main with a throw-away PostgreSQL, if none is named.
func MainOnPostgres(tests interface{ Run() int }, binary *string) int {
	if os.Getenv(dsnVar) == "" {
		return onPostgres()
	}
	return Main(tests, binary)
}

// fleet holds the nodes of one installation and what they share. A node listens on the world's ports, at a loopback address of its
// own; at the world's addresses connections are passed on to any of them.
type fleet struct {
	nodes []*World
	own   [][]string // flags that a node alone has
	ends  []func()
}

// hosts are the nodes' loopback addresses.
var hosts = []string{"127.0.0.2", "127.0.0.3"}

// objects is the object store of this process's worlds. It ends with the process.
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
	f.ends = append(f.ends, func() { _ = drop() }) // the cluster goes with the tests
	store, err := objects()
	if err != nil {
		return nil, err
	}
	bucket, err := store.NewBucket()
	if err != nil {
		return nil, err
	}
	w.Flags = append(w.Flags, "--database", database, "--blobs", bucket, "--backup-to", filepath.Join(w.Dir, "backups"), "--base-url", "http://"+w.Listen)
	if !elsewhere() { // where it is in volumes
		storage := filepath.Join(w.Dir, "storage")
		if err := os.Mkdir(storage, 0o711); err != nil {
			return nil, err
		}
		if err := os.Chmod(storage, 0o711); err != nil { // programs reach their own folder below it
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

// at returns an address's port at another host.
func at(host, address string) string {
	_, port, _ := net.SplitHostPort(address)
	return net.JoinHostPort(host, port)
}

// balance passes the connections of a listener on to the nodes, each to any that takes it, until the listener is closed.
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

// each calls do with all nodes at once, with the flags and the environment that the world has now.
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

// close ends what the nodes share; they have been killed.
func (f *fleet) close() {
	for _, node := range f.nodes {
		clearGroups(node.Data)
		node.client.CloseIdleConnections()
	}
	for _, end := range slices.Backward(f.ends) {
		end()
	}
}

// transport returns what sends the requests of a client: t, or, where there are several nodes, one like t for each, of which every
// request takes any.
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

// Everywhere returns a client of each node that a client of a world reaches: what has changed is seen there one after the other.
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

// Somewhere returns a client of any one node that a client of a world reaches, as a balancer gives somebody with cookies one: what
// each node keeps for itself, such as cached pages, is to be seen there alone.
func Somewhere(c *http.Client) *http.Client {
	all := Everywhere(c)
	return all[mathrand.IntN(len(all))]
}

// Nodes returns how many nodes the installation has.
func (w *World) Nodes() int {
	if w.fleet == nil {
		return 1
	}
	return len(w.fleet.nodes)
}

// Database returns the address of the installation's database.
func (w *World) Database() string {
	if n := slices.Index(w.Flags, "--database"); n >= 0 {
		return w.Flags[n+1]
	}
	return "sqlite:" + filepath.Join(w.Data, "slipway.db")
}

// Storage is the directory of the storage of all sites.
func (w *World) Storage() string {
	if dir := os.Getenv(Volumes); dir != "" {
		return dir
	}
	if w.fleet != nil {
		return filepath.Join(w.Dir, "storage")
	}
	return filepath.Join(w.Data, "storage")
}

// Holds are the directories in which the installation keeps what belongs to sites, but for backups.
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

// Schemas is the pattern of the folders of all databases of sites.
func (w *World) Schemas() string {
	if !w.OwnServers() {
		return filepath.Join(w.Dir, "mariadb", "data", "s??????????????????????????")
	}
	return filepath.Join(w.Data, "mariadb", "owners", "*", "data", "s??????????????????????????")
}

// anyNode sends each request through any of its transports.
type anyNode []*http.Transport

func (a anyNode) RoundTrip(q *http.Request) (*http.Response, error) {
	return a[mathrand.IntN(len(a))].RoundTrip(q)
}

// CloseIdleConnections is called by that of the client.
func (a anyNode) CloseIdleConnections() {
	for _, t := range a {
		t.CloseIdleConnections()
	}
}
