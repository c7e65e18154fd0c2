package e2e

import (
	"archive/tar"
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"slipway/e2e/world"
)

// readyWithin is the --ready-within for programs that never become ready: 5 seconds, or SLIPWAY_E2E_READY_WITHIN for
// the numbers in docs/benchmarks.md.
var readyWithin = cmp.Or(os.Getenv("SLIPWAY_E2E_READY_WITHIN"), "5s")

// returned logs the time from the restart with the new program until the old one served again.
func returned(t *testing.T, what string, said *lines) {
	t.Helper()
	t.Logf("%s: the old program is back %.1f s after the restart", what, time.Since(said.at("in the place of")).Seconds())
}

// An upgrade under load fails no request. Neither does an upgrade to a program that doesn't start or hangs in a
// migration: the old program serves again, with all acknowledged writes. An upgrade to a program that answers with
// errors is undone too.
func TestUpgradeUnderLoad(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), world.Patience(4*time.Minute))
	defer cancel()
	m := newMachine(ctx, t, "")
	good, goodSum := release(t, m.program, "\nanother build")
	v := visit(ctx, t, m.World, m.site)
	write := m.writes(ctx, t, true)
	v.more(ctx, t)
	first := m.PID()
	if out, err := m.upgrade(ctx, good, goodSum, "--ready-within", "2m").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	now, err := os.Stat(m.Binary)
	if err != nil || now.Size() != int64(len(m.program)+len("\nanother build")) || m.PID() == first {
		t.Errorf("the new program is not what serves: %v", err)
	}
	v.more(ctx, t)
	for _, serve := range []string{"panics", "hangs", "errors"} {
		archive, sum := release(t, own(t), m.behaves(t, serve))
		if serve == "errors" { // requests get these errors until the upgrade is undone
			t.Logf("%d requests over an upgrade and two that were taken back", v.end())
			if written := write.end(); written == 0 {
				t.Error("nothing was written meanwhile")
			}
			write = m.writes(ctx, t, false)
		}
		// The program that returns errors becomes ready, the others don't.
		said, err := speak(m.upgrade(ctx, archive, sum, "--ready-within", map[bool]string{true: "2m", false: readyWithin}[serve == "errors"]))
		if err == nil || !strings.Contains(said.String(), "serves again") {
			t.Errorf("a program that %s: %v\n%s", serve, err, said)
		}
		returned(t, serve, said)
		if back, err := os.Stat(m.Binary); err != nil || !os.SameFile(back, now) {
			t.Errorf("%s: the program of before is not back: %v", serve, err)
		}
		if serve != "errors" {
			v.more(ctx, t)
		}
	}
	m.well(ctx, t)
	write.end()
	write.kept(ctx, t)
}

