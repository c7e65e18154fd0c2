// Package world owns a complete test installation: the real program in its own process, a Git host to fetch from, and a
// receiver for webhooks.
//
// It uses the program only through its command line and its ports, so that tests and benchmarks see what users see.
// Everything listens on loopback and is stored in one folder. The only product packages that it uses are those that
// clean up after it.
package world

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Built is the environment variable for a folder with the built program and scripts, including withpostgres: linking
// them for each test package takes long.
const Built = "SLIPWAY_E2E_BUILT"

// Build builds the program into dir, and returns its path.
func Build(dir string) (string, error) {
	if built := os.Getenv(Built); built != "" {
		program := filepath.Join(dir, "slipway")
		text, err := os.ReadFile(filepath.Join(built, "slipway"))
		if err != nil {
			return "", err
		}
		return program, os.WriteFile(program, text, 0o755) // a copy, because other users may not have access to the folder
	}
	// One build at a time: the helper is written to the source folder.
	helper := filepath.Join(Root(), "internal", "platform", "sandbox")
	lock, err := os.Open(helper)
	if err == nil {
		defer lock.Close()
		err = unix.Flock(int(lock.Fd()), unix.LOCK_EX)
	}
	if err != nil {
		return "", err
	}
	for _, args := range [][]string{
		{"generate", helper},
		{"build", "-tags=slipway_init", "-o", dir + string(filepath.Separator), "./cmd/slipway"},
	} {
		cmd := exec.Command("go", args...)
		cmd.Dir = Root()
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, out)
		}
	}
	return filepath.Join(dir, "slipway"), nil
}

// Main builds the program, sets binary to its path, runs the tests, and deletes the program and everything that the
// tests started. It returns the exit status.
func Main(tests interface{ Run() int }, binary *string) int {
	if several() && os.Getenv(dsnVar) == "" {
		return onPostgres()
	}
	if os.Getenv(supervisedVar) == "" {
		return supervise()
	}
	dir, err := os.MkdirTemp("", "slipway-e2e-")
	if err == nil {
		defer os.RemoveAll(dir)
		err = os.Chmod(dir, 0o755) // some tests run it as another user
	}
	if err == nil {
		*binary, err = Build(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return tests.Run()
}

// Root returns the root of the source tree.
func Root() string {
	dir, err := os.Getwd()
	for err == nil {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			break
		}
		dir = filepath.Dir(dir)
	}
	panic("no go.mod above the working directory")
}

// World is one installation. Its methods are safe for concurrent use, except Start, Stop and Kill.
type World struct {
	Binary, Dir, Data string
	Listen, HTTP      string // host:port of the REST API, and of the sites without TLS
	HTTPS             string // host:port of the sites
	Git               *GitHost
	Hooks             *Receiver
	Flags             []string // additional flags of serve
	Env               []string // in addition to this process's own

	// Sockets are passed to serve as systemd would.
	Sockets []*os.File

	stopServers func() // operator's servers, if programs run elsewhere. Optional.

	fleet  *fleet // the nodes, instead of one process. Optional.
	client *http.Client
	mu     sync.Mutex // guards proc and roots
	proc   *process
	roots  *x509.CertPool // of the local authority, cached
}

// process is one run of the program.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it has exited
	err  error         // exit error; read after done
}

