package sandbox

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"

	"slipway/internal/platform/fault"
	"slipway/internal/platform/sandbox/cgroup"
	"slipway/internal/platform/sandbox/inside"
	"slipway/internal/platform/text"
)

func signalIgnore(s unix.Signal) { signal.Ignore(s) }

const (
	testUID  = 234567
	plainUID = 65534
)

func isRoot() bool { return os.Geteuid() == 0 }

// siteUID returns a uid as callers pass it. A plain user's sandbox ignores it.
func siteUID() int { return testUID }

func newSandbox(t testing.TB) *Bubblewrap {
	t.Helper()
	b, err := New(Config{Dir: filepath.Join(t.TempDir(), "state"), Self: helper})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { removeParents(b.engine) })
	return b
}

// removeParents removes the test's parent cgroups. Another test checks that their children are gone.
func removeParents(e engine) {
	for _, h := range e.hs {
		_ = os.Remove(filepath.Join(h.Point, e.parent))
	}
}

func newWork(t testing.TB) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "closed", "work")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := Own(dir, siteUID()); err != nil {
		t.Fatal(err)
	}
	return dir
}

func small() Limits {
	return Limits{Memory: 192 << 20, Pids: 64, Disk: 64 << 20, Wall: 30 * time.Second}
}

// As a plain user, all tests pass too.
func TestAsPlainUser(t *testing.T) {
	if !isRoot() {
		return // already running as a plain user
	}
	t.Parallel()
	dir, err := os.MkdirTemp("", "sandbox-user-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	bin := filepath.Join(dir, "sandbox.test")
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	syscall.ForkLock.RLock() // otherwise another test's child, between fork and exec, may hold the file open and make it busy
	err = os.WriteFile(bin, self, 0o755)
	syscall.ForkLock.RUnlock()
	if err != nil {
		t.Fatal(err)
	}
	if err := Own(dir, plainUID); err != nil {
		t.Fatal(err)
	}
	// TestNoShell needs the sources, which aren't there.
	c := exec.Command(bin, "-test.run=^Test", "-test.skip=^TestNoShell$", "-test.timeout=120s")
	c.Dir = dir
	c.Env = []string{"PATH=" + os.Getenv("PATH"), "TMPDIR=" + dir, "HOME=" + dir}
	if raced {
		c.Env = append(c.Env, helperVar+"="+helper)
	}
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: plainUID, Gid: plainUID, Groups: []uint32{}}}
	if out, err := c.CombinedOutput(); err != nil {
		t.Errorf("as a plain user: %v\n%s", err, out)
	}
}

func TestRunShowsOnlyItsOwnWorld(t *testing.T) {
	t.Parallel()
	b, work := newSandbox(t), newWork(t)
	cache, ro := newWork(t), newWork(t)
	if err := os.MkdirAll(filepath.Join(work, "src"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := Own(work, siteUID()); err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	res, err := b.Run(t.Context(), Command{
		Argv: attackArgv("show"), Work: work, Dir: "/build/src", UID: siteUID(), Limits: small(),
		Env:   []string{"TOKEN=s3cret", "HOME=/elsewhere", "TOKEN=s3cret2", "EMPTY="},
		Binds: []Bind{{Source: cache, Target: "/cache", Write: true}, {Source: ro, Target: "/opt/node"}}, Stdout: &out, Stderr: &errs,
	})
	if err != nil || !res.OK() {
		t.Fatalf("Run = %v, %v\n%s", res, err, errs.String())
	}
	text := out.String()
	for _, want := range []string{
		"uid 1000 gid 1000", "dir /build/src\n", "nofile 4096\n", "core 1\n", "env TOKEN=s3cret2\n",
		"env HOME=/elsewhere\n", "env EMPTY=\n", "env PWD=/build/src\n", "env PATH=/usr/local/sbin:", " /cache",
		"ls /run/slipway /run/slipway/shim\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	for _, no := range []string{" /home", " /root", " /boot", " /srv", "proxy.sock", "HTTP_PROXY", "TOKEN=s3cret\n"} {
		if strings.Contains(text, no) {
			t.Errorf("%q is visible in\n%s", no, text)
		}
	}
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "/proc/1/") && (strings.Contains(line, "s3cret") || strings.Contains(line, work)) {
			t.Errorf("pid 1 tells %s", line)
		}
		if strings.HasPrefix(line, "ls /proc/self/fd") && len(strings.Fields(line)) > 2+10 { // Go keeps two files of its cgroup open
			t.Errorf("descriptors leaked: %s", line)
		}
	}
	if res.Usage.Wall <= 0 || isRoot() && (res.Usage.MaxMemory <= 0 || res.Usage.CPU <= 0) {
		t.Errorf("usage = %+v", res.Usage)
	}
}

