package builder

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"slipway/internal/build/build"
	"slipway/internal/build/framework"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/sandbox"
	"slipway/internal/program/runtime"
)

// pods runs local processes instead of pods. The functions in serve serve one pod each, the last one also all later
// pods.
type pods struct {
	t     *testing.T
	serve []func(p *fakePod, o order, c net.Conn)

	mu   sync.Mutex // guards made
	made []*fakePod
}

// fakePod is a local process that acts as a pod.
type fakePod struct {
	runtime.Program
	spec runtime.Spec
	l    net.Listener
	done chan struct{}
	once sync.Once
	exit runtime.Exit
	conn net.Conn
}

func (p *pods) StartBuild(_ context.Context, s runtime.Spec, uid int, _ time.Duration) (runtime.Program, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	var o order
	if err := json.Unmarshal(s.Files[0].Text, &o); err != nil || uid != o.Job.UID+uidOffset {
		p.t.Errorf("order: %v, uid %d", err, uid)
	}
	x := &fakePod{spec: s, l: l, done: make(chan struct{})}
	p.mu.Lock()
	serve := p.serve[min(len(p.made), len(p.serve)-1)]
	p.made = append(p.made, x)
	p.mu.Unlock()
	go func() {
		raw, err := l.Accept()
		if err != nil {
			return
		}
		config, err := serverTLS(o)
		if err != nil {
			p.t.Error(err)
		}
		x.conn = tls.Server(raw, config)
		serve(x, o, x.conn)
		x.conn.Close()
		x.end(runtime.Exit{Reason: "exit code 0"})
	}()
	return x, nil
}

func (p *fakePod) end(e runtime.Exit) { p.once.Do(func() { p.exit = e; close(p.done) }) }

func (p *fakePod) Dial(ctx context.Context) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "tcp", p.l.Addr().String())
}
func (p *fakePod) Done() <-chan struct{} { return p.done }
func (p *fakePod) Exit() runtime.Exit    { <-p.done; return p.exit }
func (p *fakePod) Stop(time.Duration)    { p.l.Close(); p.end(runtime.Exit{Code: 137, Reason: "stopped"}) }

// real runs the build with the code that runs in real pods.
func real(t *testing.T) func(*fakePod, order, net.Conn) {
	return func(p *fakePod, o order, c net.Conn) {
		dir, err := os.MkdirTemp("", "inside-")
		if err != nil {
			t.Error(err)
		}
		defer os.RemoveAll(dir)
		_ = os.Chmod(dir, 0o755)
		for _, f := range p.spec.Files {
			if err := os.WriteFile(filepath.Join(dir, f.Path), f.Text, 0o644); err != nil {
				t.Error(err)
			}
		}
		// The error is ignored: the control plane may have closed the connection.
		_ = answer(place{dir: filepath.Join(dir, "own"), work: filepath.Join(dir, "work"), roots: filepath.Join(dir, rootsFile)}, o.Job, c)
	}
}

// said records what a build reports.
type said struct {
	mu  sync.Mutex
	all []string
}

func (s *said) add(text string) { s.mu.Lock(); defer s.mu.Unlock(); s.all = append(s.all, text) }

func (s *said) Line(level, message, raw string) { s.add(level + ": " + message) }
func (s *said) Enter(stage string)              { s.add("[" + stage + "]") }
func (s *said) Skip(stage string)               { s.add("[-" + stage + "]") }
func (s *said) Wait(int)                        {}
func (s *said) Begin()                          {}
func (s *said) String() string                  { s.mu.Lock(); defer s.mu.Unlock(); return strings.Join(s.all, "\n") }

func task(t *testing.T, commands ...string) build.Task {
	dir := t.TempDir()
	x := build.Task{
		ID: "dep_1", Site: "site_1", Owner: "usr_1", Source: filepath.Join(dir, "source"), Output: filepath.Join(dir, "output"), Cache: filepath.Join(dir, "pack"),
		Job: build.Job{
			UID: 201_234, Plan: framework.Plan{Name: "Test", Runtime: framework.Static, Output: "dist"}, Env: map[string]string{"A": "secret-value"},
			Secrets: []build.Secret{{Name: "A", Value: "secret-value"}}, Limits: sandbox.Defaults,
		},
	}
	for _, c := range commands {
		x.Plan.Build = append(x.Plan.Build, framework.Command{Shell: c})
	}
	for _, d := range []string{x.Source, x.Output} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(x.Source, "in.txt"), []byte("hello"), 0o644); err != nil {
		t.Fatal(err)
	}
	return x
}

