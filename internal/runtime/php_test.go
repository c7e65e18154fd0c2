package runtime

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"slipway/internal/php"
)

// phpWorld is an engine with storage.
func phpWorld(t testing.TB) *world {
	w := newWorld(t)
	w.c.Storage = w.c.Dir + "-storage"
	return w
}

func (w *world) phpSpec(id string, files map[string]string) Spec {
	s := w.spec(id, files)
	s.Argv, s.PHP = nil, &PHP{}
	return s
}

// ask asks a PHP program as the edge does.
func (w *world) ask(p Program, s Spec, method, path, body string) (int, string) {
	w.t.Helper()
	site := &php.Site{Top: AppDir, Front: "index.php", Open: p.Open, Dial: p.Dial, Log: func(line string) { s.Output("stderr", line) }}
	req, err := http.NewRequestWithContext(w.t.Context(), method, "http://site.test"+path, strings.NewReader(body))
	ok(w.t, err)
	resp, err := site.RoundTrip(req)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	ok(w.t, err)
	return resp.StatusCode, string(b)
}

func TestPHP(t *testing.T) {
	t.Parallel()
	w := phpWorld(t)
	s := w.phpSpec("one", map[string]string{"index.php": `<?php error_log("seen"); echo "hello ", $_SERVER["REQUEST_URI"], " ", file_get_contents("php://input"), " ", ini_get("memory_limit"), " ", getenv("A");`})
	s.Env = []string{"A=b"}
	begin := time.Now()
	p := w.start(s)
	status, text := w.ask(p, s, "POST", "/x?y=1", "body")
	t.Logf("first answer after %s", time.Since(begin))
	if status != 200 || text != "hello /x?y=1 body 128M b" {
		t.Errorf("%d %q\n%s", status, text, w.said())
	}
	if !strings.Contains(w.said(), "stderr seen") {
		t.Errorf("PHP's log is missing:\n%s", w.said())
	}
}