func TestExit(t *testing.T) {
	t.Parallel()
	b := newSandbox(t)
	for name, tt := range map[string]struct {
		argv   []string
		proxy  bool
		dir    string
		code   int
		signal unix.Signal
		stderr string
	}{
		"success":              {argv: []string{"true"}},
		"failure":              {argv: attackArgv("exit", "7"), code: 7, stderr: "going"},
		"signal":               {argv: attackArgv("abort"), code: 137, signal: unix.SIGKILL},
		"failure behind proxy": {argv: attackArgv("exit", "7"), proxy: true, code: 7, stderr: "going"},
		"signal behind proxy":  {argv: attackArgv("abort"), proxy: true, code: 137, signal: unix.SIGKILL},
		"unknown program":      {argv: []string{"no-such-program"}, code: 127, stderr: "no-such-program: command not found"},
		"unknown directory":    {argv: []string{"true"}, dir: "/build/none", code: 127, stderr: "/build/none: no such file or directory"},
		"an option-like name":  {argv: []string{"--bind", "/", "/x"}, code: 127, stderr: "--bind: command not found"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := Command{Argv: tt.argv, Dir: tt.dir, Work: newWork(t), UID: siteUID(), Limits: small()}
			if tt.proxy {
				c.Network.Proxy = fakeProxy(t, nil)
			}
			var errs bytes.Buffer
			c.Stderr = &errs
			res, err := b.Run(t.Context(), c)
			if err != nil {
				t.Fatal(err)
			}
			if res.ExitCode != tt.code || res.Signal != tt.signal || res.Killed != NotKilled ||
				!strings.Contains(errs.String(), tt.stderr) {
				t.Errorf("Run = %+v, stderr %q", res, errs.String())
			}
		})
	}
}

func TestLimits(t *testing.T) {
	t.Parallel()
	b := newSandbox(t)
	for name, tt := range map[string]struct {
		argv   []string
		limits func(*Limits)
		want   Reason
	}{
		"memory bomb":              {argv: attackArgv("memory"), want: OutOfMemory},
		"disk filler":              {argv: attackArgv("fill", "/build"), want: DiskFull},
		"disk filler in the cache": {argv: attackArgv("fill", "/cache"), want: DiskFull},
		"unlinked files":           {argv: attackArgv("hide", "/build"), want: DiskFull, limits: func(l *Limits) { l.NoFile = 512 }},
		"closed directory":         {argv: attackArgv("dark"), want: DiskFull, limits: func(l *Limits) { l.Disk = 16 << 20 }},
		"file bomb":                {argv: attackArgv("inodes"), want: DiskFull, limits: func(l *Limits) { l.Files = 2000 }},
		"log flood":                {argv: attackArgv("flood"), want: LogFlood, limits: func(l *Limits) { l.Output = 256 << 10 }},
		"endless run":              {argv: attackArgv("hang"), want: Timeout, limits: func(l *Limits) { l.Wall = 300 * time.Millisecond }},
		"/tmp filler":              {argv: attackArgv("fill", "/tmp"), want: DiskFull},
		"/dev/shm filler": {
			argv:   attackArgv("fill", "/dev/shm"),
			want:   Timeout,
			limits: func(l *Limits) { l.TmpSize = 8 << 20; l.Wall = 500 * time.Millisecond },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := small()
			if tt.limits != nil {
				tt.limits(&l)
			}
			var out counter64
			c := Command{
				Argv: tt.argv, Work: newWork(t), UID: siteUID(), Limits: l, Stdout: &out, Stderr: io.Discard,
				Binds: []Bind{{Source: newWork(t), Target: "/cache", Write: true}},
			}
			begin := time.Now()
			res, err := b.Run(t.Context(), c)
			if err != nil {
				t.Fatal(err)
			}
			if res.Killed != tt.want || res.OOM != (tt.want == OutOfMemory) {
				t.Errorf("Run = %+v after %s, want %q", res, time.Since(begin), tt.want)
			}
			if got := out.n.Load(); got > l.withDefaults().Output+200 {
				t.Errorf("%d bytes of output passed a limit of %d", got, l.Output)
			}
			// A disk may write this much between two checks, which are 100 ms apart.
			if got := count(c.Work, tally{1 << 62, 1 << 62}, nil); got.bytes > l.Disk+2<<30 {
				t.Errorf("the limit of %s was passed by %s", text.Size(l.Disk), text.Size(got.bytes-l.Disk))
			}
		})
	}
}

