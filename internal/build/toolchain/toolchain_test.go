package toolchain

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/rand"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"slipway/internal/platform/egress"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/sandbox"
)

const testUID = 234568

func TestMain(m *testing.M) {
	for _, program := range []string{"npm", "node", "bwrap"} {
		if _, err := exec.LookPath(program); err != nil {
			fmt.Fprintf(os.Stderr, "these tests need %s: apt-get install nodejs npm bubblewrap\n", program)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

// registry is a small npm registry for the tests' packages.
type registry struct {
	*httptest.Server
	mu       sync.Mutex // guards packages
	packages map[string]map[string]*published
	lists    atomic.Int64 // package documents served
	tarballs atomic.Int64
	broken   atomic.Bool
	slow     chan struct{} // tarballs wait for it, if not nil
}

type published struct {
	manifest map[string]any
	tarball  []byte
}

func newRegistry(t testing.TB) *registry {
	r := &registry{packages: map[string]map[string]*published{}}
	r.Server = httptest.NewServer(r)
	t.Cleanup(r.Close)
	return r
}

func (r *registry) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	if r.broken.Load() {
		http.Error(w, "down", http.StatusServiceUnavailable)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	name := strings.TrimPrefix(q.URL.Path, "/") // the slash of a scope arrives as %2f and is decoded
	if pkg, v, ok := strings.Cut(name, "/-/"); ok {
		p := r.packages[pkg][strings.TrimSuffix(v, ".tgz")]
		if p == nil {
			http.NotFound(w, q)
			return
		}
		r.tarballs.Add(1)
		if r.slow != nil {
			r.mu.Unlock()
			select {
			case <-r.slow:
			case <-q.Context().Done():
			}
			r.mu.Lock()
		}
		w.Write(p.tarball)
		return
	}
	all := r.packages[name]
	if all == nil {
		http.NotFound(w, q)
		return
	}
	r.lists.Add(1)
	doc := map[string]any{"name": name}
	versions, last := map[string]any{}, ""
	for v, p := range all {
		sum := sha512.Sum512(p.tarball)
		m := map[string]any{"name": name, "version": v, "dist": map[string]any{
			"tarball":   "http://" + q.Host + "/" + name + "/-/" + v + ".tgz",
			"integrity": "sha512-" + base64.StdEncoding.EncodeToString(sum[:]),
		}}
		for k, x := range p.manifest {
			m[k] = x
		}
		versions[v], last = m, max(last, v)
	}
	doc["versions"], doc["dist-tags"] = versions, map[string]string{"latest": last}
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(doc)
}

// entry describes a tar entry.
type entry struct {
	name, text string
	link       string
	kind       byte
}

// put publishes a package with these entries.
func (r *registry) put(pkg, v string, manifest map[string]any, entries ...entry) {
	var buf bytes.Buffer
	z := gzip.NewWriter(&buf)
	w := tar.NewWriter(z)
	full := map[string]any{"name": pkg, "version": v}
	for k, x := range manifest {
		full[k] = x
	}
	text, _ := json.Marshal(full)
	for _, e := range append(entries, entry{name: "package/package.json", text: string(text)}) {
		kind := e.kind
		if kind == 0 {
			kind = tar.TypeReg
		}
		h := &tar.Header{Name: e.name, Mode: 0o755, Size: int64(len(e.text)), Typeflag: kind, Linkname: e.link}
		if err := w.WriteHeader(h); err != nil {
			panic(err)
		}
		w.Write([]byte(e.text))
	}
	w.Close()
	z.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.packages[pkg] == nil {
		r.packages[pkg] = map[string]*published{}
	}
	r.packages[pkg][v] = &published{manifest: full, tarball: buf.Bytes()}
}

// says returns a program that prints a line.
func says(line string) string { return "#!/bin/sh\necho " + line + "\n" }

func (r *registry) putNode(t testing.TB, v string) {
	r.put(nodePkg(t), v, nil, entry{name: "package/bin/node", text: says("v" + v)})
}

func (r *registry) putManager(pkg, v, node string, bins ...string) {
	m := map[string]any{"bin": map[string]string{}}
	if node != "" {
		m["engines"] = map[string]string{"node": node}
	}
	for _, b := range bins {
		m["bin"].(map[string]string)[b] = "./bin/" + b + ".js"
	}
	var entries []entry
	for _, b := range bins {
		entries = append(entries, entry{name: "package/bin/" + b + ".js", text: says(v)})
	}
	r.put(pkg, v, m, entries...)
}

func nodePkg(t testing.TB) string { return "node-linux-" + plainToolchain(t, newDir(t), nil).arch }

// newDir returns a directory that other users can access, unlike t.TempDir().
func newDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "toolchain-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// plainToolchain returns a toolchain without a sandbox, whose npm can connect to the test's registry.
func plainToolchain(t testing.TB, dir string, r *registry) *Toolchain {
	t.Helper()
	s, err := sandbox.NewPlain(sandbox.Config{Dir: filepath.Join(dir, "sandbox"), Cgroup: newCgroup(t)})
	if err != nil {
		t.Fatal(err)
	}
	c := Config{Dir: filepath.Join(dir, "tools"), Sandbox: s, UID: testUID, Log: testLog(t)}
	if r != nil {
		c.Registry = r.URL + "/"
	}
	tc, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return tc
}

// newCgroup returns the path of a new cgroup, and deletes it after the test.
func newCgroup(t testing.TB) string {
	t.Helper()
	path := "/slipway/test-" + strings.ToLower(rand.Text())
	t.Cleanup(func() {
		for _, pattern := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/*"} {
			list, _ := filepath.Glob(pattern + path)
			for _, dir := range list {
				if err := os.Remove(dir); err != nil {
					t.Errorf("a run left something behind: %v", err)
				}
			}
		}
	})
	return path
}

// testLog writes the operator's log to the test's log.
func testLog(t testing.TB) *slog.Logger { return slog.New(slog.NewTextHandler(t.Output(), nil)) }

// walledToolchain returns a toolchain like in production: with bubblewrap, and the proxy as the only connection to the
// outside.
func walledToolchain(t testing.TB, dir string, r *registry) *Toolchain {
	t.Helper()
	s, err := sandbox.New(sandbox.Config{Dir: filepath.Join(dir, "sandbox"), Cgroup: newCgroup(t)})
	if err != nil {
		t.Fatal(err)
	}
	out, err := egress.New(egress.Config{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
	if err != nil {
		t.Fatal(err)
	}
	proxy := out.Proxy(egress.ProxyConfig{
		Resolve: true,
		Direct:  map[string]string{"registry.test:80": r.Listener.Addr().String(), "registry.test": r.Listener.Addr().String()},
	})
	tc, err := New(Config{
		Dir:      filepath.Join(dir, "tools"),
		Sandbox:  s,
		UID:      testUID,
		Log:      testLog(t),
		Registry: "http://registry.test/",
		Network:  door(t, dir, proxy),
	})
	if err != nil {
		t.Fatal(err)
	}
	return tc
}

// door serves the proxy on a new socket for each run.
func door(t testing.TB, dir string, proxy *egress.Proxy) func(context.Context) (sandbox.Network, func(), error) {
	var n atomic.Int64
	return func(context.Context) (sandbox.Network, func(), error) {
		path := filepath.Join(dir, fmt.Sprintf("proxy-%d.sock", n.Add(1)))
		l, err := net.Listen("unix", path)
		if err != nil {
			return sandbox.Network{}, nil, err
		}
		if err := os.Chmod(path, 0o666); err != nil {
			return sandbox.Network{}, nil, err
		}
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() { defer close(done); proxy.Serve(ctx, l) }()
		return sandbox.Network{Proxy: path}, func() { cancel(); <-done }, nil
	}
}

// run runs one of the tools like a build.
func run(t testing.TB, tc *Toolchain, tools Tools, argv ...string) string {
	t.Helper()
	work := filepath.Join(newDir(t), "work")
	if err := os.Mkdir(work, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := sandbox.Own(work, testUID+1); err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	res, err := tc.c.Sandbox.Run(t.Context(), sandbox.Command{
		Argv:   argv,
		Work:   work,
		UID:    testUID + 1,
		Binds:  tools.Binds,
		Stdout: &out,
		Stderr: &errs,
		Env:    append(slices.Clone(tools.Env), "PATH="+strings.Join(append(slices.Clone(tools.Path), sandboxPath...), ":")),
	})
	if err != nil || !res.OK() {
		t.Fatalf("run %v: %v, %v\n%s", argv, res, err, errs.String())
	}
	return strings.TrimSpace(out.String())
}

func TestReadyInTheSandbox(t *testing.T) {
	t.Parallel()
	r := newRegistry(t)
	r.putNode(t, "98.1.0")
	r.putNode(t, "98.2.0")
	r.putNode(t, "97.0.0")
	r.putManager("pnpm", "9.1.0", ">=18", "pnpm", "pnpx")
	r.putManager("pnpm", "10.0.0", "<50", "pnpm", "pnpx")
	r.putManager("npm", "5.0.0", "", "npm")
	r.putManager("npm", "60.0.0", ">=99", "npm")
	tc := walledToolchain(t, newDir(t), r)
	var said []string
	want := Want{Node: "98", Manager: "pnpm", ManagerVersion: ">=9"}
	tools, err := tc.Ready(t.Context(), want, func(f string, a ...any) { said = append(said, fmt.Sprintf(f, a...)) })
	if err != nil {
		t.Fatal(err)
	}
	defer tools.Release()
	if tools.Node != "98.2.0" || tools.Manager != "9.1.0" {
		t.Errorf("got Node %s and pnpm %s, want 98.2.0 and 9.1.0, the newest that runs on it", tools.Node, tools.Manager)
	}
	if len(said) < 2 || !strings.Contains(said[0], "Node 98.2.0") || !strings.Contains(said[1], "pnpm 9.1.0") {
		t.Errorf("said %q", said)
	}
	if got := run(t, tc, tools, "node", "--version"); got != "v98.2.0" {
		t.Errorf("node in a build says %s", got)
	}
	if got := run(t, tc, tools, "pnpx"); got != "9.1.0" {
		t.Errorf("pnpx in a build says %s", got)
	}
	for _, b := range tools.Binds {
		if b.Write {
			t.Errorf("%s is writable for builds", b.Source)
		}
		filepath.Walk(b.Source, func(p string, st os.FileInfo, err error) error {
			if err != nil || st.Mode().Perm()&0o022 != 0 && st.Mode()&os.ModeSymlink == 0 {
				t.Errorf("%s has mode %v, %v", p, st.Mode(), err)
			}
			return nil
		})
	}
	for _, place := range []string{"new", "work"} {
		if list, err := os.ReadDir(filepath.Join(tc.c.Dir, place)); err != nil || len(list) > 0 {
			t.Errorf("%s holds %v after the installation, %v", place, list, err)
		}
	}
	// The second time everything is installed: nothing is requested or logged.
	lists, tarballs := r.lists.Load(), r.tarballs.Load()
	said = nil
	again, err := tc.Ready(t.Context(), want, func(f string, a ...any) { said = append(said, fmt.Sprintf(f, a...)) })
	if err != nil {
		t.Fatal(err)
	}
	again.Release()
	if again.Node != tools.Node || len(said) > 0 || r.lists.Load() != lists || r.tarballs.Load() != tarballs {
		t.Errorf(
			"the second time: %v, said %q, %d lists and %d tarballs more",
			again,
			said,
			r.lists.Load()-lists,
			r.tarballs.Load()-tarballs,
		)
	}
}

func TestHostIsUsedWhereItFits(t *testing.T) {
	t.Parallel()
	r := newRegistry(t)
	tc := plainToolchain(t, newDir(t), r)
	out, err := exec.Command("/usr/bin/env", "node", "--version").Output()
	if err != nil {
		t.Fatal(err)
	}
	v, _ := parseVersion(strings.TrimSpace(string(out)))
	for _, w := range []Want{
		{Manager: "npm"},
		{Node: ">=1", Manager: "npm", ManagerVersion: "*"},
		{Node: v.String()},
		{Node: fmt.Sprintf("v%d", v.major)},
		{Node: fmt.Sprintf("%d.x || 1", v.major)},
	} {
		tools, err := tc.Ready(t.Context(), w, nil)
		if err != nil {
			t.Fatalf("%+v: %v", w, err)
		}
		if len(tools.Path) > 0 || len(tools.Binds) > 0 || tools.Node != v.String() || (w.Manager != "") != (tools.Manager != "") {
			t.Errorf("%+v: got %+v, want the host's Node %s", w, tools, v)
		}
	}
	if n := r.lists.Load(); n > 0 {
		t.Errorf("the registry was asked %d times", n)
	}
	if tools, err := tc.Ready(t.Context(), Want{}, nil); err != nil || tools.Node != "" {
		t.Errorf("nothing wanted: %+v, %v", tools, err)
	}
	tc.search = []string{"/nonexistent"}
	if _, err := tc.Ready(t.Context(), Want{Manager: "npm"}, nil); !fault.Is(err, fault.Unavailable) {
		t.Errorf("without npm: %v", err)
	}
	if _, err := tc.Ready(t.Context(), Want{}, nil); err != nil {
		t.Errorf("nothing wanted, and no npm: %v", err)
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	r := newRegistry(t)
	r.putNode(t, "98.1.0")
	r.putManager("yarn", "1.22.22", "", "yarn", "yarnpkg")
	r.putManager("yarn", "2.4.3", "", "yarn")
	tc := plainToolchain(t, newDir(t), r)
	for name, tt := range map[string]struct {
		want Want
		kind fault.Kind
		text string
	}{
		"unknown major":   {Want{Node: "99"}, fault.Invalid, "Node 99 doesn't exist in the npm registry"},
		"unknown exact":   {Want{Node: "98.7.7"}, fault.Invalid, "Node 98.7.7 doesn't exist in the npm registry"},
		"not a version":   {Want{Node: "../../etc"}, fault.Invalid, `"../../etc" is not a version of Node`},
		"an option":       {Want{Node: "--registry=http://evil"}, fault.Invalid, `"--registry=http://evil" is not a version of Node`},
		"unknown manager": {Want{Manager: "cargo"}, fault.Invalid, `"cargo" is not a package manager that builds can use`},
		"manager range":   {Want{Manager: "yarn", ManagerVersion: "^1.99"}, fault.Invalid, "yarn ^1.99 doesn't exist in the npm registry"},
		"manager exact": {
			Want{Manager: "yarn", ManagerVersion: "1.22.23"},
			fault.Invalid,
			"yarn 1.22.23 doesn't exist in the npm registry",
		},
		"package missing":  {Want{Manager: "pnpm", ManagerVersion: "^9"}, fault.Invalid, "pnpm ^9 doesn't exist in the npm registry"},
		"manager, no sane": {Want{Manager: "pnpm", ManagerVersion: "npm:evil@1"}, fault.Invalid, `"npm:evil@1" is not a version of pnpm`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := tc.Ready(t.Context(), tt.want, nil)
			if f := fault.As(err); f == nil || f.Kind != tt.kind || f.Message != tt.text {
				t.Errorf("Ready(%+v) = %v, want %q", tt.want, err, tt.text)
			}
		})
	}
}

func TestRegistryDown(t *testing.T) {
	t.Parallel()
	r := newRegistry(t)
	r.putNode(t, "98.1.0")
	tc := plainToolchain(t, newDir(t), r)
	tools, err := tc.Ready(t.Context(), Want{Node: "98"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	tools.Release()
	r.Close()
	_, err = tc.Ready(t.Context(), Want{Manager: "bun"}, nil)
	if f := fault.As(err); f == nil || f.Kind != fault.Unavailable || f.RetryAfter == 0 {
		t.Errorf("with a dead registry: %v, want a fault that may be retried", err)
	}
	// An installed version can be used even if the catalogue is old.
	now := time.Now()
	tc.now = func() time.Time { return now.Add(30 * 24 * time.Hour) }
	said := ""
	tools, err = tc.Ready(t.Context(), Want{Node: "98"}, func(f string, a ...any) { said += fmt.Sprintf(f, a...) })
	if err != nil || tools.Node != "98.1.0" || !strings.Contains(said, "does not answer") {
		t.Errorf("kept Node with a dead registry: %v, %v, said %q", tools, err, said)
	}
	tools.Release()
}

func TestOneDownloadForAll(t *testing.T) {
	t.Parallel()
	r := newRegistry(t)
	r.putNode(t, "98.1.0")
	dir := newDir(t)
	// Two toolchains with the same directory act as two processes, because flock separates them.
	a, b := plainToolchain(t, dir, r), plainToolchain(t, dir, r)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			tools, err := []*Toolchain{a, b}[i%2].Ready(t.Context(), Want{Node: "98.1.0"}, nil)
			if err != nil || tools.Node != "98.1.0" {
				t.Errorf("Ready = %v, %v", tools, err)
			}
			tools.Release()
		})
	}
	wg.Wait()
	if n := r.tarballs.Load(); n != 1 {
		t.Errorf("the tarball was fetched %d times", n)
	}
}

func TestCancelAndCrashLeaveNothing(t *testing.T) {
	t.Parallel()
	r := newRegistry(t)
	r.putNode(t, "98.1.0")
	r.slow = make(chan struct{})
	tc := plainToolchain(t, newDir(t), r)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { _, err := tc.Ready(ctx, Want{Node: "98.1.0"}, nil); done <- err }()
	for r.tarballs.Load() == 0 {
		select {
		case err := <-done:
			t.Fatalf("ended early: %v", err)
		case <-time.After(time.Millisecond):
		}
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Fatalf("canceled: %v", err)
	}
	key := tc.nodePack(version{major: 98, minor: 1}).key()
	for _, place := range []string{"kept", "new", "work"} {
		if list, err := os.ReadDir(filepath.Join(tc.c.Dir, place)); err != nil || len(list) > 0 {
			t.Errorf("%s holds %v after a cancel, %v", place, list, err)
		}
	}
	// Simulate a power failure: incomplete tools under their working names.
	for _, place := range []string{"new/" + key + "/bin", "work/" + key + "/root/package/node_modules", "work/catalogue-pnpm/root"} {
		if err := os.MkdirAll(filepath.Join(tc.c.Dir, place), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(tc.c.Dir, "new", key, "bin", "node"), []byte(says("half")), 0o755); err != nil {
		t.Fatal(err)
	}
	close(r.slow)
	tools, err := tc.Ready(t.Context(), Want{Node: "98.1.0"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tools.Release()
	if got := run(t, tc, tools, "node"); got != "v98.1.0" {
		t.Errorf("after a crash node says %q", got)
	}
	if list, _ := os.ReadDir(filepath.Join(tc.c.Dir, "work")); len(list) > 0 {
		t.Errorf("the crash's leftovers are still there: %v", list)
	}
}

func TestHostilePackages(t *testing.T) {
	t.Parallel()
	r := newRegistry(t)
	mark := filepath.Join(newDir(t), "mark")
	pkg := nodePkg(t)
	r.put(pkg, "90.0.0", nil, entry{name: "package/bin/node", text: says("v91.0.0")})
	r.put(pkg, "90.0.1", nil, entry{name: "package/bin/node", kind: tar.TypeSymlink, link: "/bin/sh"})
	r.put(pkg, "90.0.2", nil, entry{name: "package/bin/node", text: says("v90.0.2")}, entry{name: mark, text: "x"},
		entry{
			name: "package/../../../../../../.." + mark,
			text: "x",
		}, entry{name: "package/out", kind: tar.TypeSymlink, link: "../../../.."},
		entry{name: "package/out/evil", text: "x"})
	r.put(pkg, "90.0.3", map[string]any{"scripts": map[string]string{"preinstall": "touch " + mark, "postinstall": "touch " + mark}},
		entry{name: "package/bin/node", text: says("v90.0.3")})
	r.put("pnpm", "9.0.0", map[string]any{"bin": map[string]string{"pnpm": "../../../../../../bin/sh"}})
	tc := plainToolchain(t, newDir(t), r)
	t.Run("each", func(t *testing.T) {
		for w, good := range map[Want]bool{
			{Node: "90.0.0"}: false, {Node: "90.0.1"}: false, {Node: "90.0.2"}: true, {Node: "90.0.3"}: true,
			{Manager: "pnpm", ManagerVersion: "9.0.0"}: false,
		} {
			t.Run(w.Node+w.ManagerVersion, func(t *testing.T) {
				t.Parallel()
				tools, err := tc.Ready(t.Context(), w, nil)
				if good {
					// npm itself skips dangerous entries. The remaining package is a tool.
					if err != nil {
						t.Fatal(err)
					}
					tools.Release()
				} else if err == nil {
					t.Errorf("Ready(%+v) took it", w)
				}
				if _, err := os.Lstat(mark); err == nil {
					t.Errorf("%+v made a file outside", w)
				}
			})
		}
	})
	list, _ := os.ReadDir(filepath.Join(tc.c.Dir, "kept"))
	if len(list) != 2 {
		t.Errorf("kept: %v, want the two good ones", list)
	}
}

func TestSweep(t *testing.T) {
	t.Parallel()
	r := newRegistry(t)
	tc := plainToolchain(t, newDir(t), r)
	clock := time.Now()
	tc.now = func() time.Time { clock = clock.Add(time.Minute); return clock }
	held := map[string]Tools{}
	for _, v := range []string{"90.0.0", "91.0.0", "92.0.0"} {
		r.put(nodePkg(t), v, nil, entry{
			name: "package/bin/node",
			text: says("v" + v),
		}, entry{name: "package/big", text: strings.Repeat("x", 1<<20)})
		tools, err := tc.Ready(t.Context(), Want{Node: v}, nil)
		if err != nil {
			t.Fatal(err)
		}
		held[v] = tools
	}
	kept := func() (out []string) {
		list, err := os.ReadDir(filepath.Join(tc.c.Dir, "kept"))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range list {
			out = append(out, strings.TrimPrefix(e.Name(), nodePkg(t)+"-"))
		}
		return out
	}
	// 90 is used again and released, 91 is always in use, and 92 is idle, so it is the oldest that may be deleted.
	tools, err := tc.Ready(t.Context(), Want{Node: "90.0.0"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	tools.Release()
	held["90.0.0"].Release()
	held["92.0.0"].Release()
	if err := tc.Sweep(t.Context(), 5<<19); err != nil {
		t.Fatal(err)
	}
	if got := kept(); !slices.Equal(got, []string{"90.0.0", "91.0.0"}) {
		t.Errorf("after the first sweep: %v", got)
	}
	if err := tc.Sweep(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	if got := kept(); !slices.Equal(got, []string{"91.0.0"}) {
		t.Errorf("a tool in use: %v, want 91.0.0 alone", got)
	}
	held["91.0.0"].Release()
	held["91.0.0"].Release()
	if err := tc.Sweep(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	if got := kept(); len(got) > 0 {
		t.Errorf("after all are released: %v", got)
	}
}