func run(t *testing.T, x build.Task, serve ...func(*fakePod, order, net.Conn)) (build.Left, string, *pods, error) {
	p := &pods{t: t, serve: serve}
	var r said
	left, err := New(Config{Pods: p}).Build(t.Context(), x, &r)
	return left, r.String(), p, err
}

// A build runs in a pod, and its complete output is returned. Its secrets are only in the Kubernetes Secret, and not in
// the log.
func TestBuild(t *testing.T) {
	t.Parallel()
	x := task(t, "mkdir -p dist/sub && cp in.txt dist/index.html && ln -s index.html dist/link && cp in.txt dist/sub/run && chmod 755 dist/sub/run",
		"echo $A; mkfifo dist/pipe; mkdir dist/closed; echo 1 > dist/closed/a; chmod 0 dist/closed dist/index.html")
	left, log, p, err := run(t, x, real(t))
	if err != nil || left.Folder != "dist" {
		t.Fatalf("%+v, %v\n%s", left, err, log)
	}
	want := "[prepare]\n[-install]\n[build]\ninfo: $ mkdir"
	if !strings.HasPrefix(log, want) || !strings.Contains(log, "info: [secret]") || strings.Contains(log, "secret-value") ||
		!strings.HasSuffix(log, "[publish]\nwarn: Skipped \"pipe\": it is not a file") {
		t.Errorf("log:\n%s", log)
	}
	for name, want := range map[string]string{"index.html": "hello", "link": "hello", "sub/run": "hello", "closed/a": "1\n"} {
		if text, err := os.ReadFile(filepath.Join(x.Output, name)); err != nil || string(text) != want {
			t.Errorf("%s: %q, %v", name, text, err)
		}
	}
	if info, err := os.Stat(filepath.Join(x.Output, "sub/run")); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("%v, %v", info, err)
	}
	s := p.made[0].spec
	if len(s.Env) > 0 || strings.Contains(fmt.Sprint(s.Argv), "secret") || !s.Egress || s.Limits.Memory <= x.Limits.Memory {
		t.Errorf("spec: %+v", s)
	}
}

// A build in a pod trusts the operator's root certificates, like a build on the local machine.
func TestOperatorsRoots(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "roots")
	if err := os.WriteFile(file, []byte("the operator's"), 0o644); err != nil {
		t.Fatal(err)
	}
	x := task(t, `mkdir dist; cat "$NODE_EXTRA_CA_CERTS" > dist/roots`)
	p := &pods{t: t, serve: []func(*fakePod, order, net.Conn){real(t)}}
	if _, err := New(Config{Pods: p, CAFile: file}).Build(t.Context(), x, &said{}); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(filepath.Join(x.Output, "roots")); err != nil || string(got) != "the operator's" {
		t.Errorf("the program has the authorities %q, %v", got, err)
	}
}

// The next build, in another pod, gets the caches of this one. A failed build stores only the package stores.
func TestCaches(t *testing.T) {
	t.Parallel()
	x := task(t, "mkdir -p .cache dist ~/.store; echo 1 >> .cache/n; echo 1 >> ~/.store/n; cp .cache/n dist/cache; cp ~/.store/n dist/store; exit $CODE")
	x.Plan.Cache = []string{".cache", "~/.store"}
	for i, want := range []struct{ cache, store int }{{1, 1}, {2, 2}, {}, {1, 4}} {
		if err := empty(x.Output); err != nil {
			t.Fatal(err)
		}
		x.Env["CODE"] = "0"
		if want.cache == 0 {
			x.Env["CODE"] = "1"
		}
		_, log, _, err := run(t, x, real(t))
		if (err != nil) != (want.cache == 0) {
			t.Fatalf("%d: %v\n%s", i, err, log)
		}
		cache, _ := os.ReadFile(filepath.Join(x.Output, "cache"))
		store, _ := os.ReadFile(filepath.Join(x.Output, "store"))
		if len(cache) != 2*want.cache || len(store) != 2*want.store {
			t.Errorf("build %d has %q and %q", i, cache, store)
		}
	}
}