// All memory of a command counts towards its limit, also in tmpfs and memfds. Without a cgroup, memfds are refused.
func TestMemoryWithoutProcesses(t *testing.T) {
	t.Parallel()
	b := newSandbox(t)
	l := small()
	l.TmpSize, l.NoFile = 512<<20, 1024
	for name, argv := range map[string][]string{
		"/dev/shm": attackArgv("fill", "/dev/shm"),
		"memfds":   attackArgv("memfd"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out counter64
			res, err := b.Run(t.Context(), Command{
				Argv:   argv,
				Work:   newWork(t),
				UID:    siteUID(),
				Limits: l,
				Stdout: &out,
				Stderr: io.Discard,
			})
			if err != nil {
				t.Fatal(err)
			}
			refused := name == "memfds" && strings.HasPrefix(string(out.tail), "refused after 0 function not implemented")
			if res.Killed != OutOfMemory && !refused {
				t.Errorf("%+v %q, want out of memory", res, out.tail)
			}
		})
	}
}

// A command can't use up the host's pseudo-terminals. As a plain user, the service can't limit them.
func TestTerminalsAreBounded(t *testing.T) {
	t.Parallel()
	var out counter64
	l := small()
	l.NoFile = 1024
	res, err := newSandbox(t).Run(t.Context(), Command{
		Argv:   attackArgv("terminals"),
		Work:   newWork(t),
		UID:    siteUID(),
		Limits: l,
		Stdout: &out,
		Stderr: os.Stderr,
	})
	if err != nil || res.ExitCode != 0 {
		t.Fatalf("%+v %v", res, err)
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(out.tail)))
	if err != nil || n == 0 || isRoot() && n != maxTerminals {
		t.Errorf("%d terminals: %v, %q", n, err, out.tail)
	}
}

type counter64 struct {
	n    atomic.Int64
	mu   sync.Mutex // guards tail
	tail []byte
}

func (c *counter64) Write(p []byte) (int, error) {
	c.n.Add(int64(len(p)))
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tail = append(c.tail, p...)
	c.tail = c.tail[max(0, len(c.tail)-200):]
	return len(p), nil
}

func TestFloodLeavesAMarker(t *testing.T) {
	t.Parallel()
	var out counter64
	m := &meter{limit: 100, flood: func() {}}
	for range 30 {
		m.write(&out, []byte("0123456789"))
	}
	if want := "\n[output limit of 100 bytes reached: the rest is not stored]\n"; !strings.HasSuffix(string(out.tail), want) ||
		out.n.Load() != int64(100+len(want)) {
		t.Errorf("%d bytes, ending in %q", out.n.Load(), out.tail)
	}
}

func TestForkBombIsBounded(t *testing.T) {
	t.Parallel()
	b := newSandbox(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var said atomic.Value
	out := newLines(func(l string) {
		if strings.HasPrefix(l, "refused after") || l == "never refused" {
			said.Store(l)
			cancel()
		}
	})
	res, err := b.Run(ctx, Command{
		Argv: attackArgv("forks"), Work: newWork(t), UID: siteUID(),
		Limits: Limits{Pids: 64, Memory: 1 << 30, Wall: 20 * time.Second}, Stdout: out,
	})
	if err != nil {
		t.Fatal(err)
	}
	var n int
	line, _ := said.Load().(string)
	if _, err := fmt.Sscanf(line, "refused after %d", &n); err != nil && res.Killed != OutOfMemory && res.ExitCode == 0 || n > 64 {
		t.Errorf("fork bomb said %q, Run = %+v", line, res)
	}
	if left := cgroup.Left(b.hs, b.parent); len(left) > 0 {
		t.Errorf("cgroups are left: %v", left)
	}
}

func TestCPUQuota(t *testing.T) {
	t.Parallel()
	b := newSandbox(t)
	g, err := cgroup.New(b.hs, b.parent, "look", Limits{}.withDefaults().group())
	if errors.Is(err, cgroup.ErrNone) {
		return // Probe reports that; nothing else can limit cpu
	}
	if err != nil {
		t.Fatal(err)
	}
	has := g.CPU != ""
	if err := g.Remove(time.Second); err != nil {
		t.Fatal(err)
	}
	if !has {
		return
	}
	l := small()
	l.CPU, l.Wall = 0.25, time.Second
	res, err := b.Run(t.Context(), Command{Argv: attackArgv("spin"), Work: newWork(t), UID: siteUID(), Limits: l})
	if err != nil || res.Killed != Timeout {
		t.Fatalf("Run = %+v, %v", res, err)
	}
	if res.Usage.CPU > res.Usage.Wall*45/100 {
		t.Errorf("used %s of cpu in %s with a quota of a quarter", res.Usage.CPU, res.Usage.Wall)
	}
}

func TestCancelEndsEverything(t *testing.T) {
	t.Parallel()
	all := newSandbox(t)
	v1 := newSandbox(t) // cgroup v1: freeze, kill, thaw
	v1.hs = nil
	for _, h := range all.hs {
		if !h.V2 {
			v1.hs = append(v1.hs, h)
		}
	}
	none := newSandbox(t) // without cgroups: only the pid namespace
	none.hs = nil
	plain, err := NewPlain(Config{Dir: t.TempDir(), Self: plainHelper})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { removeParents(plain.engine) })
	bare, err := NewPlain(Config{Dir: t.TempDir(), Self: plainHelper})
	if err != nil {
		t.Fatal(err)
	}
	bare.hs = nil
	for name, r := range map[string]Runner{"all": all, "version 1": v1, "no cgroup": none, "plain": plain, "plain without cgroup": bare} {
		for _, behind := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s proxy=%v", name, behind), func(t *testing.T) {
				t.Parallel()
				token := "token-" + newID()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				out := newLines(func(l string) {
					if l == "ready" {
						cancel()
					}
				})
				argv := attackArgv("daemons", token)
				if strings.HasPrefix(name, "plain") {
					argv[0] = "/proc/self/exe"
				}
				c := Command{Argv: argv, Work: newWork(t), UID: siteUID(), Limits: small(), Stdout: out}
				if behind {
					c.Network.Proxy = fakeProxy(t, nil)
				}
				c.Limits.Memory = 512 << 20
				res, err := r.Run(ctx, c)
				if err != nil || res.Killed != Canceled {
					t.Fatalf("Run = %+v, %v", res, err)
				}
				nothingLeft(t, nil, token)
			})
		}
	}
}

