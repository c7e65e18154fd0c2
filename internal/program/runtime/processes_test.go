package runtime

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"slipway/internal/platform/id"

	"slipway/internal/build/bundle"
	"slipway/internal/build/toolchain"
	"slipway/internal/platform/blob"
	"slipway/internal/platform/egress"
	"slipway/internal/platform/sandbox"
	"slipway/internal/platform/wait"
)

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// world is an engine with real components below it.
type world struct {
	*Processes
	t       testing.TB
	bundles *bundle.Bundles

	mu  sync.Mutex // guards out
	out []string
}

// users has the uids of the tests.
type users struct{}

func (users) UID(_ context.Context, site id.Site) (int, error) { return 234_600 + len(site), nil }

// changes implements the connections to services. It receives the sites whose database changed, and serves no
// connection.
type changes chan id.Site

func (c changes) Changed(site id.Site) { c <- site }
func (changes) DatabaseSocket(context.Context, Spec) (string, func(), error) {
	return "", nil, errors.New("no databases")
}
func (changes) ServeMail(context.Context, id.Site, net.Listener) {}

// ServeRedis serves no connection either.
func (changes) ServeRedis(context.Context, Spec, net.Listener) {}

func newWorld(t testing.TB) *world {
	t.Helper()
	dir, err := os.MkdirTemp("", "run-") // short: a unix socket's path must not be longer than 108 bytes
	ok(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	ok(t, os.Chmod(dir, 0o755))
	out, err := egress.New(egress.Config{})
	ok(t, err)
	runner, err := sandbox.New(sandbox.Config{Dir: filepath.Join(dir, "sandbox")})
	ok(t, err)
	tools, err := toolchain.New(toolchain.Config{
		Dir: filepath.Join(dir, "tools"), Sandbox: runner, UID: 234_599,
		Network: func(context.Context) (sandbox.Network, func(), error) { return sandbox.Network{}, func() {}, nil },
	})
	ok(t, err)
	blobs, err := blob.OpenDir(filepath.Join(dir, "blobs"))
	ok(t, err)
	w := &world{t: t}
	w.bundles, err = bundle.New(bundle.Config{Blobs: blobs, Dir: filepath.Join(dir, "bundles")})
	ok(t, err)
	w.Processes, err = NewProcesses(Config{
		Runner: runner, Bundles: w.bundles, Toolchain: tools, Egress: out, Dir: filepath.Join(dir, "p"),
		Users: users{},
	})
	ok(t, err)
	return w
}

// bundle stores a program.
func (w *world) bundle(files map[string]string) bundle.ID {
	w.t.Helper()
	dir := w.t.TempDir()
	for name, text := range files {
		at := filepath.Join(dir, name)
		ok(w.t, os.MkdirAll(filepath.Dir(at), 0o755))
		ok(w.t, os.WriteFile(at, []byte(text), 0o644))
	}
	root, err := os.OpenRoot(dir)
	ok(w.t, err)
	defer root.Close()
	s, err := w.bundles.Store(w.t.Context(), root, nil)
	ok(w.t, err)
	return s.ID
}

func (w *world) spec(name string, files map[string]string) Spec {
	return Spec{
		ID:     name,
		Site:   id.Site("site_" + name),
		Owner:  "usr_one",
		Bundle: w.bundle(files),
		Argv:   []string{"node", "server.js"},
		Limits: Limits{Memory: 256 << 20, Pids: 64, Disk: 64 << 20},
		Output: func(stream, line string) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.out = append(w.out, stream+" "+line)
		},
	}
}

func (w *world) start(s Spec) Program {
	w.t.Helper()
	p, err := w.Start(w.t.Context(), s)
	ok(w.t, err)
	w.t.Cleanup(func() { p.Stop(0) })
	return p
}

func (w *world) said() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Join(w.out, "\n")
}

// hears waits until a program has printed a text, which may come later than its answer.
func (w *world) hears(text string) {
	w.t.Helper()
	wait.Until(w.t, "a program prints "+text, func() bool { return strings.Contains(w.said(), text) }, w.said)
}

// client returns a client that reaches a program as the edge does.
func client(p Program) *http.Client {
	return &http.Client{
		Timeout:   20 * time.Second,
		Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return p.Dial(ctx) }},
	}
}

// get sends a request to a program, and waits until it listens.
func (w *world) get(p Program, path string) string {
	w.t.Helper()
	c := client(p)
	var text []byte
	wait.Until(w.t, "the program answers", func() bool {
		resp, err := c.Get("http://program" + path)
		if err == nil {
			defer resp.Body.Close()
			text, err = io.ReadAll(resp.Body)
			ok(w.t, err)
			return true
		}
		select {
		case <-p.Done():
			w.t.Fatalf("the program ended (%s) before it answered:\n%s", p.Exit().Reason, w.said())
		default:
		}
		return false
	}, w.said)
	return string(text)
}