// New makes the Git host and the receiver, and chooses ports. It doesn't start the program.
func New(binary, dir string) (*World, error) {
	w := &World{Binary: binary, Dir: dir, Data: filepath.Join(dir, "data")}
	ports, err := FreePorts(3)
	if err != nil {
		return nil, err
	}
	w.Listen, w.HTTP, w.HTTPS = ports[0], ports[1], ports[2]
	if w.Git, err = newGitHost(filepath.Join(dir, "git")); err != nil {
		return nil, err
	}
	if w.Hooks, err = newReceiver(filepath.Join(dir, "receiver")); err != nil {
		w.Git.Close()
		return nil, err
	}
	limits := filepath.Join(dir, "limits.toml") // one user owns everything in a benchmark
	if err := os.WriteFile(limits,
		[]byte("[defaults]\nsites = \"unlimited\"\ndomains = \"unlimited\"\ndeployments.pending = \"unlimited\"\nwebhooks = \"unlimited\"\n"),
		0o600); err != nil {
		return nil, err
	}
	w.Flags = []string{
		"--limits", limits, "--outbound-allow", "127.0.0.0/8", "--outbound-allow", "::1/128", "--outbound-ca-file",
		w.Hooks.CA, "--git-host",
		"git.test=" + w.Git.URL,
		"--rate-limit", "1000000", "--registry", "local", "--drain-delay", "0s", "--browser", "none",
	}
	w.Env = append(w.Env, "SLIPWAY_NODEJS=host") // no flag: versions before 0.3.0 don't know it
	if several() {
		if w.fleet, err = newFleet(w); err != nil {
			w.Git.Close()
			w.Hooks.Close()
			return nil, err
		}
	}
	if elsewhere() && w.fleet == nil { // a fleet has its own
		if err := w.addMariaDB(); err != nil {
			w.Git.Close()
			w.Hooks.Close()
			return nil, err
		}
	}
	w.client = &http.Client{
		Transport:     w.transport(&http.Transport{MaxIdleConnsPerHost: 64, DisableCompression: true}),
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return w, nil
}

// Close kills the program, if it runs, and everything that it started, and stops the Git host and the receiver.
func (w *World) Close() {
	w.Kill()
	if w.fleet != nil {
		w.fleet.close()
	} else {
		clearGroups(w.Data)
	}
	if w.stopServers != nil {
		w.stopServers()
	}
	w.Git.Close()
	w.Hooks.Close()
	w.client.CloseIdleConnections()
}

// claims reserve this process's ports against other tests: while a claim is open, no other process can open one with
// the same name.
var claims struct {
	sync.Mutex
	of []net.Listener
}

// FreePorts returns unused addresses below the range of ports for outgoing connections (32768 and up on Linux). They
// stay reserved while the program is stopped between two runs.
func FreePorts(n int) ([]string, error) {
	var out []string
	for range 1000 {
		port := 10_000 + rand.IntN(22_000)
		// Reserved until this process ends, even while the program isn't running.
		claim, err := net.Listen("unix", fmt.Sprintf("@slipway-e2e-port-%d", port))
		if err != nil {
			continue
		}
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			claim.Close()
			continue
		}
		claims.Lock()
		claims.of = append(claims.of, claim)
		claims.Unlock()
		defer l.Close()
		out = append(out, l.Addr().String())
		if len(out) == n {
			return out, nil
		}
	}
	return nil, errors.New("no free ports")
}

// Args returns the arguments of serve.
func (w *World) Args(more ...string) []string {
	return slices.Concat([]string{
		"serve", "--data-dir", w.Data, "--listen", w.Listen, "--edge-http", w.HTTP, "--edge-https", w.HTTPS,
	}, w.Flags, more)
}

// Start starts the program and returns when it is ready, or with its last output if it exited. If its ports are in use,
// it tries again: a child that a killed program was just forking holds them until it calls exec.
func (w *World) Start(ctx context.Context) error {
	if w.fleet != nil {
		return w.fleet.start(ctx, w)
	}
	taken, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var err error
	_ = Until(taken, 100*time.Millisecond, func() (bool, error) {
		if err = w.Launch(); err == nil {
			err = w.Ready(ctx)
		}
		return err == nil || !strings.Contains(err.Error(), "address already in use"), err
	})
	return err
}

