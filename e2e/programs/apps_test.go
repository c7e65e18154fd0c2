package programs

import (
	"bufio"
	"cmp"
	"crypto/rand"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"slipway/e2e/world"
)

// realApp is a project in testdata that uses packages of the npm registry.
type realApp struct {
	*installation
	name    string
	process string // text in its command line
}

// Real applications run on one installation: Express, Fastify, a chat over WebSockets and, unless -short, Next.js
// standalone and SvelteKit. They are deployed from Git, updated, rolled back, stopped, started, put to sleep and woken;
// they crash, run out of memory, and survive a kill of the service.
func TestRealApplications(t *testing.T) {
	t.Parallel()
	w, err := world.New(binary, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the program's last words:\n%s", w.Log(3000))
		}
	})
	flags, err := world.Registry()
	if err != nil {
		t.Fatal(err)
	}
	w.Flags = append(w.Flags, flags...)
	w.Flags = append(w.Flags, "--builds", "2", "--rate-limit", "1000000")
	h := &installation{World: w, t: t}
	if h.key, err = w.User("ada@example.test"); err != nil {
		t.Fatal(err)
	}
	if err := w.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	apps := map[string]*realApp{}
	names := []string{"express", "fastify", "chat"}
	if !testing.Short() {
		names = append([]string{"next", "sveltekit"}, names...) // the longest builds start first
	}
	names = append(names, frameworks()...)
	for _, name := range names {
		browser, err := w.Browser()
		if err != nil {
			t.Fatal(err)
		}
		a := &realApp{
			installation: &installation{World: w, t: t, key: h.key, browser: browser},
			name:         name,
			process:      name + "-of-e2e-programs",
		}
		a.commitOf("one")
		var made struct{ Data struct{ ID, URL string } }
		a.call("POST", "/sites", map[string]any{
			"name":       name,
			"type":       "static",
			"repository": "git.test/acme/" + name,
			"branch":     "main",
		}, &made)
		a.ID, a.URL = made.Data.ID, made.Data.URL
		apps[name] = a
	}
	t.Run("all", func(t *testing.T) {
		stories := map[string]func(a *realApp){
			"next":      nextStory,
			"sveltekit": sveltekitStory,
			"express":   expressStory,
			"fastify":   fastifyStory,
			"chat":      chatStory,
		}
		for _, name := range names {
			story := stories[name]
			if story == nil {
				story = frameworkStory
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				a := apps[name]
				a.t = t
				var list struct{ Data []struct{ ID string } }
				a.until("the first deployment", func() (bool, error) {
					err := a.Call(t.Context(), a.key, "GET", "/sites/"+a.ID+"/deployments", nil, &list)
					return len(list.Data) > 0, err
				})
				a.ended(list.Data[0].ID)
				a.becomes(name + " one")
				story(a)
			})
		}
	})
	if t.Failed() {
		return
	}
	h.Kill()
	h.again(func() []string { return pidsOf("-of-e2e-programs.js") })
	versions := map[string]string{"next": "one", "sveltekit": "one", "express": "one", "fastify": "one"}
	for _, name := range names {
		a := apps[name]
		a.t = t
		a.becomes(name + " " + cmp.Or(versions[name], "two"))
	}
}

// commitOf commits the project with this version in its files.
func (a *realApp) commitOf(version string) {
	a.t.Helper()
	dir := a.t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(filepath.Join("testdata", a.name))); err != nil {
		a.t.Fatal(err)
	}
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) == ".json" {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		changed := strings.ReplaceAll(strings.ReplaceAll(string(text), "'one'", "'"+version+"'"), a.name+" one", a.name+" "+version)
		return os.WriteFile(path, []byte(changed), 0o644)
	})
	if err != nil {
		a.t.Fatal(err)
	}
	if _, err := a.Git.Commit("acme/"+a.name, "main", dir, version); err != nil {
		a.t.Fatal(err)
	}
}

