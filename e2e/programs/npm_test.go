package programs

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha1"
	"crypto/tls"
	"encoding/base64"
	wire "encoding/binary"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"slipway/e2e/world"
)

// The applications of TestNPM. They have one package.json and lock file, so the packages
// are installed once.
var (
	expressApp = map[string]string{
		"slipway.toml":       "release = \"node release.mjs\"\n[build]\nframework = \"express\"\n[run]\ncommand = \"node npm-e2e-server.mjs\"\n[processes]\nclock = \"node npm-e2e-worker.mjs\"\n",
		"release.mjs":        "console.log('released with ' + process.env.SECRET)",
		"npm-e2e-worker.mjs": "console.log('worker of VERSION'); setInterval(() => {}, 1000)",
		"npm-e2e-server.mjs": `import express from 'express'
const app = express(), all = []
app.get('/', (q, r) => r.send('express VERSION ' + q.protocol))
app.get('/crash', () => process.exit(7))
app.get('/eat', () => { for (;;) all.push(Buffer.alloc(1 << 20, 1)) })
app.get('/dev', async (q, r) => r.send(await import('vite').then(() => 'there', () => 'left out')))
app.get('/env', (q, r) => r.json(process.env))
app.set('trust proxy', true)
app.listen(process.env.PORT, () => console.log('up VERSION'))`,
	}
	fastifyApp = map[string]string{
		"slipway.toml": "[build]\nframework = \"fastify\"\n[run]\nhealth_check_path = \"/health\"\n",
		"server.mjs": `import Fastify from 'fastify'
const app = Fastify({trustProxy: true})
app.get('/', async q => ({app: 'fastify', host: q.host, protocol: q.protocol}))
app.get('/health', async () => 'fine')
await app.listen({port: +process.env.PORT, host: process.env.HOST})`,
	}
	chatApp = map[string]string{
		"slipway.toml": "[build]\nframework = \"node\"\n",
		"server.mjs": `import {createServer} from 'node:http'
import {WebSocketServer} from 'ws'
const server = createServer((q, r) => r.end('chat ' + wss.clients.size))
const wss = new WebSocketServer({server})
wss.on('connection', c => c.on('message', m => { for (const other of wss.clients) if (other.readyState === 1) other.send('said: ' + m) }))
server.listen(process.env.PORT)`,
	}
	nextApp = map[string]string{
		"slipway.toml":      "[build]\nframework = \"next\"\n",
		"next.config.mjs":   "export default {output: 'standalone'}",
		"app/layout.js":     "export default function L({children}) { return <html><body>{children}</body></html> }",
		"app/page.js":       "export const dynamic = 'force-dynamic'\nexport default function P() { return <h1>next at {process.env.SLIPWAY_TARGET}</h1> }",
		"public/robots.txt": "User-agent: *",
	}
	svelteApp = map[string]string{
		"slipway.toml":               "[build]\nframework = \"sveltekit\"\n",
		"svelte.config.js":           "import adapter from '@sveltejs/adapter-node'\nexport default {kit: {adapter: adapter()}}",
		"vite.config.js":             "import {sveltekit} from '@sveltejs/kit/vite'\nexport default {plugins: [sveltekit()]}",
		"src/app.html":               "<!doctype html><html><head>%sveltekit.head%</head><body>%sveltekit.body%</body></html>",
		"src/routes/+page.server.js": "export const load = () => ({at: process.env.SLIPWAY_TARGET})",
		"src/routes/+page.svelte":    "<script>let {data} = $props()</script><h1>svelte at {data.at}</h1>",
	}
)

// npmSite is a site whose repository holds one application after the other.
type npmSite struct{ *installation }

func (s npmSite) commitApp(app map[string]string, version string) {
	s.t.Helper()
	files := map[string]string{}
	for name, text := range app {
		files[name] = strings.ReplaceAll(text, "VERSION", version)
	}
	for _, name := range []string{"package.json", "package-lock.json"} {
		b, err := os.ReadFile(filepath.Join("testdata/apps", name))
		if err != nil {
			s.t.Fatal(err)
		}
		files[name] = string(b)
	}
	dir := s.t.TempDir()
	if err := world.WriteFiles(dir, files); err != nil {
		s.t.Fatal(err)
	}
	if _, err := s.Git.Commit("acme/npm", "main", dir, version); err != nil {
		s.t.Fatal(err)
	}
}