const server = `
const http = require('http'), fs = require('fs'), net = require('net');
const tries = {
  env: () => JSON.stringify(process.env),
  tree: () => { try { fs.writeFileSync('/app/x', 'x'); return 'written' } catch (e) { return e.code } },
  tmp: () => { fs.writeFileSync('/tmp/x', 'x'); return 'written' },
  exit: () => { console.error('giving up'); setImmediate(() => process.exit(3)); return 'bye' },
  eat: () => { const all = []; for (;;) all.push(Buffer.alloc(1 << 20, 1)) },
};
http.createServer((q, r) => {
  const f = tries[q.url.slice(1)];
  if (q.url.startsWith('/dial/')) {
    const [host, port] = q.url.slice(6).split('/');
    const c = net.connect({host, port, timeout: 2000}, () => { r.end('connected'); c.destroy() });
    c.on('error', e => r.end(e.code || String(e)));
    c.on('timeout', () => { r.end('timeout'); c.destroy() });
    return;
  }
  r.end(f ? f() : 'hello ' + q.url);
}).listen(process.env.PORT, process.env.HOST, () => console.log('up'));
process.on('SIGTERM', () => { console.log('stopping'); process.exit(0) });
`

// NewForTest makes an engine for enginetest's tests, which run from another package.
func NewForTest(t testing.TB) (*Processes, func(files map[string]string) bundle.ID) {
	w := newWorld(t)
	w.c.Storage = w.c.Dir + "-storage"
	return w.Processes, w.bundle
}

// A program must answer on its own port, see only its own environment, be unable to change its files, have its output
// logged, and stop when asked to.
func TestProgram(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.spec("one", map[string]string{"server.js": server})
	s.Env, s.ReadOnly = []string{"GREETING=hi", "SLIPWAY_SITE_ID=site_one"}, true
	p := w.start(s)
	if got := w.get(p, "/x"); got != "hello /x" {
		t.Errorf("got %q", got)
	}
	env := w.get(p, "/env")
	for _, want := range []string{`"PORT":"3000"`, `"HOST":"127.0.0.1"`, `"NODE_ENV":"production"`, `"GREETING":"hi"`} {
		if !strings.Contains(env, want) {
			t.Errorf("no %s in %s", want, env)
		}
	}
	if home := os.Getenv("HOME"); strings.Contains(env, home+`"`) && home != "/" {
		t.Errorf("the host's environment is visible: %s", env)
	}
	if got := w.get(p, "/tree"); got != "EROFS" && got != "EACCES" {
		t.Errorf("writing to the program's own files: %s", got)
	}
	if got := w.get(p, "/tmp"); got != "written" {
		t.Errorf("writing to /tmp: %s", got)
	}
	p.Stop(20 * time.Second)
	if e := p.Exit(); e.Code != 0 {
		t.Errorf("stopped as %+v", e)
	}
	w.hears("stdout up")
	w.hears("stdout stopping")
	if left, err := os.ReadDir(w.c.Dir); err != nil || len(left) != 0 {
		t.Errorf("scratch space stays behind: %v %v", left, err)
	}
}

// Two programs must be able to use the same port, and must see neither each other nor the host.
func TestProgramsAreApart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	host, err := net.Listen("tcp", "127.0.0.1:0")
	ok(t, err)
	defer host.Close()
	a := w.start(w.spec("a", map[string]string{"server.js": strings.Replace(server, "'hello '", "'a '", 1)}))
	b := w.start(w.spec("bb", map[string]string{"server.js": strings.Replace(server, "'hello '", "'b '", 1)}))
	if got := w.get(a, "/x") + w.get(b, "/x"); got != "a /xb /x" {
		t.Errorf("got %q", got)
	}
	port := netip.MustParseAddrPort(host.Addr().String()).Port()
	for _, target := range []string{"127.0.0.1/" + strconv.Itoa(int(port)), "169.254.169.254/80", "10.0.0.1/80", "192.168.0.1/443"} {
		if got := w.get(a, "/dial/"+target); got == "connected" {
			t.Errorf("a program reached %s", target)
		}
	}
	if _, err := net.DialTimeout("tcp", "127.0.0.1:3000", time.Second); err == nil {
		t.Error("the program's port is open on the host")
	}
}

// When a program ends, the exit must say why: it ended by itself, or it took more memory than it may.
func TestProgramEnds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.start(w.spec("exits", map[string]string{"server.js": server}))
	w.get(p, "/exit")
	<-p.Done()
	if e := p.Exit(); e.Code != 3 || e.Reason != "exit code 3" || e.OutOfMemory {
		t.Errorf("the program ended as %+v", e)
	}
	if _, err := p.Dial(t.Context()); err == nil {
		t.Error("a program that has ended was dialed")
	}
	eater := w.start(w.spec("eats", map[string]string{"server.js": server}))
	w.get(eater, "/")
	if resp, err := client(eater).Get("http://program/eat"); err == nil {
		resp.Body.Close()
	}
	<-eater.Done()
	if e := eater.Exit(); !e.OutOfMemory || e.Reason != "out of memory" {
		t.Errorf("out of memory is %+v", e)
	}
	broken := w.start(w.spec("broken", map[string]string{"server.js": "throw new Error('no')"}))
	<-broken.Done()
	if e := broken.Exit(); e.Code != 1 {
		t.Errorf("the program ended as %+v", e)
	}
	w.hears("Error: no")
}

// A program must find its files at the path that its build wrote into them.
func TestProgramsFindTheBuildsPath(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.spec("paths", map[string]string{"page.txt": "found"})
	s.Argv = []string{"cat", "/build/repo/page.txt"}
	<-w.start(s).Done()
	w.hears("found")
}