// becomes waits until the site's page contains a text. The edge switches to a new release a moment after the deployment
// has ended.
func (a *realApp) becomes(want string) {
	a.t.Helper()
	for _, browser := range world.Everywhere(a.browser) {
		a.until(want, func() (bool, error) {
			got, err := world.Read(browser.Get(a.URL))
			return err == nil && got.Status == 200 && strings.Contains(
				string(got.Body),
				want,
			), errors.Join(err, fmt.Errorf("%d %.300s", got.Status, got.Body))
		})
	}
}

// says sends one request and checks the response.
func (a *realApp) says(method, path, body string, header map[string]string, status int, want string) world.Answer {
	a.t.Helper()
	req, err := http.NewRequestWithContext(a.t.Context(), method, a.URL+path, strings.NewReader(body))
	if err != nil {
		a.t.Fatal(err)
	}
	for k, v := range header {
		req.Header.Set(k, v)
	}
	got, err := world.Read(a.browser.Do(req))
	if err != nil {
		a.t.Fatal(err)
	}
	if got.Status != status || !strings.Contains(string(got.Body), want) {
		a.t.Fatalf("%s %s: %d %.500s, want %d %q", method, path, got.Status, got.Body, status, want)
	}
	return got
}

func (a *realApp) update(version string) {
	a.t.Helper()
	a.commitOf(version)
	var out struct{ DeploymentID string }
	a.call("POST", "/sites/"+a.ID+"/deploy", nil, &out)
	a.ended(out.DeploymentID)
}

// sleeps waits until the site's process sleeps.
func (a *realApp) sleeps() {
	a.t.Helper()
	a.until("its sleep", func() (bool, error) {
		var s struct {
			Process struct{ State, Message string }
		}
		err := a.Call(a.t.Context(), a.key, "GET", "/sites/"+a.ID, nil, &s)
		return s.Process.State == "sleeping", errors.Join(err, fmt.Errorf("it is %+v", s.Process))
	})
}

func (a *realApp) runtimeText() string {
	a.t.Helper()
	var l struct{ Logs []struct{ Message string } }
	a.call("GET", "/sites/"+a.ID+"/logs?limit=1000", nil, &l)
	var b strings.Builder
	for _, line := range l.Logs {
		b.WriteString(line.Message + "\n")
	}
	return b.String()
}