// push deploys an application and returns its log and the deployment's id.
func (s npmSite) push(app map[string]string, version string) (log, id string) {
	s.t.Helper()
	s.commitApp(app, version)
	var out struct{ DeploymentID string }
	s.call("POST", "/sites/"+s.ID+"/deploy", nil, &out)
	return s.result(out.DeploymentID), out.DeploymentID
}

// result waits for a deployment and returns its log, failing where it fails.
func (s npmSite) result(id string) string {
	s.t.Helper()
	defer func() {
		if s.t.Failed() {
			s.t.Logf("its log:\n%s", s.log(id))
		}
	}()
	s.ended(id)
	return s.log(id)
}

func (s npmSite) log(id string) string {
	var l struct{ Logs []struct{ Message string } }
	if err := s.Call(context.Background(), s.key, "GET", "/deployments/"+id+"/logs?limit=1000", nil, &l); err != nil {
		return err.Error()
	}
	var b strings.Builder
	for _, line := range l.Logs {
		b.WriteString(line.Message + "\n")
	}
	return b.String()
}

// runtimeLog is what a process of the site has printed.
func (s npmSite) runtimeLog(process string) string {
	s.t.Helper()
	var l struct{ Logs []struct{ Message string } }
	s.call("GET", "/sites/"+s.ID+"/logs?limit=1000&process="+process, nil, &l)
	var b strings.Builder
	for _, line := range l.Logs {
		b.WriteString(line.Message + "\n")
	}
	return b.String()
}

func (s npmSite) process() (p struct {
	State, Message string
	Restarts       int
}) {
	s.t.Helper()
	s.call("GET", "/sites/"+s.ID, nil, &struct{ Process any }{&p})
	return p
}

// page asks the site and returns status, header and body.
func (s npmSite) page(path string) (int, http.Header, string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, "GET", s.URL+path, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	a, err := world.Read(s.browser.Do(req))
	if err != nil {
		return 0, nil, err.Error()
	}
	return a.Status, a.Header, string(a.Body)
}

func (s npmSite) shows(path, want string) {
	s.t.Helper()
	if status, _, body := s.page(path); status != 200 || !strings.Contains(body, want) {
		s.t.Errorf("%s: %d %.300s, want %q", path, status, body, want)
	}
}

// asleep waits until the program has gone to sleep.
func (s npmSite) asleep() {
	s.t.Helper()
	s.set(map[string]any{"sleepAfterSeconds": 1})
	s.restart()
	s.until("sleep", func() (bool, error) { p := s.process(); return p.State == "sleeping", fmt.Errorf("it is %s", p.State) })
	s.set(map[string]any{"sleepAfterSeconds": 900})
}

func (s npmSite) set(run map[string]any) {
	s.t.Helper()
	s.call("PATCH", "/sites/"+s.ID, map[string]any{"run": run}, nil)
}

func (s npmSite) restart() {
	s.t.Helper()
	var op struct{ ID string }
	s.call("POST", "/sites/"+s.ID+"/restart", nil, &op)
	s.operation(op.ID)
}

func (s npmSite) operation(id string) (o struct {
	Status, Error string
	Result        struct {
		ExitCode int
		Output   []string
	}
}) {
	s.t.Helper()
	s.until("operation "+id, func() (bool, error) {
		err := s.Call(s.t.Context(), s.key, "GET", "/operations/"+id, nil, &o)
		return o.Status == "success" || o.Status == "failed", err
	})
	return o
}

// Real applications from the npm registry, deployed from Git one after the other: the
// packages are installed once, then updates take seconds; each lives through what an
// application lives through.
func TestNPM(t *testing.T) {
	t.Parallel()
	s := npmSite{installNPM(t)}
	t.Run("express", s.express)
	t.Run("fastify", s.fastify)
	t.Run("chat", s.chat)
	t.Run("next", s.next)
	t.Run("svelte", s.svelte)
}