func TestDaemonsDoNotOutliveTheCommand(t *testing.T) {
	t.Parallel()
	b := newSandbox(t)
	token := "token-" + newID()
	res, err := b.Run(t.Context(), Command{Argv: attackArgv("daemons", token, "leave"), Work: newWork(t), UID: siteUID(), Limits: small()})
	if err != nil || !res.OK() {
		t.Fatalf("Run = %+v, %v", res, err)
	}
	nothingLeft(t, b, token)
}

// Canceling at any moment of the start leaves nothing behind.
func TestCancelDuringStart(t *testing.T) {
	t.Parallel()
	b := newSandbox(t)
	noGroups := newSandbox(t)
	noGroups.hs = nil
	token := "token-" + newID()
	for i := range 24 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*700*time.Microsecond)
		r := b
		if i%2 == 0 {
			r = noGroups
		}
		res, err := r.Run(ctx, Command{Argv: attackArgv("hang", token), Work: newWork(t), UID: siteUID(), Limits: small()})
		cancel()
		if err != nil || res.Killed != Timeout {
			t.Fatalf("Run = %+v, %v", res, err)
		}
	}
	nothingLeft(t, b, token)
	nothingLeft(t, noGroups, token)
}

// nothingLeft fails the test if a process has token in its command line, or a cgroup of b exists.
func nothingLeft(t *testing.T, b *Bubblewrap, token string) {
	t.Helper()
	for pid := range processes() {
		line, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
		if bytes.Contains(line, []byte(token)) {
			t.Errorf("process %d is still running: %q", pid, line)
		}
	}
	if b != nil && len(cgroup.Left(b.hs, b.parent)) > 0 {
		t.Errorf("cgroups are left: %v", cgroup.Left(b.hs, b.parent))
	}
}

func TestTwelveForbiddenActions(t *testing.T) {
	t.Parallel()
	b := newSandbox(t)
	b.Dir = filepath.Join(b.Dir, strings.Repeat("longer-than-the-address-of-a-socket/", 4))
	if err := os.MkdirAll(b.Dir, 0o755); err != nil {
		t.Fatal(err)
	}
	got, err := b.Canary(t.Context(), siteUID())
	if err != nil {
		t.Fatal(err)
	}
	if len(got) < 12 {
		t.Errorf("only %d were tried", len(got))
	}
	for _, a := range got {
		if !a.Refused {
			t.Errorf("could %s: %s", a.Action, a.Detail)
		}
	}
}

