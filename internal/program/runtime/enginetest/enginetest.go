// Package enginetest owns the promises of [runtime.Engine]: tests that every engine must pass,
// wherever it runs programs. The tests use specifications and what programs see, and know
// nothing of a host.
package enginetest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"slipway/internal/platform/id"

	"slipway/internal/build/bundle"
	"slipway/internal/program/runtime"
)

// Setup has an engine under test, on which nothing runs yet and where storage may be used.
type Setup struct {
	Engine runtime.Engine
	// Bundle stores files for programs to run from.
	Bundle func(files map[string]string) bundle.ID
}

// Run tests an engine; setup makes one for each test.
func Run(t *testing.T, setup func(t *testing.T) Setup) {
	for _, test := range []struct {
		name string
		run  func(w *world)
	}{
		{"a program answers and stops when it is asked", answers},
		{"one that doesn't stop is ended", ignoresStop},
		{"programs are apart", apart},
		{"an end is told", ends},
		{"too much memory ends it", outOfMemory},
		{"so many processes and no more", processes},
		{"it is not listening until it listens", listens},
		{"storage stays, by site", storage},
		{"files and trees are laid over the bundle", overlays},
		{"a start's context ends with the start", startContext},
		{"a shell runs text", shell},
		{"nothing outside is reached without egress", closed},
		{"a program runs to its end", runs},
		{"one with a terminal is typed to", terminal},
		{"a terminal interrupts, and hangs up", interrupts},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			w := &world{Setup: setup(t), t: t}
			test.run(w)
		})
	}
}

// patience is how long anything may take on a machine that is busy with other work.
const patience = time.Minute

type world struct {
	Setup
	t *testing.T

	mu  sync.Mutex // guards out
	out []string
}

// script is a program that tries what a request asks for and answers with the result.
const script = `
const http = require('http'), fs = require('fs'), net = require('net')
const tries = {
  env: () => JSON.stringify(process.env),
  write: p => { try { fs.appendFileSync(p, 'x'); return 'written' } catch (e) { return e.code } },
  read: p => { try { return fs.readFileSync(p, 'utf8') } catch (e) { return e.code } },
  exit: code => { console.error('giving up'); setImmediate(() => process.exit(Number(code))); return 'bye' },
  spawn: n => {
    let up = 0
    for (let i = 0; i < n; i++) {
      const c = require('child_process').spawn('sleep', ['600'])
      c.on('error', () => {})
      if (c.pid) up++
    }
    return String(up)
  },
  eat: () => { const all = []; for (;;) all.push(Buffer.alloc(1 << 20, 1)) },
}
http.createServer((q, r) => {
  const [, what, arg] = q.url.split('!').map(decodeURIComponent)
  if (what === 'dial') {
    const [host, port] = arg.split(' ')
    const c = net.connect({ host, port, timeout: 2000 }, () => { r.end('connected'); c.destroy() })
    c.on('error', e => r.end(e.code || String(e)))
    c.on('timeout', () => { r.end('timeout'); c.destroy() })
    return
  }
  r.end(tries[what] ? tries[what](arg) : 'hello ' + (process.env.NAME || ''))
}).listen(process.env.PORT, process.env.HOST, () => console.log('up'))
process.on('SIGTERM', () => { console.log('stopping'); if (!process.env.STUBBORN) process.exit(0) })
`

func (w *world) spec(name string, env ...string) runtime.Spec {
	return runtime.Spec{
		ID:     "run_" + name,
		Site:   id.Site("site_" + name),
		Owner:  "usr_engine",
		Bundle: w.Bundle(map[string]string{"server.js": script, "data/file": "from the bundle"}),
		Argv:   []string{"node", "server.js"},
		Env:    env,
		Limits: runtime.Limits{Memory: 256 << 20, Pids: 64, Disk: 64 << 20, Storage: 64 << 20},
		Output: func(stream, line string) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.out = append(w.out, stream+" "+line)
		},
	}
}

