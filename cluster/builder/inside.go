package builder

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"slipway/cluster/pod"
	"slipway/internal/build/build"
	"slipway/internal/build/toolchain"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/sandbox"
	"slipway/internal/program/runtime"
)

// How long the control plane may take to connect, and to close the connection after receiving everything.
const (
	connectPatience = 5 * time.Minute
	closePatience   = time.Minute
)

// place holds the paths of a build in its pod.
type place struct {
	dir   string // the builder's own: tools, temporary homes
	work  string // the build's
	order string // file with the order
	roots string // file with the operator's roots, if there are any
	own   bool   // whether all processes but this one and the first are the build's
}

// Main runs the build as the pod's only program and returns the exit status.
func Main() int {
	files := func(name string) string { return filepath.Join(runtime.AppDir, name) }
	if err := serve(place{dir: "/tmp/slipway", work: sandbox.Root, order: files(orderFile), roots: files(rootsFile), own: true}); err != nil {
		fmt.Fprintln(os.Stderr, "slipway:", err)
		return 1
	}
	return 0
}

// serve waits for the control plane and runs one build.
func serve(p place) error {
	text, err := os.ReadFile(p.order)
	if err != nil {
		return err
	}
	var o order
	if err := json.Unmarshal(text, &o); err != nil {
		return fmt.Errorf("read the order: %w", err)
	}
	config, err := serverTLS(o)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(runtime.Port)))
	if err != nil {
		return err
	}
	_ = l.(*net.TCPListener).SetDeadline(time.Now().Add(connectPatience))
	raw, err := l.Accept()
	l.Close()
	if err != nil {
		return err
	}
	c := tls.Server(raw, config)
	defer c.Close()
	return answer(p, o.Job, c)
}

// answer runs a build for the other end of c until the connection ends.
func answer(p place, j build.Job, c net.Conn) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for _, dir := range []string{p.dir, p.work} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	out := &reporter{to: c, gone: cancel}
	source, kept := filepath.Join(p.work, ".source"), filepath.Join(p.work, ".kept")
	if err := receive(c, source, j.Limits); err != nil {
		return fmt.Errorf("receive the source: %w", err)
	}
	if err := receive(c, kept, j.Limits); err != nil {
		return fmt.Errorf("receive the cache: %w", err)
	}
	if err := sandbox.Own(kept, j.UID); err != nil { // if running as root
		return err
	}
	closed := make(chan struct{})
	go func() { // the other side sends nothing more, so an end of input cancels the build
		_, _ = c.Read(make([]byte, 1))
		cancel()
		close(closed)
	}()
	err := carryOut(ctx, p, j, source, kept, out)
	if ctx.Err() != nil {
		return errors.New("the control plane has gone")
	}
	if err != nil {
		out.fail(err)
	}
	if err := keep(kept, out); err != nil {
		fmt.Fprintln(os.Stderr, "slipway: send the cache:", err) // the build has succeeded without its cache
	} else {
		_ = out.frame(frameEnd, nil)
	}
	select {
	case <-closed:
	case <-time.After(closePatience):
	}
	return out.err
}

func receive(c io.Reader, dir string, l sandbox.Limits) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	return unpack(&treeReader{next: func() (byte, []byte, error) { return readFrame(c) }}, root, l.Disk, l.Files)
}

// keep sends the cache for the next build.
func keep(dir string, out *reporter) error {
	root, err := os.OpenRoot(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer root.Close()
	return pack(root, treeWriter{out.frame}, nil, nil)
}

func carryOut(ctx context.Context, p place, j build.Job, source, kept string, out *reporter) error {
	runner, err := newRunner(p)
	if err != nil {
		return err
	}
	t := toolchain.Config{Dir: filepath.Join(p.dir, "tools"), Sandbox: runner, UID: j.UID}
	if _, err := os.Stat(p.roots); err == nil {
		t.CAFile = p.roots
	}
	tools, err := toolchain.New(t)
	if err != nil {
		return err
	}
	c := build.Config{Runner: runner, Toolchain: tools, Dir: p.dir}
	return build.Alone(ctx, c, j, folder(source), p.work, kept, out, func(_ context.Context, a build.Artefact) error {
		skip := func(name string) bool { return name == ".git" || a.Skip != nil && a.Skip(name) }
		odd := func(name string) { out.Line("warn", fmt.Sprintf("Skipped %q: it is not a file", name), "") }
		if err := pack(a.Files, treeWriter{out.frame}, skip, odd); err != nil {
			return fmt.Errorf("send the artefact: %w", err)
		}
		text, err := json.Marshal(a.Left())
		if err != nil {
			return err
		}
		return out.frame(frameEnd, text)
	})
}

// runner runs commands as plain processes and kills everything they leave behind.
type runner struct {
	*sandbox.Plain
	own bool
}

func newRunner(p place) (sandbox.Runner, error) {
	plain, err := sandbox.NewPlain(sandbox.Config{Dir: filepath.Join(p.dir, "sandbox")})
	if err != nil {
		return nil, err
	}
	plain.Alone = true
	return runner{plain, p.own}, nil
}

// Run runs a command. If the kernel killed any of its processes for lack of memory, the result says so.
func (r runner) Run(ctx context.Context, c sandbox.Command) (sandbox.Result, error) {
	before := pod.OOMKills()
	res, err := r.Plain.Run(ctx, c)
	if r.own {
		_ = unix.Kill(-1, unix.SIGKILL) // all processes but this one and the entry point, including those hidden from the runner
	}
	if err == nil && !res.OK() && res.Killed == sandbox.NotKilled && pod.OOMKills() > before {
		res.OOM, res.Killed = true, sandbox.OutOfMemory
	}
	return res, err
}

// folder is the received checkout as a [build.Tree].
type folder string

func (f folder) ReadFile(_ context.Context, name string, limit int64) ([]byte, error) {
	root, err := os.OpenRoot(string(f))
	if err != nil {
		return nil, err
	}
	defer root.Close()
	file, err := open(root, name, unix.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, limit+1))
	if err == nil && int64(len(text)) > limit {
		return nil, errors.New("too large")
	}
	return text, err
}

func (f folder) Checkout(_ context.Context, dir string) error { return os.Rename(string(f), dir) }

// reporter sends a build's reports to the control plane.
type reporter struct {
	gone func() // called once sending fails

	mu  sync.Mutex // guards the fields below
	to  io.Writer
	err error
}

func (r *reporter) frame(kind byte, p []byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err == nil {
		r.err = writeFrame(r.to, kind, p)
		if r.err != nil {
			r.gone()
		}
	}
	return r.err
}

func (r *reporter) value(kind byte, v any) {
	if text, err := json.Marshal(v); err == nil {
		_ = r.frame(kind, text)
	}
}

func (r *reporter) Line(level, message, raw string) { r.value(frameLine, line{level, message, raw}) }
func (r *reporter) Enter(stage string)              { _ = r.frame(frameGo, []byte(stage)) }
func (r *reporter) Skip(stage string)               { _ = r.frame(frameSkip, []byte(stage)) }
func (r *reporter) Wait(int)                        {} // there is no queue
func (r *reporter) Begin()                          {}

func (r *reporter) fail(err error) {
	f := failure{Message: err.Error()}
	if e := fault.As(err); e != nil {
		f = failure{Fault: true, Kind: e.Kind, Message: e.Message, Details: e.Details, Code: e.Code}
	}
	r.value(frameFail, f)
}