// A power cut at any moment of an upgrade leaves one of the two programs installed. After the next start it serves with
// all acknowledged writes, and the previous program completes or undoes the upgrade.
func TestUpgradeSurvivesPowerCuts(t *testing.T) {
	t.Parallel()
	world.Long(t)
	ctx, cancel := context.WithTimeout(t.Context(), world.Patience(5*time.Minute))
	defer cancel()
	m := newMachine(ctx, t, "")
	good, goodSum := release(t, m.program, "\nanother build")
	bad, badSum := release(t, own(t), m.behaves(t, "panics"))
	half := httptest.NewTLSServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		f, err := os.Open(good)
		if err != nil {
			t.Error(err)
			return
		}
		defer f.Close()
		_, _ = io.CopyN(rw, f, int64(len(m.program)/2))
		_ = http.NewResponseController(rw).Flush()
		<-r.Context().Done()
	}))
	t.Cleanup(half.Close)
	roots := filepath.Join(m.Dir, "release-server.pem")
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: half.Certificate().Raw})
	if err := os.WriteFile(roots, cert, 0o600); err != nil {
		t.Fatal(err)
	}
	lies := func(pattern string) func(string) bool {
		return func(string) bool {
			found, err := filepath.Glob(pattern)
			return err == nil && found != nil
		}
	}
	says := func(what string) func(string) bool {
		return func(said string) bool { return strings.Contains(said, what) }
	}
	var u *exec.Cmd // the running upgrade
	for _, c := range []struct {
		at, archive, sum string
		reached          func(said string) bool
	}{
		{"download", half.URL + "/" + filepath.Base(good), goodSum, func(string) bool {
			return holds(u.Process.Pid, filepath.Dir(m.Binary)+"/.slipway-release-", int64(len(m.program)/4))
		}},
		{"unpacked", good, goodSum, lies(m.Binary + ".new")},
		{"copy of the database", good, goodSum, lies(filepath.Join(m.Data, "upgrade", "slipway.db"))},
		{"verified", good, goodSum, says("is verified")},
		{"replaced", good, goodSum, says("in the place of")},
		{"ready", good, goodSum, says("watching")},
		{"replaced by a bad one", bad, badSum, says("in the place of")},
		{"going back", bad, badSum, says("Going back")},
	} {
		write := m.writes(ctx, t, false)
		u = m.upgrade(ctx, c.archive, c.sum, "--ready-within", map[bool]string{true: readyWithin, false: "2m"}[c.archive == bad])
		u.Env = append(os.Environ(), "SSL_CERT_FILE="+roots)
		u.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		said := &lines{}
		u.Stdout, u.Stderr = said, said
		if err := u.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- u.Wait() }()
		for cut := false; !cut; {
			select {
			case err := <-ended:
				t.Fatalf("%s: it ended before the cut: %v\n%s", c.at, err, said)
			case <-ctx.Done():
				t.Fatalf("%s: never reached\n%s", c.at, said)
			case <-time.After(time.Millisecond):
				cut = c.reached(said.String())
			}
		}
		_ = syscall.Kill(-u.Process.Pid, syscall.SIGKILL)
		<-ended
		m.cut()
		write.end()

		// At boot, the service starts, and slipway-upgrade.service if there is a previous program.
		booted := time.Now()
		m.boot(t)
		out, err := []byte("there is no program from before"), error(nil)
		if _, missing := os.Stat(m.Binary + ".previous"); missing == nil {
			c := m.upgrade(ctx, "", "", "--continue", "--ready-within", map[bool]string{true: readyWithin, false: "2m"}[c.archive == bad])
			c.Path = m.Binary + ".previous"
			out, err = c.CombinedOutput()
		}
		m.well(ctx, t)
		took := time.Since(booted)
		write.kept(ctx, t)
		var state struct{ Step, Outcome string }
		if text, err := os.ReadFile(filepath.Join(m.Data, "upgrade", "state.json")); err == nil {
			if err := json.Unmarshal(text, &state); err != nil || state.Step != "ended" || state.Outcome == "stuck" {
				t.Errorf("%s: the upgrade is left as %s: %v", c.at, text, err)
			}
		}
		t.Logf("power cut at %q: %s, %.1f s after the boot; %v %s", c.at, state.Outcome, took.Seconds(), err, bytes.TrimSpace(out))
	}
	// The next upgrade works.
	if out, err := m.upgrade(ctx, good, goodSum, "--ready-within", "2m").CombinedOutput(); err != nil {
		t.Errorf("the next upgrade: %v\n%s", err, out)
	}
}