// Builds that fail in a pod report the same errors as on a single machine.
func TestFails(t *testing.T) {
	t.Parallel()
	_, log, _, err := run(t, task(t, "echo 'sh: 1: vite: not found' >&2; exit 127"), real(t))
	if f := fault.As(err); f == nil || f.Code != build.CodeFailed || !strings.HasPrefix(f.Message, "The build failed") || !strings.Contains(f.Details, "vite") {
		t.Errorf("%+v, %v\n%s", f, err, log)
	}
	x := task(t, "sleep 100")
	x.Limits.Wall = time.Second
	if _, _, _, err = run(t, x, real(t)); fault.As(err) == nil || !strings.Contains(fault.As(err).Details, "timed out") {
		t.Errorf("%v", err)
	}
	x = task(t, "head -c 30m /dev/zero > large; sleep 100")
	x.Limits.Disk = 10 << 20
	if _, _, _, err = run(t, x, real(t)); fault.As(err) == nil || !strings.Contains(fault.As(err).Details, "Disk full") {
		t.Errorf("%v", err)
	}
}

// Canceling a build ends it and its pod.
func TestCanceled(t *testing.T) {
	t.Parallel()
	why := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	p := &pods{t: t, serve: []func(*fakePod, order, net.Conn){real(t)}}
	r := &canceling{cancel: func() { cancel(why) }}
	_, err := New(Config{Pods: p}).Build(ctx, task(t, "echo here; sleep 100"), r)
	if !errors.Is(err, why) {
		t.Errorf("%v", err)
	}
	<-p.made[0].Done()
}

type canceling struct {
	said
	cancel func()
}

func (r *canceling) Line(_, message, _ string) {
	if message == "here" {
		r.cancel()
	}
}

// A build whose pod is lost starts again in another pod, up to a limit. A build that ends its own pod doesn't.
func TestLost(t *testing.T) {
	t.Parallel()
	ends := func(e runtime.Exit) func(*fakePod, order, net.Conn) {
		return func(p *fakePod, _ order, c net.Conn) {
			_, _, _ = readFrame(c)
			_ = writeFrame(c, frameGo, []byte("build"))
			_ = writeFrame(c, frameTree, []byte("half"))
			p.end(e)
		}
	}
	lost := ends(runtime.Exit{Code: 137, Reason: "the pod was deleted"})
	x := task(t, "mkdir dist; echo 1 > dist/a")
	_, log, p, err := run(t, x, lost, real(t))
	if err != nil || len(p.made) != 2 || !strings.Contains(log, "The cluster has lost the build: the pod was deleted. It starts again.") {
		t.Errorf("%d pods, %v\n%s", len(p.made), err, log)
	}
	_, _, p, err = run(t, task(t), lost)
	if f := fault.As(err); len(p.made) != attempts || f == nil || f.Kind != fault.Unavailable {
		t.Errorf("%d pods, %v", len(p.made), err)
	}
	for want, e := range map[string]runtime.Exit{
		"Out of memory":                      {Code: 137, Reason: "out of memory", OutOfMemory: true},
		"Disk full":                          {Code: 137, Reason: "disk limit"},
		"timed out":                          {Code: 137, Reason: "DeadlineExceeded: Pod was active on the node longer"},
		"look for a command that ends other": {Code: 137, Reason: "ended by signal SIGKILL"},
	} {
		_, _, p, err = run(t, task(t), ends(e))
		f := fault.As(err)
		if len(p.made) != 1 || f == nil || f.Code != build.CodeFailed || f.Message != "The build did not finish" || !strings.Contains(f.Details, want) {
			t.Errorf("%v: %d pods, %+v, %v", e, len(p.made), f, err)
		}
	}
}