func (w *world) said() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Join(w.out, "\n")
}

func (w *world) start(s runtime.Spec) runtime.Program {
	w.t.Helper()
	p, err := w.Engine.Start(w.t.Context(), s)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { p.Stop(0) })
	return p
}

// ask sends a request to a program, and waits until it listens.
func (w *world) ask(p runtime.Program, what string, arg ...string) string {
	w.t.Helper()
	c := &http.Client{Timeout: patience, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext:       func(ctx context.Context, _, _ string) (net.Conn, error) { return p.Dial(ctx) },
	}}
	for deadline := time.Now().Add(patience); ; {
		path := "/!" + what
		for _, a := range arg {
			path += "!" + strings.NewReplacer(" ", "%20", "/", "%2F").Replace(a)
		}
		resp, err := c.Get("http://program" + path)
		if err == nil {
			defer resp.Body.Close()
			text, err := io.ReadAll(resp.Body)
			if err != nil {
				w.t.Fatal(err)
			}
			return string(text)
		}
		if !errors.Is(err, runtime.ErrNotListening) || time.Now().After(deadline) {
			w.t.Fatalf("ask %s: %v\n%s", what, err, w.said())
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// ended waits until a program has ended.
func (w *world) ended(p runtime.Program) runtime.Exit {
	w.t.Helper()
	select {
	case <-p.Done():
		return p.Exit()
	case <-time.After(patience):
		w.t.Fatal("the program does not end")
		return runtime.Exit{}
	}
}

func answers(w *world) {
	s := w.spec("one", "NAME=ada", "SLIPWAY_SITE_ID=site_one")
	s.ReadOnly = true
	p := w.start(s)
	if got := w.ask(p, "hello"); got != "hello ada" {
		w.t.Errorf("the program answers %q", got)
	}
	env := w.ask(p, "env")
	for _, want := range []string{
		fmt.Sprintf(`"PORT":"%d"`, runtime.Port),
		`"HOST":"127.0.0.1"`,
		`"NODE_ENV":"production"`,
		`"SLIPWAY_SITE_ID":"site_one"`,
	} {
		if !strings.Contains(env, want) {
			w.t.Errorf("no %s in %s", want, env)
		}
	}
	if got := w.ask(p, "write", runtime.AppDir+"/data/file"); got == "written" {
		w.t.Error("the program changed its own files")
	}
	if got := w.ask(p, "write", "/tmp/x"); got != "written" {
		w.t.Errorf("writing to /tmp: %s", got)
	}
	if u := p.Usage(); u.Memory < 0 || u.CPU < 0 {
		w.t.Errorf("the program uses %+v", u)
	}
	p.Stop(patience)
	if e := w.ended(p); e.Code != 0 || e.OutOfMemory {
		w.t.Errorf("the program stopped as %+v", e)
	}
	if got := w.said(); !strings.Contains(got, "stdout up") || !strings.Contains(got, "stdout stopping") {
		w.t.Errorf("the output is\n%s", got)
	}
	if _, err := p.Dial(w.t.Context()); err == nil {
		w.t.Error("Dial succeeded after the program's end")
	}
	p.Stop(0) // a second Stop must do nothing
}

func ignoresStop(w *world) {
	p := w.start(w.spec("stubborn", "STUBBORN=1"))
	w.ask(p, "hello")
	p.Stop(50 * time.Millisecond)
	w.ended(p)
	if _, err := p.Dial(w.t.Context()); err == nil {
		w.t.Error("Dial succeeded after the program's end")
	}
}

func apart(w *world) {
	a, b := w.start(w.spec("a", "NAME=a")), w.start(w.spec("b", "NAME=b"))
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if got := w.ask(a, "hello") + " " + w.ask(b, "hello"); got != "hello a hello b" {
				w.t.Errorf("the programs answer %q", got)
			}
		})
	}
	all.Wait()
	w.ask(a, "write", "/tmp/mine")
	if got := w.ask(b, "read", "/tmp/mine"); got != "ENOENT" {
		w.t.Errorf("a program reads another one's file: %s", got)
	}
	a.Stop(0)
	if got := w.ask(b, "hello"); got != "hello b" {
		w.t.Errorf("after the other's end it answers %q", got)
	}
}

