package nodes

import (
	"bufio"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"slipway/e2e/world"
)

// talker is a program that streams, upgrades connections, accepts large bodies, queries Redis, and returns its
// process's ID.
var talker = map[string]string{
	"package.json": `{"scripts": {"start": "node server.js"}, "engines": {"node": ">=18"}}`,
	"slipway.toml": "[run]\nsleep_after_seconds = 600\n",
	"server.js": `
const http = require('http'), crypto = require('crypto');
const me = crypto.randomUUID();
const s = http.createServer((q, r) => {
  if (q.url === '/events') {
    r.writeHead(200, {'content-type': 'text/event-stream'});
    let n = 0;
    const t = setInterval(() => { r.write('data: ' + n++ + '\n\n'); if (n === 5) { clearInterval(t); r.end(); } }, 100);
    return;
  }
  if (q.url === '/late') { setTimeout(() => r.end('late'), 200); return; }
  if (q.url === '/ticks') {
    r.writeHead(200, {'content-type': 'text/event-stream'});
    const t = setInterval(() => r.write('data: tick\n\n'), 50);
    r.on('close', () => clearInterval(t));
    return;
  }
  if (q.url.startsWith('/redis?')) {
    const c = require('net').connect(process.env.REDIS_PORT, process.env.REDIS_HOST);
    c.once('data', d => { r.end(d); c.destroy(); }).on('error', e => r.end(String(e)));
    c.write(decodeURIComponent(q.url.slice(7)).replaceAll('PREFIX', process.env.REDIS_PREFIX) + '\r\n');
    return;
  }
  const sum = crypto.createHash('sha256');
  q.on('data', b => sum.update(b)).on('end', () => r.end('instance ' + process.env.SLIPWAY_SITE_ID + ' ' + me + ' ' + q.headers['x-forwarded-proto'] + ' ' + sum.digest('hex')));
});
s.on('upgrade', (q, c) => {
  c.write('HTTP/1.1 101 Switching Protocols\r\nUpgrade: echo\r\nConnection: Upgrade\r\n\r\n');
  c.pipe(c);
});
s.listen(process.env.PORT);`,
}

// related returns an installation whose nodes can connect to each other.
func related(t *testing.T) *installation {
	t.Helper()
	i := install(t)
	ports, err := world.FreePorts(len(i.nodes))
	if err != nil {
		t.Fatal(err)
	}
	for n, w := range i.nodes {
		w.Flags = append(w.Flags, "--node-listen", ports[n])
	}
	return i
}

// Each node serves a program that runs on the other node, with request bodies, streams and WebSockets, and doesn't
// start a second copy.
func TestAnyNodeAnswers(t *testing.T) {
	i := related(t)
	a, b := i.nodes[0], i.nodes[1]
	i.start(a, b)
	i.commit("talk", talker)
	site := i.site(a, "talk")
	i.until("it is deployed", func() bool {
		return i.count(`SELECT count(*) FROM deployments WHERE site_id = $1 AND status = 'success'`, site) == 1
	})
	home, other := i.stays(site)
	status, here := i.visit(home, "talk", "/")
	if status != 200 || !strings.Contains(here, "instance "+site) {
		t.Fatalf("at home: %d %s", status, here)
	}
	for range 20 {
		if status, there := i.visit(other, "talk", "/"); status != 200 || there != here {
			t.Fatalf("at the other node: %d %s, want %s", status, there, here)
		}
	}
	browser, err := other.Browser()
	if err != nil {
		t.Fatal(err)
	}
	defer browser.CloseIdleConnections()
	answer, err := other.Site(t.Context(), browser, world.Request{
		Method: http.MethodPost, URL: "https://talk.localhost/", Body: []byte(strings.Repeat("x", 5<<20)),
	})
	sum := sha256.Sum256([]byte(strings.Repeat("x", 5<<20)))
	if err != nil || answer.Status != 200 || !strings.HasSuffix(string(answer.Body), hex.EncodeToString(sum[:])) {
		t.Errorf("a body of 5 MiB: %v %d %s", err, answer.Status, answer.Body)
	}
	begun := time.Now()
	answer, err = other.Site(t.Context(), browser, world.Request{Method: http.MethodGet, URL: "https://talk.localhost/events"})
	if err != nil || strings.Count(string(answer.Body), "data: ") != 5 || time.Since(begun) < 400*time.Millisecond {
		t.Errorf("events: %v %q", err, answer.Body)
	}
	i.echoes(other, "talk.localhost")

	// A restart of the program fails no request at the other node.
	end := i.visitors("talk", "/", other)
	if _, message, failure := i.operation(other, "POST", "/sites/"+site+"/restart", nil); message != "Restarted" {
		t.Errorf("the restart: %q %q", message, failure)
	}
	i.until("another process answers at the other node", func() bool {
		status, now := i.visit(other, "talk", "/")
		return status == 200 && now != here
	})
	end("during a restart")
	i.streamsEnd(home, other)
	// Connections without a certificate of the installation are rejected.
	address := i.nodes[0].Flags[len(i.nodes[0].Flags)-1]
	c, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // that is what is tried
	if err == nil {
		_, _ = io.WriteString(c, `{"deployment":"x"}`+"\n")
		if text, err := io.ReadAll(c); err == nil || len(text) > 0 {
			t.Errorf("a stranger is answered %q", text)
		}
		c.Close()
	}
}

// echoes upgrades a connection through a node and checks that the program echoes each line.
func (i *installation) echoes(w *world.World, host string) {
	i.t.Helper()
	c, r := i.upgraded(w, host)
	defer c.Close()
	for n := range 3 {
		line := fmt.Sprintf("message %d\n", n)
		if _, err := io.WriteString(c, line); err != nil {
			i.t.Fatal(err)
		}
		if got, err := r.ReadString('\n'); err != nil || got != line {
			i.t.Fatalf("got %q, %v", got, err)
		}
	}
}

// upgraded returns an upgraded connection to a program.
func (i *installation) upgraded(w *world.World, host string) (net.Conn, *bufio.Reader) {
	i.t.Helper()
	roots, err := w.Trust()
	if err != nil {
		i.t.Fatal(err)
	}
	c, err := tls.Dial("tcp", w.HTTPS, &tls.Config{RootCAs: roots, ServerName: host})
	if err != nil {
		i.t.Fatal(err)
	}
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	_, port, _ := net.SplitHostPort(w.HTTPS)
	fmt.Fprintf(c, "GET /socket HTTP/1.1\r\nHost: %s:%s\r\nUpgrade: echo\r\nConnection: Upgrade\r\n\r\n", host, port)
	r := bufio.NewReader(c)
	resp, err := http.ReadResponse(r, nil)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		i.t.Fatalf("a change of protocol: %v %v", resp, err)
	}
	return c, r
}

// visitors sends requests for a page to nodes, with two clients per node, a hundred times a second, until end is
// called. No request may fail.
func (i *installation) visitors(site, path string, nodes ...*world.World) (end func(when string)) {
	i.t.Helper()
	var failed, asked atomic.Int64
	stop := make(chan struct{})
	var all sync.WaitGroup
	for _, w := range nodes {
		browser, err := w.Browser()
		if err != nil {
			i.t.Fatal(err)
		}
		i.t.Cleanup(browser.CloseIdleConnections)
		for range 2 {
			all.Go(func() {
				pace := time.NewTicker(10 * time.Millisecond)
				defer pace.Stop()
				for {
					select {
					case <-stop:
						return
					case <-pace.C:
					}
					asked.Add(1)
					a, err := w.Site(i.t.Context(), browser, world.Request{Method: http.MethodGet, URL: "https://" + site + ".localhost" + path})
					if err != nil || a.Status != 200 {
						failed.Add(1)
						i.t.Logf("failed: %v %d %.100q", err, a.Status, a.Body)
					}
				}
			})
		}
	}
	i.until("they are answered", func() bool { return asked.Load() > int64(4*len(nodes)) })
	return func(when string) {
		i.t.Helper()
		close(stop)
		all.Wait()
		if failed.Load() > 0 {
			i.t.Errorf("%d of %d requests failed %s", failed.Load(), asked.Load(), when)
		}
		i.t.Logf("%d requests %s", asked.Load(), when)
	}
}

// streamsEnd restarts the program's node while the other node serves an event stream and an upgraded connection. Both
// must end with an error, not as if they were complete.
func (i *installation) streamsEnd(home, other *world.World) {
	i.t.Helper()
	browser, err := other.Browser()
	if err != nil {
		i.t.Fatal(err)
	}
	defer browser.CloseIdleConnections()
	events, err := browser.Get("https://talk.localhost/ticks")
	if err != nil {
		i.t.Fatal(err)
	}
	defer events.Body.Close()
	ticks := bufio.NewReader(events.Body)
	if line, err := ticks.ReadString('\n'); err != nil || events.StatusCode != http.StatusOK || line != "data: tick\n" {
		i.t.Fatalf("an event stream: %d %q %v", events.StatusCode, line, err)
	}
	socket, said := i.upgraded(other, "talk.localhost")
	defer socket.Close()
	if _, err := io.WriteString(socket, "before\n"); err != nil {
		i.t.Fatal(err)
	}
	if line, err := said.ReadString('\n'); err != nil || line != "before\n" {
		i.t.Fatalf("an upgraded connection: %q %v", line, err)
	}
	if err := home.Stop(i.t.Context()); err != nil {
		i.t.Fatal(err)
	}
	for err = nil; err == nil; {
		_, err = ticks.ReadString('\n')
	}
	if errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		i.t.Error("a truncated stream ends like a complete one")
	}
	_ = socket.SetDeadline(time.Now().Add(time.Minute))
	if line, err := said.ReadString('\n'); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		i.t.Errorf("the upgraded connection goes on: %q %v", line, err)
	}
	i.start(home)
	for _, w := range i.nodes {
		if status, body := i.visit(w, "talk", "/"); status != http.StatusOK {
			i.t.Errorf("after the restart: %d %s", status, body)
		}
	}
}

// When the node of a program without storage is killed, unsent requests at the other node wait and succeed there within
// 20 seconds. A node that was stopped meanwhile finds that its program has moved, and ends its old process before it
// answers. Data in the operator's Redis is available wherever the program runs.
func TestProgramMovesWhenItsNodeDies(t *testing.T) {
	i := related(t)
	a, b := i.nodes[0], i.nodes[1]
	server := operators(t, world.Redis, a.Hooks)
	for _, w := range i.nodes {
		w.Flags = append(w.Flags, "--redis", server)
	}
	i.start(a, b)
	i.commit("talk", talker)
	site := i.site(a, "talk")
	i.until("it is deployed", func() bool {
		return i.count(`SELECT count(*) FROM deployments WHERE site_id = $1 AND status = 'success'`, site) == 1
	})
	redis := func(w *world.World, command, want string) {
		t.Helper()
		if status, got := i.visit(w, "talk", "/redis?"+url.PathEscape(command)); status != 200 || !strings.HasPrefix(got, want) {
			t.Errorf("%s: %d %q, want %q", command, status, got, want)
		}
	}
	home, other := i.stays(site)
	redis(other, "SET PREFIXk stored", "+OK")
	redis(other, "SET another:k stored", "-NOPERM")
	_, before := i.visit(other, "talk", "/")
	end := i.visitors("talk", "/late", other) // most of the time, a request is waiting in the program
	home.Kill()
	died := time.Now()
	status, after := i.visit(other, "talk", "/")
	took := time.Since(died)
	if status != 200 || after == before || took > world.Patience(20*time.Second) {
		t.Errorf("after the death of its node: %d %s after %s", status, after, took)
	}
	redis(other, "GET PREFIXk", "$6\r\nstored\r\n")
	t.Logf("a request that came as the node died was answered by the other one after %s", took.Round(100*time.Millisecond))
	end("as its node died")
	i.start(home)
	if status, now := i.visit(home, "talk", "/"); status != 200 || now != after {
		t.Errorf("the node that is back: %d %s, want %s", status, now, after)
	}

	// Now stop the other node.
	if err := syscall.Kill(other.PID(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	i.until("the list says that it is down", func() bool { // earlier requests to it would wait
		out, err := home.CLI("", "node", "list")
		return err == nil && strings.Contains(out, " down ")
	})
	status, moved := i.visit(home, "talk", "/")
	if status != 200 || moved == after {
		t.Errorf("while its node is held: %d %s", status, moved)
	}
	if err := syscall.Kill(other.PID(), syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if status, now := i.visit(other, "talk", "/"); status != 200 || now != moved {
		t.Errorf("the node that was held answers %d %s, want %s", status, now, moved)
	}
}

// A node is drained while both nodes are under load. The other node takes over the program, no request fails, and both
// nodes report the program as running. With SLIPWAY_E2E_BEFORE, the path of an earlier version's program, the nodes are
// also upgraded from that version one after the other and back.
func TestDrain(t *testing.T) {
	i := related(t)
	a, b := i.nodes[0], i.nodes[1]
	versions := []string{a.Binary}
	if before := os.Getenv("SLIPWAY_E2E_BEFORE"); before != "" {
		a.Binary, b.Binary = before, before
		versions = append(versions, before)
	}
	i.start(a, b)
	i.commit("talk", talker)
	site := i.site(a, "talk")
	i.until("it is deployed", func() bool {
		return i.count(`SELECT count(*) FROM deployments WHERE site_id = $1 AND status = 'success'`, site) == 1
	})
	instances := 0
	if len(versions) == 1 { // an earlier version may not support several instances
		instances = 2
		run := map[string]any{"run": map[string]any{"instances": map[string]any{"min": instances, "max": instances}}}
		if err := a.Call(t.Context(), i.key, "PATCH", "/sites/"+site, run, nil); err != nil {
			t.Fatal(err)
		}
	}
	home, other := i.stays(site)
	if status, body := i.visit(home, "talk", "/"); status != 200 {
		t.Fatalf("%d %s", status, body)
	}
	runs := func(w *world.World) bool {
		var s struct {
			Process struct {
				State     string
				Instances int
			}
		}
		if err := w.Call(t.Context(), i.key, "GET", "/sites/"+site, nil, &s); err != nil {
			t.Fatal(err)
		}
		return s.Process.State == "running" && (instances == 0 || s.Process.Instances == instances)
	}
	for _, w := range i.nodes {
		i.until("each node says that all of it runs", func() bool { return runs(w) })
	}
	end := i.visitors("talk", "/", i.nodes...)
	if out, err := home.CLI("", "node", "drain", "--node", i.id(home)); err != nil || !strings.Contains(out, "is draining") {
		t.Errorf("%v: %s", err, out)
	}
	i.until("the other node has it", func() bool {
		return i.count(`SELECT count(*) FROM placements WHERE site_id = $1 AND node = $2`, site, i.id(other)) == 1
	})
	for _, w := range i.nodes {
		i.until("each node says that all of it runs", func() bool { return runs(w) })
	}
	end("during the drain")
	out, err := other.CLI("", "node", "list")
	if err != nil || !strings.Contains(out, " draining ") {
		t.Errorf("%v: %s", err, out)
	}

	// Replace one node after the other, as in an upgrade, while visitors use the other one.
	for n := range 2 * len(versions) {
		w, stays := home, other
		if n%2 == 1 {
			w, stays = other, home
		}
		if out, err := w.CLI("", "node", "drain", "--node", i.id(w)); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		i.until("the node that stays has it", func() bool {
			return i.count(`SELECT count(*) FROM placements WHERE site_id = $1 AND node = $2`, site, i.id(stays)) == 1
		})
		end := i.visitors("talk", "/", stays)
		if err := w.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.Binary = versions[n/2]
		i.start(w)
		end("while a node was replaced")
		if status, body := i.visit(w, "talk", "/"); status != http.StatusOK {
			t.Errorf("at the new one: %d %s", status, body)
		}
	}
}

// A node with only the role edge serves the programs of other nodes, even a program that runs nowhere yet.
func TestEdgeAlone(t *testing.T) {
	i := related(t)
	a, b := i.nodes[0], i.nodes[1]
	b.Flags = append(b.Flags, "--roles", "edge")
	i.start(a, b)
	i.commit("talk", talker)
	site := i.site(a, "talk")
	i.until("it is deployed", func() bool {
		return i.count(`SELECT count(*) FROM deployments WHERE site_id = $1 AND status = 'success'`, site) == 1
	})
	status, here := i.visit(a, "talk", "/")
	if there, text := i.visit(b, "talk", "/"); status != 200 || there != 200 || text != here {
		t.Errorf("%d %s; at the edge %d %s", status, here, there, text)
	}
	if err := a.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	i.exec(`DELETE FROM placements`)
	i.start(a)
	if status, text := i.visit(b, "talk", "/"); status != 200 || text == here {
		t.Errorf("where nothing has run yet: %d %s", status, text)
	}
	i.echoes(b, "talk.localhost")
}

// Each node serves a PHP application: its scripts, its static files and its stored files.
func TestAnyNodeAnswersForPHP(t *testing.T) {
	i := related(t)
	a, b := i.nodes[0], i.nodes[1]
	i.start(a, b)
	i.commit("php", map[string]string{
		"composer.json":    `{"name": "acme/php", "require": {"php": "^8.1"}, "repositories": [{"packagist": false}]}`,
		"slipway.toml":     "[run]\nstorage = [\"public/uploads\"]\n",
		"public/index.php": `<?php printf("%s %s %s %d", $_SERVER["REQUEST_URI"], $_SERVER["HTTPS"], $_SERVER["HTTP_HOST"], strlen(file_get_contents("php://input")));`,
		"public/store.php": `<?php echo file_put_contents("uploads/" . ($_GET["n"] ?? "a") . ".txt", "stored");`,
		"public/style.css": "body{}",
	})
	site := i.site(a, "php")
	i.until("it is deployed", func() bool {
		return i.count(`SELECT count(*) FROM deployments WHERE site_id = $1 AND status = 'success'`, site) == 1
	})
	home, other := i.stays(site)
	for n, w := range []*world.World{other, home, other, home} { // a file stored through one node is immediately available at the other
		reads := home
		if w == home {
			reads = other
		}
		file := fmt.Sprintf("/uploads/%d.txt", n)
		if status, text := i.visit(reads, "php", file); status != http.StatusOK || text == "stored" { // before it is stored, index.php answers
			t.Fatalf("before it is stored: %d %.100q", status, text)
		}
		if status, text := i.visit(w, "php", fmt.Sprintf("/store.php?n=%d", n)); status != http.StatusOK || text != "6" {
			t.Fatalf("the file is not stored: %d %.100q", status, text)
		}
		if status, text := i.visit(reads, "php", file); status != http.StatusOK || text != "stored" {
			t.Errorf("a file stored through one node gives %d %.100q at the other", status, text)
		}
	}
	for _, w := range []*world.World{other, home} {
		browser, err := w.Browser()
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range [][2]string{ // the third request stores the file that the fourth reads
			{"/some/page?x=1", "/some/page?x=1 on php.localhost"}, {"/style.css", "body{}"}, {"/store.php", "6"}, {"/uploads/a.txt", "stored"},
		} {
			i.until(x[0], func() bool {
				status, text := i.visit(w, "php", x[0])
				return status == 200 && strings.HasPrefix(text, x[1])
			})
		}
		answer, err := w.Site(t.Context(), browser, world.Request{
			Method: http.MethodPost, URL: "https://php.localhost/post", Body: []byte(strings.Repeat("x", 100_000)),
		})
		if err != nil || answer.Status != 200 || !strings.HasSuffix(string(answer.Body), " 100000") {
			t.Errorf("a form: %v %d %.200s", err, answer.Status, answer.Body)
		}
		browser.CloseIdleConnections()
	}
}