func expressStory(a *realApp) {
	u, _ := url.Parse(a.URL)
	a.says("GET", "/", "", map[string]string{"X-Forwarded-For": "6.6.6.6"}, 200, "express one for https://"+u.Host+" at 127.0.0.1")
	a.says("POST", "/sum", "[1,2,39]", map[string]string{"Content-Type": "application/json"}, 200, `{"sum":42}`)
	a.says("GET", "/none", "", nil, 404, "Cannot GET /none")
	first := a.versions[0]
	a.update("two")
	a.becomes("express two")
	a.call("POST", "/sites/"+a.ID+"/rollback", map[string]any{"deploymentId": first}, nil)
	a.until("the rollback", func() (bool, error) {
		got, err := world.Read(a.browser.Get(a.URL))
		return err == nil && strings.HasPrefix(string(got.Body), "express one"), err
	})
	a.call("POST", "/sites/"+a.ID+"/stop", nil, nil)
	a.until("the stop", func() (bool, error) {
		got, err := world.Read(a.browser.Get(a.URL))
		n := running(a.process)
		return err == nil && got.Status == 503 && n == 0, errors.Join(err, fmt.Errorf("%d, %d run", got.Status, n))
	})
	a.call("POST", "/sites/"+a.ID+"/start", nil, nil)
	a.until("the start", func() (bool, error) {
		got, err := world.Read(a.browser.Get(a.URL))
		return err == nil && got.Status == 200, err
	})

	// An unused application is put to sleep, and many concurrent requests wake it once.
	a.call("PATCH", "/sites/"+a.ID, map[string]any{"run": map[string]any{"sleepAfterSeconds": 1, "memoryMiB": 160}}, nil)
	var op struct{ ID string }
	a.call("POST", "/sites/"+a.ID+"/restart", nil, &op)
	if o := (appSite{a.installation}).operation(op.ID); o.Status != "success" {
		a.t.Fatalf("the restart: %+v", o)
	}
	a.sleeps()
	answers := make(chan error, 20)
	for range cap(answers) {
		go func() {
			got, err := world.Read(a.browser.Get(a.URL))
			if err == nil && (got.Status != 200 || !strings.HasPrefix(string(got.Body), "express one")) {
				err = fmt.Errorf("%d %.100s", got.Status, got.Body)
			}
			answers <- err
		}()
	}
	for range cap(answers) {
		if err := <-answers; err != nil {
			a.t.Errorf("a request that woke it: %v", err)
		}
	}
	if n := running(a.process); n > 1 {
		a.t.Errorf("%d of it run", n)
	}

	// A crash fails the current requests, and later ones are answered.
	a.says("GET", "/crash", "", nil, 502, "didn&#39;t answer")
	a.until("an answer after the crash", func() (bool, error) {
		got, err := world.Read(a.browser.Get(a.URL))
		return err == nil && got.Status == 200, err
	})
	a.until("the log of the crash", func() (bool, error) {
		text := a.runtimeText()
		return strings.Contains(text, "crashed on purpose") && strings.Contains(text, "exit code 1"), errors.New(text)
	})
	// The status says that the application ran out of memory.
	req, _ := http.NewRequestWithContext(a.t.Context(), "GET", a.URL+"/oom", nil)
	if resp, err := a.browser.Do(req); err == nil {
		resp.Body.Close()
	}
	a.until("the words about its memory", func() (bool, error) {
		text := a.runtimeText()
		return strings.Contains(text, "The application exited: out of memory"), errors.New(text)
	})
	a.until("an answer after it", func() (bool, error) {
		got, err := world.Read(a.browser.Get(a.URL))
		return err == nil && got.Status == 200, err
	})

	// Events arrive as they are sent, and keep the application awake.
	resp, err := a.browser.Get(a.URL + "/events")
	if err != nil {
		a.t.Fatal(err)
	}
	r := bufio.NewReader(resp.Body)
	for i := range 25 {
		line, err := r.ReadString('\n')
		if want := fmt.Sprintf("data: %d\n", i); err != nil || line != want {
			a.t.Fatalf("event %q, %v; want %q", line, err, want)
		}
		_, _ = r.ReadString('\n')
	}
	resp.Body.Close()
	a.sleeps()
}

func fastifyStory(a *realApp) {
	u, _ := url.Parse(a.URL)
	a.says("GET", "/", "", nil, 200, "fastify one for "+u.Hostname()+" at 127.0.0.1")
	a.says("GET", "/stream", "", nil, 200, "abc")
	a.says("HEAD", "/", "", nil, 200, "")
	a.update("two")
	a.becomes("fastify two")
	a.call("POST", "/sites/"+a.ID+"/rollback", map[string]any{"deploymentId": a.versions[0]}, nil)
	a.until("the rollback", func() (bool, error) {
		got, err := world.Read(a.browser.Get(a.URL))
		return err == nil && strings.HasPrefix(string(got.Body), "fastify one"), err
	})
}

func nextStory(a *realApp) {
	page := a.says("GET", "/?name=ada", "", nil, 200, "for <!-- -->ada")
	if !strings.Contains(string(page.Body), "next one") {
		a.t.Errorf("the page: %.500s", page.Body)
	}
	_, rest, ok := strings.Cut(string(page.Body), `src="/_next/static/`)
	script, _, _ := strings.Cut(rest, `"`)
	if !ok {
		a.t.Fatalf("no script in %.1000s", page.Body)
	}
	asset := a.says("GET", "/_next/static/"+script, "", nil, 200, "")
	if got := asset.Header.Get("Cache-Control"); !strings.Contains(got, "immutable") {
		a.t.Errorf("a hashed script is kept by %q", got)
	}
	a.says("POST", "/api/echo", strings.Repeat("x", 300_000), nil, 200, `{"got":300000}`)
}