func ends(w *world) {
	p := w.start(w.spec("exits"))
	w.ask(p, "exit", "3")
	if e := w.ended(p); e.Code != 3 || e.Reason != "exit code 3" || e.OutOfMemory {
		w.t.Errorf("the program ended as %+v", e)
	}
	if !strings.Contains(w.said(), "stderr giving up") {
		w.t.Errorf("the output is\n%s", w.said())
	}
	s := w.spec("broken")
	s.Argv = []string{"node", "nothing.js"}
	if e := w.ended(w.start(s)); e.Code == 0 {
		w.t.Errorf("a broken one ended as %+v", e)
	}
	s = w.spec("missing")
	s.Argv = []string{"no-such-program"}
	if e := w.ended(w.start(s)); e.Code != 127 {
		w.t.Errorf("a missing program ended as %+v", e)
	}
}

func outOfMemory(w *world) {
	p := w.start(w.spec("eats"))
	w.ask(p, "hello")
	c := &http.Client{
		Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return p.Dial(ctx) }},
	}
	if resp, err := c.Get("http://program/!eat"); err == nil {
		resp.Body.Close()
	}
	if e := w.ended(p); !e.OutOfMemory || e.Reason != "out of memory" {
		w.t.Errorf("the program ended as %+v", e)
	}
}

func processes(w *world) {
	p := w.start(w.spec("spawns")) // 64 processes at most, including threads
	if n, err := strconv.Atoi(w.ask(p, "spawn", "100")); err != nil || n < 1 || n >= 64 {
		w.t.Errorf("%d processes were begun, %v", n, err)
	}
	if got := w.ask(w.start(w.spec("beside", "NAME=it")), "hello"); got != "hello it" {
		w.t.Errorf("a program beside it: %q", got)
	}
}

func listens(w *world) {
	s := w.spec("late")
	s.Argv = []string{"node", "-e", "setTimeout(() => require('/app/server.js'), 500)"}
	p := w.start(s)
	if c, err := p.Dial(w.t.Context()); err == nil {
		c.Close()
		w.t.Error("Dial succeeded before the program listened")
	} else if !errors.Is(err, runtime.ErrNotListening) {
		w.t.Errorf("before it listens: %v", err)
	}
	if got := w.ask(p, "hello"); got != "hello " {
		w.t.Errorf("the program answers %q", got)
	}
}

func storage(w *world) {
	s := w.spec("writes")
	s.Storage = []runtime.Storage{{Path: "data"}, {Path: "cache", Temporary: true}}
	p := w.start(s)
	if got := w.ask(p, "read", runtime.AppDir+"/data/file"); got != "from the bundle" {
		w.t.Errorf("storage begins with %q", got)
	}
	for _, name := range []string{"data/file", "cache/file"} {
		if got := w.ask(p, "write", runtime.AppDir+"/"+name); got != "written" {
			w.t.Errorf("writing %s: %s", name, got)
		}
	}
	p.Stop(0)
	again := s
	again.ID = "run_again"
	p = w.start(again)
	if got := w.ask(p, "read", runtime.AppDir+"/data/file"); got != "from the bundlex" {
		w.t.Errorf("after a restart storage holds %q", got)
	}
	if got := w.ask(p, "read", runtime.AppDir+"/cache/file"); got != "ENOENT" {
		w.t.Errorf("what is temporary holds %q", got)
	}
	if f, stored, err := p.Open("data/file"); err != nil || !stored {
		w.t.Errorf("open storage: %v, stored %v", err, stored)
	} else {
		if text, err := io.ReadAll(f); err != nil || string(text) != "from the bundlex" {
			w.t.Errorf("storage opens as %q, %v", text, err)
		}
		f.Close()
	}
	other := w.spec("other")
	other.Storage = s.Storage
	if got := w.ask(w.start(other), "read", runtime.AppDir+"/data/file"); got != "from the bundle" {
		w.t.Errorf("another site's storage begins with %q", got)
	}
}