// A full disk stops an upgrade before it changes anything. If the new program fills the disk, the old one can still be
// restored.
func TestUpgradeOnAFullDisk(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("mounting a small disk needs root")
	}
	ctx, cancel := context.WithTimeout(t.Context(), world.Patience(4*time.Minute))
	defer cancel()
	m := newMachine(ctx, t, "300m")
	good, goodSum := release(t, m.program, "\nanother build")
	write := m.writes(ctx, t, false)
	v := visit(ctx, t, m.World, m.site)

	// The download doesn't fit on the program's own disk.
	tight := filepath.Join(m.Dir, "tight")
	disk(t, tight, fmt.Sprint(len(m.program)+16<<20))
	if err := os.WriteFile(filepath.Join(tight, "slipway"), m.program, 0o755); err != nil {
		t.Fatal(err)
	}
	c := m.upgrade(ctx, good, goodSum)
	c.Path = filepath.Join(tight, "slipway")
	if out, err := c.CombinedOutput(); err == nil || !strings.Contains(string(out), "no space left") {
		t.Errorf("a download that doesn't fit: %v\n%s", err, out)
	}
	if left, err := os.ReadDir(tight); err != nil || len(left) != 1 {
		t.Errorf("a download that didn't fit leaves %v, %v", left, err)
	}

	// The copy of the database doesn't fit.
	first := m.PID()
	installed, err := os.Stat(m.Binary)
	if err != nil {
		t.Fatal(err)
	}
	filler := filepath.Join(m.Data, "filler")
	if err := fill(filler, 64<<20); err != nil {
		t.Fatal(err)
	}
	if out, err := m.upgrade(ctx, good, goodSum).CombinedOutput(); err == nil || !strings.Contains(string(out), "MiB left") {
		t.Errorf("without room for a copy: %v\n%s", err, out)
	}
	if now, err := os.Stat(m.Binary); err != nil || !os.SameFile(now, installed) || m.PID() != first {
		t.Errorf("without room for a copy something was changed: %v", err)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}

	// The new program fills the disk during its migration. No request fails, here or in the earlier steps.
	v.more(ctx, t)
	archive, sum := release(t, own(t), m.behaves(t, "fills"))
	said, err := speak(m.upgrade(ctx, archive, sum, "--ready-within", readyWithin))
	if err == nil || !strings.Contains(said.String(), "serves again") {
		t.Errorf("a program that fills the disk: %v\n%s", err, said)
	}
	returned(t, "fills the disk", said)
	if _, err := os.Stat(filler); err != nil {
		t.Errorf("the disk was not filled: %v", err)
	}
	v.more(ctx, t)
	m.well(ctx, t)
	write.end()
	write.kept(ctx, t)
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	if out, err := m.upgrade(ctx, good, goodSum, "--ready-within", "2m").CombinedOutput(); err != nil {
		t.Errorf("with room again: %v\n%s", err, out)
	}
	v.more(ctx, t)
	t.Logf("%d requests", v.end())
}

// upgrading is a machine with an installed program, a service manager and a site.
type upgrading struct {
	*world.World
	key, site, manager string
	program            []byte

	mu  sync.Mutex // guards off
	off bool
}

// newMachine installs the program and starts it with sockets, as systemd does. With size, its data is on a separate
// disk of that size.
func newMachine(ctx context.Context, t *testing.T, size string) *upgrading {
	t.Helper()
	dir := t.TempDir()
	m := &upgrading{}
	var err error
	if m.program, err = os.ReadFile(binary); err != nil {
		t.Fatal(err)
	}
	installed := filepath.Join(dir, "bin", "slipway")
	if err := os.MkdirAll(filepath.Dir(installed), 0o755); err != nil {
		t.Fatal(err)
	}
	before := m.program
	if old := os.Getenv("SLIPWAY_E2E_BEFORE"); old != "" { // an earlier release's program, to be upgraded to this one
		if before, err = os.ReadFile(old); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(installed, before, 0o755); err != nil {
		t.Fatal(err)
	}
	if m.World, err = world.New(installed, dir); err != nil {
		t.Fatal(err)
	}
	if size != "" {
		disk(t, m.Data, size)
	}
	t.Cleanup(m.Close)
	if m.key, err = m.User("ada@example.test"); err != nil {
		t.Fatal(err)
	}
	for _, addr := range []string{m.Listen, m.HTTP, m.HTTPS} {
		m.Sockets = append(m.Sockets, passed(t, addr))
	}
	if err := m.Start(ctx); err != nil {
		t.Fatal(err)
	}
	m.site = newSite(ctx, t, m.World, m.key)
	manager := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.off || r.URL.Path != "/restart" {
			http.Error(rw, "not asked for here", http.StatusBadRequest)
			return
		}
		_ = m.Stop(ctx) // fails if it has already exited
		if err := m.Launch(); err != nil {
			http.Error(rw, err.Error(), http.StatusInternalServerError)
		}
	}))
	t.Cleanup(manager.Close)
	m.manager = manager.URL
	return m
}