// Launch starts the program and returns immediately.
func (w *World) Launch() error {
	if w.fleet != nil {
		return w.fleet.each(w, (*World).Launch)
	}
	log, err := os.OpenFile(filepath.Join(w.Dir, "serve.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	program, args, err := w.serves()
	if err != nil {
		return err
	}
	cmd := exec.Command(program, args...)
	cmd.Dir, cmd.Env = w.Dir, append(os.Environ(), w.Env...)
	if len(w.Sockets) > 0 {
		// LISTEN_PID is the pid of the process that takes the sockets, which is the shell's, because exec keeps it.
		cmd = exec.Command("sh", append([]string{"-c", `LISTEN_PID=$$ exec "$0" "$@"`, program}, args...)...)
		cmd.Dir, cmd.ExtraFiles = w.Dir, w.Sockets
		cmd.Env = append(append(os.Environ(), w.Env...), fmt.Sprintf("LISTEN_FDS=%d", len(w.Sockets)))
	}
	cmd.Stdout, cmd.Stderr = log, log
	// If a test panics, the program must end. (The signal is sent when the thread that forked ends. Go ends only
	// threads that a goroutine locked.)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return err
	}
	p := &process{cmd: cmd, done: make(chan struct{})}
	go func() { p.err = cmd.Wait(); close(p.done) }()
	w.mu.Lock()
	w.proc = p
	w.mu.Unlock()
	return nil
}

// Ready waits until the program reports that it is ready.
func (w *World) Ready(ctx context.Context) error {
	if w.fleet != nil {
		return w.fleet.each(w, func(node *World) error { return node.Ready(ctx) })
	}
	w.mu.Lock()
	p := w.proc
	w.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute) // only a broken program takes this long
	defer cancel()
	for {
		answer, err := w.Do(ctx, Request{Method: "GET", URL: "http://" + w.Listen + "/readyz"})
		if err == nil && answer.Status == 200 {
			return nil
		}
		select {
		case <-p.done:
			return fmt.Errorf("slipway serve ended before it was ready: %v\n%s", p.err, w.Log(2000))
		case <-ctx.Done():
			return fmt.Errorf("slipway serve is not ready: %v\n%s", err, w.Log(2000))
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// Stop stops the program and returns its exit error; nil means status 0.
func (w *World) Stop(ctx context.Context) error {
	if w.fleet != nil {
		return w.fleet.each(w, func(node *World) error { return node.Stop(ctx) })
	}
	p := w.running()
	if p == nil {
		return errors.New("not running")
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-p.done:
		if p.err != nil {
			return fmt.Errorf("after SIGTERM: %w\n%s", p.err, w.Log(2000))
		}
		return nil
	case <-ctx.Done():
		w.Kill()
		return fmt.Errorf("slipway did not end after SIGTERM\n%s", w.Log(2000))
	}
}

// Kill sends SIGKILL to the program, if it runs, and returns when it has exited.
func (w *World) Kill() {
	if w.fleet != nil {
		_ = w.fleet.each(w, func(node *World) error { node.Kill(); return nil })
		return
	}
	if p := w.running(); p != nil {
		p.cmd.Process.Kill()
		<-p.done
	}
}

// PID returns the program's pid, of the first node if there are several, or 0.
func (w *World) PID() int {
	if w.fleet != nil {
		return w.fleet.nodes[0].PID()
	}
	if p := w.running(); p != nil {
		return p.cmd.Process.Pid
	}
	return 0
}

// Ended returns a channel that is closed when the program's current run ends, of the first node if there are several.
func (w *World) Ended() <-chan struct{} {
	if w.fleet != nil {
		return w.fleet.nodes[0].Ended()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.proc.done
}

func (w *World) running() *process {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.proc == nil {
		return nil
	}
	select {
	case <-w.proc.done:
		return nil
	default:
		return w.proc
	}
}

// Log returns the last bytes of the program's output.
func (w *World) Log(bytes int) string {
	if w.fleet != nil {
		return w.fleet.log(bytes)
	}
	text, err := os.ReadFile(filepath.Join(w.Dir, "serve.log"))
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-bytes):])
}

// CLI runs a command of the program on this installation's data.
func (w *World) CLI(stdin string, args ...string) (string, error) {
	cmd := exec.Command(w.Binary, append(args, "--data-dir", w.Data)...)
	for i, f := range w.Flags { // every command needs the data's location
		if f == "--database" {
			cmd.Args = append(cmd.Args, f, w.Flags[i+1])
		}
	}
	cmd.Stdin = strings.NewReader(stdin)
	var out, errs bytes.Buffer
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = w.Dir, append(os.Environ(), w.Env...), &out, &errs
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("slipway %s: %w: %s", strings.Join(args, " "), err, errs.String())
	}
	return strings.TrimSpace(out.String()), nil
}

// Password is every user's password.
const Password = "correct horse battery staple 9"

// User creates a user with an API key that has all scopes, or the given ones.
func (w *World) User(email string, scopes ...string) (key string, err error) {
	if _, err := w.CLI(Password+"\n", "user", "create", "--email", email); err != nil {
		return "", err
	}
	return w.Key(email, scopes...)
}

// Key creates another API key of a user.
func (w *World) Key(email string, scopes ...string) (key string, err error) {
	args := []string{"key", "create", "--user", email, "--name", "test"}
	for _, s := range scopes {
		args = append(args, "--scope", s)
	}
	return w.CLI("", args...)
}

// Trust returns the roots of the sites' certificates: the installation's own authority.
func (w *World) Trust() (*x509.CertPool, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.roots != nil {
		return w.roots, nil
	}
	pem, err := w.CLI("", "ca", "export")
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM([]byte(pem)) {
		return nil, errors.New("slipway ca export printed no certificate")
	}
	w.roots = pool
	return pool, nil
}