func overlays(w *world) {
	s := w.spec("layers")
	s.ReadOnly = true
	s.Trees = []runtime.Tree{{Path: "themes/one", Bundle: w.Bundle(map[string]string{"style.css": "body{}"})}}
	s.Files = []runtime.File{{Path: "secret.txt", Text: []byte("hunter2")}}
	p := w.start(s)
	for name, want := range map[string]string{"themes/one/style.css": "body{}", "secret.txt": "hunter2", "data/file": "from the bundle"} {
		if got := w.ask(p, "read", runtime.AppDir+"/"+name); got != want {
			w.t.Errorf("%s is %q", name, got)
		}
		if got := w.ask(p, "write", runtime.AppDir+"/"+name); got == "written" {
			w.t.Errorf("%s was changed", name)
		}
	}
	f, stored, err := p.Open("themes/one/style.css")
	if err != nil || stored {
		w.t.Fatalf("open: %v, stored %v", err, stored)
	}
	defer f.Close()
	if text, err := io.ReadAll(f); err != nil || string(text) != "body{}" {
		w.t.Errorf("opened as %q, %v", text, err)
	}
	if _, _, err := p.Open("../../etc/passwd"); err == nil {
		w.t.Error("a path outside the folder was opened")
	}
}

func startContext(w *world) {
	ctx, cancel := context.WithCancel(w.t.Context())
	p, err := w.Engine.Start(ctx, w.spec("lives"))
	if err != nil {
		w.t.Fatal(err)
	}
	defer p.Stop(0)
	cancel()
	if got := w.ask(p, "hello"); got != "hello " {
		w.t.Errorf("after the end of its start's context it answers %q", got)
	}
	if _, err := w.Engine.Start(ctx, w.spec("never")); err == nil {
		w.t.Error("Start succeeded with a canceled context")
	}
}

func shell(w *world) {
	s := w.spec("shell")
	s.Argv, s.Shell, s.Dir = nil, "echo out && echo err >&2; pwd; exit 5", "data"
	if e := w.ended(w.start(s)); e.Code != 5 {
		w.t.Errorf("the command ended as %+v", e)
	}
	for _, want := range []string{"stdout out", "stderr err", "stdout " + runtime.AppDir + "/data"} {
		if !strings.Contains(w.said(), want) {
			w.t.Errorf("the output is\n%s\nand lacks %q", w.said(), want)
		}
	}
}

func closed(w *world) {
	p := w.start(w.spec("inside"))
	for _, target := range []string{"169.254.169.254 80", "10.0.0.1 80", "192.168.0.1 443", "1.1.1.1 443", "::1 1", "127.0.0.1 22"} {
		if got := w.ask(p, "dial", target); got == "connected" {
			w.t.Errorf("the program reached %s", target)
		}
	}
}

func runs(w *world) {
	s := w.spec("task")
	s.Argv = []string{"node", "-e", "console.log('done'); process.exit(4)"}
	if e, err := runtime.Run(w.t.Context(), w.Engine, s); err != nil || e.Code != 4 {
		w.t.Errorf("the command ended as %+v, %v", e, err)
	}
	s = w.spec("endless")
	s.Argv = []string{"node", "-e", "setInterval(() => {}, 1000)"}
	ctx, cancel := context.WithTimeout(w.t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := runtime.Run(ctx, w.Engine, s); !errors.Is(err, context.DeadlineExceeded) {
		w.t.Errorf("an endless one: %v", err)
	}
}