// upgrade returns the upgrade command. By default, the new program is watched for two seconds.
func (m *upgrading) upgrade(ctx context.Context, archive, sum string, more ...string) *exec.Cmd {
	args := []string{
		"upgrade", "--data-dir", m.Data, "--listen", m.Listen, "--edge-https", m.HTTPS, "--watch", "2s",
		"--service-command", "curl --fail --silent --show-error " + m.manager + "/ACTION",
	}
	if archive != "" {
		args = append(args, archive, "--sha256", sum)
	}
	return exec.CommandContext(ctx, m.Binary, append(args, more...)...)
}

// cut simulates a power cut: it kills the program, and the manager starts nothing.
func (m *upgrading) cut() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.off = true
	m.Kill()
}

// boot starts the installed program, even if it doesn't work.
func (m *upgrading) boot(t *testing.T) {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.off = false
	if err := m.Launch(); err != nil {
		t.Fatal(err)
	}
}

// holds reports whether a process has an open file of at least this size whose path begins with name.
func holds(pid int, name string, bytes int64) bool {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	for _, f := range files {
		if to, err := os.Readlink(f); err == nil && strings.HasPrefix(to, name) {
			if info, err := os.Stat(f); err == nil && info.Size() >= bytes {
				return true
			}
		}
	}
	return false
}

// well checks that the running program is the installed one, and that the site answers.
func (m *upgrading) well(ctx context.Context, t *testing.T) {
	t.Helper()
	if err := m.Ready(ctx); err != nil {
		t.Fatal(err)
	}
	exe, err := os.Stat(fmt.Sprintf("/proc/%d/exe", m.PID()))
	file, err2 := os.Stat(m.Binary)
	if err := errors.Join(err, err2); err != nil || !os.SameFile(exe, file) {
		t.Errorf("what serves is not what is installed: %v", err)
	}
	if out, err := exec.CommandContext(ctx, m.Binary, "version").Output(); err != nil || !bytes.HasPrefix(out, []byte("slipway ")) {
		t.Errorf("what is installed: %v %s", err, out)
	}
	browser, err := m.Browser()
	if err != nil {
		t.Fatal(err)
	}
	if err := world.Until(ctx, 50*time.Millisecond, func() (bool, error) {
		a, err := m.Site(ctx, browser, world.Request{Method: "GET", URL: m.site})
		return err == nil && a.Status == 200 && string(a.Body) == "It floats.", err
	}); err != nil {
		t.Errorf("the site: %v", err)
	}
}

// writes creates about ten sites per second and records those that were acknowledged.
type writes struct {
	m    *upgrading
	stop context.CancelFunc
	done chan struct{}
	ids  []string // read after done
}