func installNPM(t *testing.T) *installation {
	t.Helper()
	registry, err := world.Registry()
	if err != nil {
		t.Fatal(err)
	}
	w, err := world.New(binary, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	w.Flags = slices.Concat([]string{"--git-host", "git.test=" + w.Git.URL, "--rate-limit", "1000000", "--registry", "local"}, registry)
	h := &installation{World: w, t: t}
	if h.key, err = w.User("ada@example.test"); err != nil {
		t.Fatal(err)
	}
	if err := w.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	s := npmSite{h}
	s.commitApp(expressApp, "one")
	var made struct{ Data struct{ ID, URL string } }
	h.call("POST", "/sites", map[string]any{"name": "npm", "type": "static", "repository": "git.test/acme/npm", "branch": "main"}, &made)
	h.ID, h.URL = made.Data.ID, made.Data.URL
	if h.browser, err = w.Browser(); err != nil {
		t.Fatal(err)
	}
	return h
}

// in is the site as a subtest sees it.
func (s npmSite) in(t *testing.T) npmSite {
	h := *s.installation
	h.t = t
	return npmSite{&h}
}

func (s npmSite) express(t *testing.T) {
	h := s.in(t)
	var list struct{ Data []struct{ ID string } }
	h.call("GET", "/sites/"+h.ID+"/deployments", nil, &list)
	h.call("POST", "/sites/"+h.ID+"/env", map[string]any{"key": "SECRET", "value": "hunter2hunter2", "secret": true, "target": []string{"runtime"}}, nil)
	first := h.result(list.Data[0].ID)
	h.shows("/", "express one https")
	h.shows("/dev", "left out")
	if !strings.Contains(first, "that only development needs") {
		t.Errorf("nothing of development was left out:\n%s", first)
	}
	begun := time.Now()
	log, two := h.push(expressApp, "two")
	for _, want := range []string{"Dependencies are unchanged", "$ node release.mjs", "released with [secret]"} {
		if !strings.Contains(log, want) {
			t.Errorf("the log does not say %q:\n%s", want, log)
		}
	}
	t.Logf("one changed file was live after %s", time.Since(begun).Round(10*time.Millisecond))
	h.shows("/", "express two https")
	h.until("the worker", func() (bool, error) {
		text := h.runtimeLog("worker:clock")
		return strings.HasSuffix(text, "worker of two\n"), fmt.Errorf("it said %s", text)
	})

	// Back, and forth.
	h.call("POST", "/sites/"+h.ID+"/rollback", map[string]any{"deploymentId": list.Data[0].ID}, nil)
	h.until("the rollback", func() (bool, error) {
		_, _, body := h.page("/")
		return body == "express one https", fmt.Errorf("%s", body)
	})
	h.call("POST", "/sites/"+h.ID+"/rollback", map[string]any{"deploymentId": two}, nil)
	h.until("the return", func() (bool, error) {
		_, _, body := h.page("/")
		return body == "express two https", fmt.Errorf("%s", body)
	})

	// Stopped and started, asleep and woken.
	h.call("POST", "/sites/"+h.ID+"/stop", nil, nil)
	h.until("the end", func() (bool, error) { status, _, _ := h.page("/"); return status == 503, fmt.Errorf("%d", status) })
	h.until("no process", func() (bool, error) {
		n := running("npm-e2e-server.mjs") + running("npm-e2e-worker.mjs")
		return n == 0, fmt.Errorf("%d run", n)
	})
	h.call("POST", "/sites/"+h.ID+"/start", nil, nil)
	h.until("the start", func() (bool, error) { status, _, _ := h.page("/"); return status == 200, fmt.Errorf("%d", status) })
	h.asleep()
	if n := running("npm-e2e-server.mjs"); n != 0 {
		t.Errorf("asleep, %d processes run", n)
	}
	h.shows("/", "express two")

	// Crashed, and out of memory.
	if status, _, _ := h.page("/crash"); status != 502 {
		t.Errorf("a request over which it crashed: %d, want 502", status)
	}
	h.until("it again after the crash", func() (bool, error) { status, _, _ := h.page("/"); return status == 200, fmt.Errorf("%d", status) })
	if text := h.runtimeLog("web"); !strings.Contains(text, "The application exited: exit code 7") {
		t.Errorf("its log does not say that it crashed:\n%s", text)
	}
	h.set(map[string]any{"memoryMiB": 128})
	h.restart()
	if status, _, _ := h.page("/eat"); status != 502 {
		t.Errorf("a request over which it ran out of memory: %d, want 502", status)
	}
	h.until("it again after it ran out of memory", func() (bool, error) { status, _, _ := h.page("/"); return status == 200, fmt.Errorf("%d", status) })
	if text := h.runtimeLog("web"); !strings.Contains(text, "out of memory") {
		t.Errorf("its log does not say that it ran out of memory:\n%s", text)
	}
	h.set(map[string]any{"memoryMiB": 512})

	// With the service.
	if err := h.World.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := running("npm-e2e-server.mjs") + running("npm-e2e-worker.mjs"); n != 0 {
		t.Errorf("after the service's end %d processes run", n)
	}
	if err := h.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.shows("/", "express two")
}

func (s npmSite) fastify(t *testing.T) {
	h := s.in(t)
	log, _ := h.push(fastifyApp, "three")
	if strings.Contains(log, "added ") {
		t.Errorf("packages were installed again:\n%s", log)
	}
	h.shows("/", `{"app":"fastify","host":"`+strings.TrimPrefix(h.URL, "https://"))
	h.until("the worker's end", func() (bool, error) { n := running("npm-e2e-worker.mjs"); return n == 0, fmt.Errorf("%d run", n) })
	broken := maps.Clone(fastifyApp)
	broken["server.mjs"] = strings.Replace(broken["server.mjs"], "'fine'", "{ throw new Error('not today') }", 1)
	broken["slipway.toml"] += "health_check_timeout_seconds = 3\n"
	h.commitApp(broken, "broken")
	var out struct{ DeploymentID string }
	h.call("POST", "/sites/"+h.ID+"/deploy", nil, &out)
	var d struct{ Status, Error string }
	h.until("its failure", func() (bool, error) {
		err := h.Call(t.Context(), h.key, "GET", "/deployments/"+out.DeploymentID, nil, &d)
		return d.Status == "failed", err
	})
	if !strings.Contains(d.Error, "it answers /health with 500") {
		t.Errorf("it failed with %q", d.Error)
	}
	h.shows("/", `"app":"fastify"`)
}

func (s npmSite) chat(t *testing.T) {
	h := s.in(t)
	h.push(chatApp, "four")
	a, b := h.socket(), h.socket()
	defer a.Close()
	defer b.Close()
	if err := a.send("hello"); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]*socket{"its own": a, "the other": b} {
		if got, err := c.receive(); got != "said: hello" {
			t.Errorf("%s socket heard %q, %v", name, got, err)
		}
	}
	// A thousand at once.
	const many = 1000
	sockets := make([]*socket, many)
	var wg sync.WaitGroup
	slots := make(chan struct{}, 50)
	for i := range sockets {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			sockets[i] = h.socket()
		})
	}
	wg.Wait()
	if t.Failed() {
		return
	}
	if err := b.send("to all"); err != nil {
		t.Fatal(err)
	}
	for _, c := range sockets {
		wg.Go(func() {
			if got, err := c.receive(); got != "said: to all" {
				t.Errorf("one of the thousand heard %q, %v", got, err)
			}
			c.Close()
		})
	}
	wg.Wait()
}