// fakeProxy acts as the CONNECT proxy, in a directory closed to others. It resolves the hosts of peers ("host:port")
// and passes connections to their functions.
func fakeProxy(t *testing.T, peers map[string]func(io.ReadWriter)) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "proxy-") // short, because a Unix socket's path is limited to 108 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	p := filepath.Join(dir, "s")
	l, err := net.Listen("unix", p)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	if err := os.Chmod(p, 0o666); err != nil {
		t.Fatal(err)
	}
	answer := func(c net.Conn) {
		defer c.Close()
		in := bufio.NewReader(c)
		req, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		if req.Method == http.MethodConnect {
			if peer := peers[req.Host]; peer != nil {
				_, _ = io.WriteString(c, "HTTP/1.1 200 Connection established\r\n\r\n")
				peer(struct {
					io.Reader
					io.Writer
				}{in, c})
				return
			}
			_, _ = io.WriteString(c, "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")
			return
		}
		name := req.URL.Query().Get("name")
		if req.URL.Query().Get("type") == "TXT" {
			head := dnsmessage.ResourceHeader{Name: dnsmessage.MustNewName(name + "."), Class: dnsmessage.ClassINET}
			text := &dnsmessage.TXTResource{TXT: slices.Repeat([]string{strings.Repeat("x", 250)}, 40)}
			m := dnsmessage.Message{Answers: []dnsmessage.Resource{{Header: head, Body: text}}}
			body, _ := m.Pack()
			_, _ = fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
			return
		}
		status := "404 Not Found"
		for host := range peers {
			if h, _, _ := net.SplitHostPort(host); h == name {
				status = "204 No Content"
			}
		}
		_, _ = io.WriteString(c, "HTTP/1.1 "+status+"\r\nConnection: close\r\n\r\n")
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go answer(c)
		}
	}()
	return p
}

// A program without proxy support can reach hosts by name. It can't reach IP addresses, other ports, names that the
// proxy doesn't resolve, or the host.
func TestTheOnlyWayOutIsTheProxy(t *testing.T) {
	t.Parallel()
	b := newSandbox(t)
	host, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	var reached atomic.Int64
	go func() {
		for {
			c, err := host.Accept()
			if err != nil {
				return
			}
			reached.Add(1)
			_ = c.Close()
		}
	}()
	echo := func(c io.ReadWriter) {
		text, _ := io.ReadAll(io.LimitReader(c, 5))
		fmt.Fprintf(c, "you said %s", text)
	}
	proxy := fakeProxy(t, map[string]func(io.ReadWriter){"cms.example:443": echo, "cms.example:80": echo, "refused.example:1": nil})
	run := func(argv ...string) string {
		t.Helper()
		var out bytes.Buffer
		res, err := b.Run(t.Context(), Command{
			Argv:    argv,
			Work:    newWork(t),
			UID:     siteUID(),
			Limits:  small(),
			Network: Network{Proxy: proxy},
			Stdout:  &out,
			Stderr:  &out,
		})
		if err != nil || !res.OK() {
			t.Fatalf("Run = %+v, %v: %s", res, err, out.String())
		}
		return out.String()
	}
	for _, at := range []string{"cms.example:443", "CMS.example.:80"} {
		if got := run(attackArgv("say", at, "hello")...); got != "you said hello <nil>\n" {
			t.Errorf("%s answered %q", at, got)
		}
	}
	if got := run(attackArgv("texts", "cms.example")...); got != "10000 <nil>\n" { // more than fits into a UDP packet
		t.Errorf("a long TXT record has %q bytes", got)
	}
	for at, want := range map[string]string{
		"nowhere.example:443": "no such host", "cms.example:8443": "connection refused", "refused.example:443": "reset",
		"198.18.77.1:443": "reset", "10.0.0.1:443": "unreachable", "1.1.1.1:443": "unreachable", "169.254.169.254:80": "unreachable",
		"[2606:4700:4700::1111]:443": "", host.Addr().String(): "refused",
	} {
		if got := run(attackArgv("say", at, "hello")...); !strings.Contains(got, want) || strings.Contains(got, "you said") {
			t.Errorf("%s answered %q, want %q", at, got, want)
		}
	}
	if reached.Load() != 0 {
		t.Error("the host's listener was reached")
	}
}