func sveltekitStory(a *realApp) {
	a.says("GET", "/?name=ada", "", nil, 200, "sveltekit one for ada")
	a.says("POST", "/", "said=hello", map[string]string{
		"Content-Type": "application/x-www-form-urlencoded",
		"Origin":       a.URL,
		"Accept":       "text/html",
	}, 200, "you said hello")
	a.says("POST", "/", "said=hello", map[string]string{
		"Content-Type": "application/x-www-form-urlencoded",
		"Origin":       "https://evil.test",
	}, 403, "")
}

// chatStory checks that messages reach all users, that open WebSockets stay with their release after an update while
// new ones reach the new release, and that a WebSocket wakes the application.
func chatStory(a *realApp) {
	ada, bob := a.join("one"), a.join("one")
	ada.say("hello")
	for name, c := range map[string]*conversation{"ada": ada, "bob": bob} {
		if text, err := c.hear(); err != nil || text != "one: hello" {
			a.t.Errorf("%s heard %q, %v", name, text, err)
		}
	}
	bob.conn.Close()
	a.update("two")
	a.becomes("chat two")
	carl := a.join("two")
	carl.say("who is there?")
	if text, err := carl.hear(); err != nil || text != "two: who is there?" {
		a.t.Errorf("carl heard %q, %v", text, err)
	}
	ada.say("still here")
	if text, err := ada.hear(); err != nil || text != "one: still here" {
		a.t.Errorf("after the update ada heard %q, %v", text, err)
	}
	ada.conn.Close()
	carl.conn.Close()
	a.call("PATCH", "/sites/"+a.ID, map[string]any{"run": map[string]any{"sleepAfterSeconds": 1}}, nil)
	a.call("POST", "/sites/"+a.ID+"/restart", nil, nil)
	a.sleeps()
	dora := a.join("two")
	time.AfterFunc(2*time.Second, func() { dora.say("awake?") }) // longer than the time until it is put to sleep
	if text, err := dora.hear(); err != nil || text != "two: awake?" {
		a.t.Errorf("dora heard %q, %v", text, err)
	}
	dora.conn.Close()
}

// conversation is a WebSocket (RFC 6455) for short texts.
type conversation struct {
	conn *tls.Conn
	r    *bufio.Reader
}

// join opens a WebSocket and checks the version in the greeting.
func (a *realApp) join(version string) *conversation {
	a.t.Helper()
	u, _ := url.Parse(a.URL)
	roots, err := a.Trust()
	if err != nil {
		a.t.Fatal(err)
	}
	conn, err := tls.Dial("tcp", a.HTTPS, &tls.Config{RootCAs: roots, ServerName: u.Hostname(), NextProtos: []string{"http/1.1"}})
	if err != nil {
		a.t.Fatal(err)
	}
	a.t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(10 * time.Minute)) // longer than an update
	key := make([]byte, 16)
	rand.Read(key)
	fmt.Fprintf(
		conn,
		"GET /chat HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: %s\r\n\r\n",
		u.Host,
		base64.StdEncoding.EncodeToString(key),
	)
	c := &conversation{conn, bufio.NewReader(conn)}
	resp, err := http.ReadResponse(c.r, nil)
	if err != nil || resp.StatusCode != 101 {
		a.t.Fatalf("open a WebSocket: %+v, %v", resp, err)
	}
	if text, err := c.hear(); err != nil || text != "welcome to "+version {
		a.t.Fatalf("welcomed by %q, %v; want %s", text, err, version)
	}
	return c
}

func (c *conversation) say(text string) {
	frame := append([]byte{0x81, 0x80 | byte(len(text)), 0, 0, 0, 0}, text...) // masked with zeros
	_, _ = c.conn.Write(frame)
}

func (c *conversation) hear() (string, error) {
	head := make([]byte, 2)
	if _, err := io.ReadFull(c.r, head); err != nil {
		return "", err
	}
	if head[0] != 0x81 || head[1] > 125 {
		return "", fmt.Errorf("frame % x", head)
	}
	text := make([]byte, head[1])
	_, err := io.ReadFull(c.r, text)
	return string(text), err
}