func (s npmSite) next(t *testing.T) {
	h := s.in(t)
	log, _ := h.push(nextApp, "five")
	if !strings.Contains(log, "standalone output") || !strings.Contains(log, "static files are served without the application") {
		t.Errorf("the log:\n%s", log)
	}
	status, _, body := h.page("/")
	if status != 200 || !regexp.MustCompile(`next at (<!-- -->)?production`).MatchString(body) {
		t.Fatalf("%d %.400s", status, body)
	}
	asset := regexp.MustCompile(`/_next/static/[^"]+\.js`).FindString(body)
	h.asleep()
	for path, cache := range map[string]string{asset: "immutable", "/robots.txt": "max-age=0"} {
		if status, head, _ := h.page(path); status != 200 || !strings.Contains(head.Get("Cache-Control"), cache) {
			t.Errorf("%s: %d %v", path, status, head)
		}
	}
	if state := h.process().State; state != "sleeping" {
		t.Errorf("a static file woke the program: it is %s", state)
	}
	changed := maps.Clone(nextApp)
	changed["app/page.js"] = "'use client'\nimport {useState} from 'react'\nexport default function P() { const [n, set] = useState(0); return <button onClick={() => set(n + 1)}>clicked {n}</button> }"
	h.push(changed, "six")
	h.shows("/", "clicked")
	if status, _, _ := h.page(asset); status != 200 {
		t.Errorf("a page of the release before does not get its script any more: %d", status)
	}
}