// A sandbox with a network has no more rights than one without: the forbidden actions are refused, and no capability
// remains from its setup.
func TestTheNetworkGivesNoRights(t *testing.T) {
	t.Parallel()
	b := newSandbox(t)
	var out bytes.Buffer
	told, err := json.Marshal(inside.Bait{
		Pid:      os.Getpid(),
		Spaces:   inside.Spaces(),
		Port:     1,
		Other:    "/etc/hostname",
		Env:      "none-" + newID(),
		Abstract: "@none",
	})
	if err != nil {
		t.Fatal(err)
	}
	res, err := b.Run(t.Context(), Command{
		Argv: []string{inside.Self, inside.Name, inside.CanaryArg, string(told)}, Work: newWork(t), UID: siteUID(),
		Limits: small(), Network: Network{Proxy: fakeProxy(t, nil)}, Stdout: &out,
	})
	if err != nil || !res.OK() {
		t.Fatalf("Run = %+v, %v", res, err)
	}
	var got []Attempt
	if err := json.Unmarshal(out.Bytes(), &got); err != nil || len(got) == 0 {
		t.Fatalf("%v: %s", err, out.String())
	}
	for _, a := range got {
		if !a.Refused {
			t.Errorf("the attacker could %s", a.Action)
		}
	}
}

func TestSecretsStayOutOfEveryArgv(t *testing.T) {
	t.Parallel()
	b := newSandbox(t)
	secret := "hunter2-" + newID()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var looked atomic.Bool
	out := newLines(func(l string) {
		if l != "ready" {
			return
		}
		defer cancel()
		defer looked.Store(true)
		for pid := range processes() {
			line, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
			if bytes.Contains(line, []byte(secret)) {
				t.Errorf("argv of %d holds the secret: %q", pid, line)
			}
		}
	})
	res, err := b.Run(ctx, Command{
		Argv:   attackArgv("hang"),
		Env:    []string{"SECRET=" + secret},
		Work:   newWork(t),
		UID:    siteUID(),
		Limits: small(),
		Stdout: out,
	})
	if err != nil || res.Killed != Canceled || !looked.Load() {
		t.Fatalf("Run = %+v, %v", res, err)
	}
}