// writes starts writing. With strict, each write must be acknowledged.
func (m *upgrading) writes(ctx context.Context, t *testing.T, strict bool) *writes {
	t.Helper()
	ctx, stop := context.WithCancel(ctx)
	w := &writes{m: m, stop: stop, done: make(chan struct{})}
	asks := ctx // without strict, a request may never get an answer, so it ends with ctx
	if strict {
		asks = context.WithoutCancel(ctx)
	}
	pace := time.NewTicker(100 * time.Millisecond)
	go func() {
		defer close(w.done)
		defer pace.Stop()
		for n := 0; ; n++ {
			select {
			case <-ctx.Done():
				return
			case <-pace.C:
			}
			var made struct{ Data struct{ ID string } }
			// A new connection each time, because a kept one may be closed just when a request is sent.
			a, err := m.Do(asks, world.Request{
				Method: "POST", Path: "/sites", Key: m.key, Header: http.Header{"Connection": {"close"}},
				Body: map[string]string{"name": fmt.Sprint("Written ", n), "type": "static", "source": "upload"},
			})
			if err == nil {
				err = a.Err()
			}
			if err == nil {
				err = a.JSON(&made)
			}
			switch {
			case err == nil:
				w.ids = append(w.ids, made.Data.ID)
			case strict:
				t.Errorf("a write, at %s: %v\n%s", time.Now().Format(time.StampMilli), err, m.Log(6000))
				return
			}
		}
	}()
	t.Cleanup(func() { w.end() })
	return w
}

// end stops writing and returns the number of acknowledged writes.
func (w *writes) end() int {
	w.stop()
	<-w.done
	return len(w.ids)
}

// kept checks that each acknowledged write still exists.
func (w *writes) kept(ctx context.Context, t *testing.T) {
	t.Helper()
	for _, id := range w.ids {
		if err := w.m.Call(ctx, w.m.key, "GET", "/sites/"+id, nil, nil); err != nil {
			t.Errorf("an acknowledged write is lost: %v", err)
		}
	}
	t.Logf("%d acknowledged writes are there", len(w.ids))
}

// lines collects a process's output while it runs.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
	when map[string]time.Time // output → time at which it was written
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.when == nil {
		l.when = map[string]time.Time{}
	}
	l.when[string(b)] = time.Now()
	return l.text.Write(b)
}

// at returns when a text was written, or the current time if it wasn't.
func (l *lines) at(what string) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	for said, at := range l.when {
		if strings.Contains(said, what) {
			return at
		}
	}
	return time.Now()
}

// speak runs a command and returns its output.
func speak(c *exec.Cmd) (*lines, error) {
	said := &lines{}
	c.Stdout, c.Stderr = said, said
	return said, c.Run()
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// disk mounts a file system of this size.
func disk(t *testing.T, at, size string) {
	t.Helper()
	if err := os.MkdirAll(at, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", at, "tmpfs", 0, "mode=0700,size="+size); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(at, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
}

// fill creates a file that leaves this many bytes free on its disk.
func fill(file string, leave int64) error {
	var disk unix.Statfs_t
	if err := unix.Statfs(filepath.Dir(file), &disk); err != nil {
		return err
	}
	f, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(unix.Fallocate(int(f.Fd()), 0, 0, int64(disk.Bavail)*disk.Bsize-leave), f.Close())
}

// release writes a release archive with a program, to which end is appended, and returns its path and SHA-256.
func release(t *testing.T, program []byte, end string) (archive, sum string) {
	t.Helper()
	archive = filepath.Join(t.TempDir(), fmt.Sprintf("slipway_9.9.9_linux_%s.tar.gz", runtime.GOARCH))
	f, err := os.Create(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	h := sha256.New()
	b := bufio.NewWriterSize(io.MultiWriter(f, h), 1<<20)
	z, err := gzip.NewWriterLevel(b, gzip.NoCompression)
	if err != nil {
		t.Fatal(err)
	}
	tw := tar.NewWriter(z)
	if err := tw.WriteHeader(&tar.Header{Name: "slipway_9.9.9/slipway", Mode: 0o755, Size: int64(len(program) + len(end))}); err != nil {
		t.Fatal(err)
	}
	_, err = tw.Write(program)
	if err == nil {
		_, err = tw.Write([]byte(end))
	}
	if err := errors.Join(err, tw.Close(), z.Close(), b.Flush()); err != nil {
		t.Fatal(err)
	}
	return archive, hex.EncodeToString(h.Sum(nil))
}