func (s npmSite) svelte(t *testing.T) {
	h := s.in(t)
	h.push(svelteApp, "seven")
	status, _, body := h.page("/")
	if status != 200 || !strings.Contains(body, "svelte at production") {
		t.Fatalf("%d %.400s", status, body)
	}
	asset := regexp.MustCompile(`_app/immutable/[^"]+\.js`).FindString(body)
	if status, head, _ := h.page("/" + asset); status != 200 || !strings.Contains(head.Get("Cache-Control"), "immutable") {
		t.Errorf("%s: %d %v", asset, status, head)
	}
}

// running counts the processes whose command line holds a text.
func running(text string) (n int) {
	all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, name := range all {
		if b, err := os.ReadFile(name); err == nil && bytes.Contains(b, []byte(text)) && bytes.HasPrefix(b, []byte("node")) {
			n++
		}
	}
	return n
}

// socket is a WebSocket (RFC 6455) with short text messages.
type socket struct {
	io.ReadWriteCloser
	r *bufio.Reader
}

func (s npmSite) socket() *socket {
	s.t.Helper()
	host := strings.TrimPrefix(s.URL, "https://")
	tr := s.browser.Transport.(*http.Transport)
	conf := tr.TLSClientConfig.Clone()
	conf.NextProtos, conf.ServerName = []string{"http/1.1"}, strings.Split(host, ":")[0]
	raw, err := tls.Dial("tcp", s.HTTPS, conf)
	if err != nil {
		s.t.Error(err)
		return nil
	}
	key := base64.StdEncoding.EncodeToString([]byte(rand.Text()[:16]))
	fmt.Fprintf(raw, "GET /chat HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: %s\r\n\r\n", host, key)
	r := bufio.NewReader(raw)
	_ = raw.SetDeadline(time.Now().Add(time.Minute))
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		s.t.Error(err)
		return nil
	}
	sum := sha1.Sum([]byte(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	if resp.StatusCode != 101 || resp.Header.Get("Sec-WebSocket-Accept") != base64.StdEncoding.EncodeToString(sum[:]) {
		s.t.Errorf("no WebSocket: %d %v", resp.StatusCode, resp.Header)
	}
	_ = raw.SetDeadline(time.Now().Add(2 * time.Minute))
	return &socket{raw, r}
}

func (c *socket) send(text string) error {
	frame := []byte{0x81, 0x80 | byte(len(text)), 0, 0, 0, 0} // masked with nothing
	_, err := c.Write(append(frame, text...))
	return err
}

func (c *socket) receive() (string, error) {
	var head [2]byte
	if _, err := io.ReadFull(c.r, head[:]); err != nil {
		return "", err
	}
	size := uint16(head[1])
	if size == 126 {
		if err := wire.Read(c.r, wire.BigEndian, &size); err != nil {
			return "", err
		}
	}
	text := make([]byte, size)
	_, err := io.ReadFull(c.r, text)
	return string(text), err
}