func TestFilesBelongToTheSite(t *testing.T) {
	t.Parallel()
	b, work := newSandbox(t), newWork(t)
	res, err := b.Run(t.Context(), Command{Argv: attackArgv("write", "/build/made"), Work: work, UID: siteUID(), Limits: small()})
	if err != nil || !res.OK() {
		t.Fatalf("Run = %+v, %v", res, err)
	}
	st, err := os.Lstat(filepath.Join(work, "made"))
	if err != nil {
		t.Fatal(err)
	}
	want := os.Geteuid()
	if isRoot() {
		want = testUID
	}
	if got := int(st.Sys().(*syscall.Stat_t).Uid); got != want {
		t.Errorf("owner is %d, want %d", got, want)
	}
	ro := newWork(t)
	res, err = b.Run(t.Context(), Command{
		Argv:   attackArgv("write", "/opt/ro/made"),
		Work:   work,
		UID:    siteUID(),
		Limits: small(),
		Binds:  []Bind{{Source: ro, Target: "/opt/ro"}},
	})
	if err != nil || res.ExitCode != 1 {
		t.Errorf("write to a read-only bind: %+v, %v", res, err)
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	b := newSandbox(t)
	loose := filepath.Join(t.TempDir(), "loose")
	if err := os.MkdirAll(filepath.Join(loose, "work"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(loose, 0o777); err != nil {
		t.Fatal(err)
	}
	work := newWork(t)
	sub := filepath.Join(work, "sub")
	if err := os.Mkdir(sub, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]Command{
		"no program":              {Work: work},
		"relative work":           {Argv: []string{"true"}, Work: "work"},
		"missing work":            {Argv: []string{"true"}, Work: work + "/none"},
		"NUL in an argument":      {Argv: []string{"true", "a\x00--bind"}, Work: work},
		"NUL in the environment":  {Argv: []string{"true"}, Env: []string{"A=b\x00C=d"}, Work: work},
		"no name":                 {Argv: []string{"true"}, Env: []string{"=x"}, Work: work},
		"parent open to others":   {Argv: []string{"true"}, Work: filepath.Join(loose, "work")},
		"bind inside the work":    {Argv: []string{"true"}, Work: work, Binds: []Bind{{Source: sub, Target: "/x"}}},
		"bind over /":             {Argv: []string{"true"}, Work: work, Binds: []Bind{{Source: newWork(t), Target: "/"}}},
		"bind over /proc":         {Argv: []string{"true"}, Work: work, Binds: []Bind{{Source: newWork(t), Target: "/proc/x"}}},
		"bind with dots":          {Argv: []string{"true"}, Work: work, Binds: []Bind{{Source: newWork(t), Target: "/x/../proc"}}},
		"relative dir":            {Argv: []string{"true"}, Work: work, Dir: "x"},
		"proxy that is not there": {Argv: []string{"true"}, Work: work, Network: Network{Proxy: "/nowhere/s"}},
	} {
		t.Run(name, func(t *testing.T) {
			c.UID = siteUID()
			if res, err := b.Run(t.Context(), c); err == nil {
				t.Errorf("Run = %+v", res)
			}
		})
	}
	if isRoot() {
		if _, err := b.Run(t.Context(), Command{Argv: []string{"true"}, Work: work}); err == nil || !strings.Contains(err.Error(), "root") {
			t.Errorf("without a uid: %v", err)
		}
		owned := filepath.Join(work, "mine")
		if err := os.Mkdir(owned, 0o755); err != nil {
			t.Fatal(err)
		}
		if _, err := b.Run(t.Context(), Command{Argv: []string{"true"}, Work: owned, UID: siteUID()}); err == nil {
			t.Error("a directory whose parent is the tenant's was bound")
		}
	}
}

func TestWithoutBubblewrap(t *testing.T) {
	t.Parallel()
	b, err := New(Config{Dir: t.TempDir(), Bwrap: "/nowhere/bwrap"})
	if err != nil {
		t.Fatal(err)
	}
	_, err = b.Run(t.Context(), Command{Argv: []string{"true"}, Work: newWork(t), UID: siteUID()})
	if f := fault.As(err); f == nil || f.Kind != fault.Unavailable || !strings.Contains(f.Message, "bubblewrap is not installed") {
		t.Errorf("Run = %v", err)
	}
	if r := Probe(t.Context(), Config{Dir: t.TempDir(), Bwrap: "/nowhere/bwrap"}, siteUID()); r.Ready() {
		t.Errorf("Probe is content: %+v", r)
	}
}

// A bwrap that fails, or a helper that isn't one, is an error of Run, not of the command.
func TestBrokenSandboxIsAnError(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]Config{
		"bwrap fails": {Bwrap: "/usr/bin/false"}, "no shim": {Self: "/usr/bin/true"},
	} {
		t.Run(name, func(t *testing.T) {
			c.Dir = t.TempDir()
			b, err := New(c)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { removeParents(b.engine) })
			if res, err := b.Run(t.Context(), Command{Argv: []string{"true"}, Work: newWork(t), UID: siteUID()}); err == nil {
				t.Errorf("Run = %+v", res)
			}
		})
	}
}

func TestProbe(t *testing.T) {
	t.Parallel()
	c := Config{Dir: t.TempDir(), Self: helper}
	r := Probe(t.Context(), c, siteUID())
	if !r.Ready() {
		t.Error("not ready")
	}
	names := map[string]bool{}
	for _, c := range r {
		names[c.Name] = true
		if !strings.HasSuffix(c.Detail, ".") {
			t.Errorf("%s: %q is no sentence", c.Name, c.Detail)
		}
		if c.Required && !c.OK {
			t.Errorf("%s: %s", c.Name, c.Detail)
		}
	}
	for _, n := range []string{
		"bubblewrap", "identity", "user namespaces", "seccomp", "cgroup", "landlock", "helper", "terminals", "disk limit",
		"canary",
	} {
		if !names[n] {
			t.Errorf("nothing about %s", n)
		}
	}
	b, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	removeParents(b.engine)
}

func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	b := newSandbox(t)
	var wg sync.WaitGroup
	for i := range 12 {
		work := newWork(t)
		if err := Own(work, testUID+i); err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			var out bytes.Buffer
			want := "n" + strconv.Itoa(i)
			res, err := b.Run(t.Context(), Command{
				Argv:   []string{"printenv", "N"},
				Env:    []string{"N=" + want},
				Work:   work,
				UID:    testUID + i,
				Limits: small(),
				Stdout: &out,
			})
			if err != nil || !res.OK() || strings.TrimSpace(out.String()) != want {
				t.Errorf("run %d = %+v, %v: %q", i, res, err, out.String())
			}
		})
	}
	wg.Wait()
}

func BenchmarkBare(b *testing.B) {
	for b.Loop() {
		if err := exec.Command("/usr/bin/true").Run(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkStart measures Run with a command that does nothing.
func BenchmarkStart(b *testing.B) {
	s, work := newSandbox(b), newWork(b)
	for b.Loop() {
		if res, err := s.Run(b.Context(), Command{Argv: []string{"/usr/bin/true"}, Work: work, UID: siteUID()}); err != nil || !res.OK() {
			b.Fatal(res, err)
		}
	}
}

// Output to the same writer arrives in the order in which it was written.
func TestOneWriterKeepsTheOrder(t *testing.T) {
	t.Parallel()
	plain, err := NewPlain(Config{Dir: t.TempDir(), Self: plainHelper})
	if err != nil {
		t.Fatal(err)
	}
	for name, r := range map[string]Runner{"sandbox": newSandbox(t), "plain": plain} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			argv := attackArgv("alternate")
			if name == "plain" {
				argv[0] = "/proc/self/exe"
			}
			var out bytes.Buffer
			res, err := r.Run(t.Context(), Command{
				Argv:   argv,
				Work:   newWork(t),
				UID:    siteUID(),
				Limits: small(),
				Stdout: &out,
				Stderr: &out,
			})
			if err != nil || !res.OK() {
				t.Fatalf("Run = %+v, %v", res, err)
			}
			var want strings.Builder
			for i := range 500 {
				fmt.Fprintf(&want, "line %d\n", i)
			}
			if out.String() != want.String() {
				t.Errorf("out of order: %.300q", out.String())
			}
		})
	}
}