// Invalid or malicious messages of a pod fail the build and write nothing outside the output folder.
func TestHostile(t *testing.T) {
	t.Parallel()
	receive := func(c net.Conn) {
		for ends := 0; ends < 2; { // of the source and of the cache
			kind, _, err := readFrame(c)
			if err != nil {
				return
			}
			if kind == frameEnd {
				ends++
			}
		}
	}
	sends := func(headers ...tar.Header) func(*fakePod, order, net.Conn) {
		return func(_ *fakePod, _ order, c net.Conn) {
			receive(c)
			var text bytes.Buffer
			w := tar.NewWriter(&text)
			for _, h := range headers {
				_ = w.WriteHeader(&h)
				if h.Typeflag == tar.TypeReg {
					_, _ = io.CopyN(w, zeros{}, h.Size)
				}
			}
			_ = w.Close()
			_, _ = treeWriter{func(kind byte, p []byte) error { return writeFrame(c, kind, p) }}.Write(text.Bytes())
			_ = writeFrame(c, frameEnd, []byte("{}"))
			_ = writeFrame(c, frameEnd, nil) // of the cache
			_, _ = c.Read(make([]byte, 1))
		}
	}
	file := func(name string, size int64) tar.Header {
		return tar.Header{Typeflag: tar.TypeReg, Name: name, Size: size, Mode: 0o4755}
	}
	link := func(name, to string) tar.Header {
		return tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: to}
	}
	outside := filepath.Join(t.TempDir(), "outside")
	if err := os.Mkdir(outside, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, bad := range map[string][]tar.Header{
		"out":      {file("../../escaped", 1)},
		"absolute": {file(outside+"/a", 1)},
		"device":   {{Typeflag: tar.TypeChar, Name: "dev"}},
		"twice":    {file("a", 1), file("a", 1)},
		"large":    {file("a", 600<<10), file("b", 600<<10)},
		"many":     make([]tar.Header, 60),
	} {
		for i := range bad {
			if bad[i].Name == "" {
				bad[i] = file(fmt.Sprint("n", i), 0)
			}
		}
		x := task(t)
		x.Limits.Disk, x.Limits.Files = 1<<20, 50
		if _, _, _, err := run(t, x, sends(bad...)); err == nil {
			t.Errorf("%s: taken", name)
		} else if f := fault.As(err); (name == "large" || name == "many") && (f == nil || f.Message != "The build's output is too large") {
			t.Errorf("%s: %v", name, err)
		}
	}
	x := task(t)
	if _, _, _, err := run(t, x, sends(link("l", outside), file("l/a", 1))); err == nil {
		t.Error("a link was accepted in place of a folder")
	}
	if left, _ := os.ReadDir(outside); len(left) > 0 {
		t.Errorf("written outside: %v", left)
	}
	x = task(t)
	if _, _, _, err := run(t, x, sends(file("a", 1))); err != nil {
		t.Error(err)
	}
	if info, err := os.Stat(filepath.Join(x.Output, "a")); err != nil || info.Mode() != 0o755 {
		t.Errorf("%v, %v", info, err)
	}

	value := func(v any) []byte { text, _ := json.Marshal(v); return text }
	_, log, _, err := run(t, task(t), func(_ *fakePod, _ order, c net.Conn) {
		receive(c)
		for _, l := range []line{
			{"info", "one\x1b[2J\n two", "\x1b[2J"}, {"odd", "x", ""}, {"error", "secret-value", "\x1b[31msecret-value\x1b[0m"},
		} {
			_ = writeFrame(c, frameLine, value(l))
		}
		for _, stage := range []string{"queue", "publish", "build", "publish", "odd"} {
			_ = writeFrame(c, frameGo, []byte(stage))
		}
		_ = writeFrame(c, frameSkip, []byte("odd"))
		_ = writeFrame(c, frameFail, value(failure{Fault: true, Kind: fault.Payment, Message: "Pay", Code: "pay"}))
		_, _ = c.Read(make([]byte, 1))
	})
	if err == nil || fault.As(err) != nil {
		t.Errorf("%v", err)
	}
	if want := "[prepare]\ninfo: one[2J two\nerror: [secret]\n[publish]"; log != want {
		t.Errorf("log:\n%s", log)
	}
	if _, _, _, err := run(t, task(t), func(_ *fakePod, _ order, c net.Conn) {
		receive(c)
		_, _ = c.Write([]byte{frameLine, 0xff, 0xff, 0xff, 0xff})
		_, _ = c.Read(make([]byte, 1))
	}); err == nil {
		t.Error("a frame of 4 GiB was accepted")
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }
