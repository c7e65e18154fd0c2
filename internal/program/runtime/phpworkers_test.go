package runtime

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"slipway/internal/program/php"
)

// visitors sends requests to a PHP program, each visitor from an address of its own.
type visitors struct {
	*world
	site *php.Site
}

func (w *world) visitors(p Program, s Spec, log php.Log) visitors {
	return visitors{w, &php.Site{
		Top: AppDir, Front: "index.php", Open: p.Open, Dial: p.Dial, Spool: w.t.TempDir(), Owner: "o", Name: s.Site,
		Workers: php.NewWorkers(php.WorkersConfig{Workers: s.Workers(), Server: p, Log: log}),
	}}
}

func (v visitors) request(address, path string, body io.Reader) (*http.Response, error) {
	method := "GET"
	if body != nil {
		method = "POST"
	}
	req, err := http.NewRequestWithContext(v.t.Context(), method, "http://site.test"+path, body)
	if err != nil {
		return nil, err
	}
	req.Header.Set("X-Real-Ip", address)
	if body != nil {
		req.ContentLength = 1000
	}
	return v.site.RoundTrip(req)
}

// said receives the lines of a site's log.
type said chan string

// Say implements php.Log.
func (s said) Say(line string) { s <- line }

// answers sends a request and returns the text of the answer.
func (v visitors) answers(address, path string) string {
	v.t.Helper()
	resp, err := v.request(address, path, nil)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// meet is a page that waits until this many requests run at once, or for 30 seconds.
const meet = `<?php touch("data/" . uniqid("", true)); $until = microtime(true) + 30;
while (count(glob("data/*")) < $_GET["n"]) { if (microtime(true) > $until) { exit("alone with " . count(glob("data/*"))); } usleep(10000); clearstatcache(); }
echo "met";`

// Eight requests that come at the same moment must run at the same time, because there are enough workers.
func TestPHPRequestsAtOnce(t *testing.T) {
	t.Parallel()
	w := phpWorld(t)
	s := w.phpSpec("atonce", map[string]string{"index.php": meet})
	s.Limits.Memory = 512 << 20
	s.Storage = []Storage{{Path: "data"}}
	v := w.visitors(w.start(s), s, nil)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			if text := v.answers("192.0.2.1", "/?n=8"); text != "met" {
				t.Errorf("request %d: %s", i, text)
			}
		})
	}
	all.Wait()
}

// A visitor may send requests slowly, not read the answers, or send requests that take long. Other visitors must still
// get workers, and the log must say that requests wait.
func TestPHPWorkersAreShared(t *testing.T) {
	t.Parallel()
	w := phpWorld(t)
	s := w.phpSpec("shared", map[string]string{
		"index.php": `<?php if (isset($_GET["end"])) { touch("data/end"); } echo "here ", strlen(file_get_contents("php://input"));`,
		"large.php": `<?php for ($i = 0; $i < 640; $i++) { echo str_repeat(chr(65 + $i % 26), 16384); }`,
		"long.php":  `<?php while (!is_file("data/end")) { usleep(10000); clearstatcache(); } echo "long";`,
	})
	s.Limits.Memory = 512 << 20
	s.Storage = []Storage{{Path: "data"}}
	lines := make(said, 10)
	p := w.start(s)
	v := w.visitors(p, s, lines)
	const attacker, other = "192.0.2.1", "192.0.2.2"
	here := func(when string) {
		t.Helper()
		done := make(chan string, 1)
		go func() { done <- v.answers(other, "/") }()
		select {
		case text := <-done:
			if text != "here 0" {
				t.Fatalf("%s: %q", when, text)
			}
		case <-time.After(30 * time.Second):
			t.Fatalf("%s another visitor gets no answer", when)
		}
	}
	var stalled []*io.PipeWriter
	var all sync.WaitGroup
	for range 2 * s.Workers() {
		r, to := io.Pipe()
		stalled = append(stalled, to)
		all.Go(func() {
			resp, err := v.request(attacker, "/", r)
			if err != nil {
				t.Error(err)
				return
			}
			defer resp.Body.Close()
			if b, err := io.ReadAll(resp.Body); string(b) != "here 1000" || err != nil {
				t.Errorf("a body that came late: %q %v", b, err)
			}
		})
		if _, err := to.Write([]byte("abc")); err != nil {
			t.Fatal(err)
		}
	}
	here("while bodies stall")
	for _, to := range stalled {
		all.Go(func() { _, _ = to.Write([]byte(strings.Repeat("x", 997))); _ = to.Close() })
	}
	all.Wait()

	var unread []*http.Response
	for range 2 * s.Workers() {
		resp, err := v.request(attacker, "/large.php", nil)
		if err != nil {
			t.Fatal(err)
		}
		unread = append(unread, resp)
	}
	here("while answers aren't read")
	for _, resp := range unread {
		n, err := io.Copy(io.Discard, resp.Body)
		if n != 640*16384 || err != nil {
			t.Errorf("an answer that is read late has %d bytes: %v", n, err)
		}
		resp.Body.Close()
	}

	for range 2 * s.Workers() {
		all.Go(func() {
			if text := v.answers(attacker, "/long.php"); text != "long" {
				t.Error(text)
			}
		})
	}
	select {
	case line := <-lines:
		if want := fmt.Sprintf("A visitor uses %d of PHP's %d workers", s.Workers()-2, s.Workers()); !strings.HasPrefix(line, want) {
			t.Errorf("the log says %q", line)
		}
	case <-time.After(30 * time.Second):
		t.Error("the log does not say that requests wait")
	}
	here("while requests take long")
	v.answers(other, "/?end=1")
	all.Wait()
}