// Connections to configured ports go to the proxy, like 80 and 443, and the proxy decides about each destination. Other
// ports are closed.
func TestNamedPorts(t *testing.T) {
	t.Parallel()
	b := newSandbox(t)
	talk := func(c io.ReadWriter) {
		buf := make([]byte, 64)
		n, _ := c.Read(buf)
		fmt.Fprintf(c, "you said %s", buf[:n])
	}
	proxy := fakeProxy(t, map[string]func(io.ReadWriter){"db.example:5432": talk, "db.example:6379": talk, "db.example:443": talk})
	run := func(argv ...string) string {
		var out bytes.Buffer
		res, err := b.Run(t.Context(), Command{
			Argv:    argv,
			Work:    newWork(t),
			UID:     siteUID(),
			Limits:  small(),
			Network: Network{Proxy: proxy, Ports: []uint16{5432, 443, 53, 3306}},
			Stdout:  &out,
			Stderr:  &out,
		})
		if err != nil || !res.OK() {
			t.Fatalf("%q: %+v, %v: %s", argv, res, err, out.String())
		}
		return out.String()
	}
	for at, want := range map[string]string{
		"db.example:5432": "you said hello",
		"db.example:443":  "you said hello",
		"db.example:6379": "refused",
		"db.example:3306": "reset",
		"127.0.0.1:5432":  "reset",
	} {
		if got := run(attackArgv("say", at, "hello")...); !strings.Contains(got, want) {
			t.Errorf("%s answered %q, want %q", at, got, want)
		}
	}
}

// A command doesn't inherit signals that the service ignores, such as SIGHUP under nohup, which a shell couldn't trap.
// Not parallel, because signals are global.
func TestSignalsAreTheCommands(t *testing.T) {
	for _, s := range []os.Signal{unix.SIGHUP, unix.SIGINT} {
		signal.Ignore(s)
		defer signal.Reset(s)
	}
	var out bytes.Buffer
	c := Command{
		Argv:   []string{"/bin/sh", "-c", "trap 'echo heard' HUP INT; kill -HUP $$; kill -INT $$"},
		Work:   newWork(t),
		UID:    siteUID(),
		Limits: small(),
		Stdout: &out,
		Stderr: &out,
		Env:    []string{"PATH=/usr/bin:/bin"},
	}
	if _, err := newSandbox(t).Run(t.Context(), c); err != nil || out.String() != "heard\nheard\n" {
		t.Errorf("%q, %v", out.String(), err)
	}
}

// Runtimes, such as libuv in Node.js, read how much memory they have. They must see only their own cgroup, and must be
// unable to change it.
func TestLimitsCanBeRead(t *testing.T) {
	t.Parallel()
	b := newSandbox(t)
	g, err := cgroup.New(b.hs, b.parent, "readable", cgroup.Limits{Memory: small().Memory})
	if err != nil || g.Memory == "" {
		return // nothing counts memory, as for most users without root
	}
	g.Remove(0)
	var out bytes.Buffer
	c := Command{
		Argv: []string{"/bin/sh", "-c", `cd /sys/fs/cgroup
path=$(sed -n 's/^0:://p; s/^[0-9]*:memory://p' /proc/self/cgroup | head -1)
cat memory/memory.limit_in_bytes ./$path/memory.max 2>/dev/null
for f in memory/memory.limit_in_bytes memory.max; do echo 9999999999 > $f; done 2>/dev/null && echo changed
find . -mindepth 2 -type d 2>/dev/null
ls /sys /sys/fs | grep -v -e : -e fs -e cgroup -e '^$'`},
		Work: newWork(t), UID: siteUID(), Limits: small(), Stdout: &out, Stderr: &out, Env: []string{"PATH=/usr/bin:/bin"},
	}
	if _, err := b.Run(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintln(small().Memory); out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
}
