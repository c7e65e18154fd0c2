package control

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

// Health and readiness are answered for any host name, metrics for the installation's names, and other paths go to the
// interface.
func TestOperator(t *testing.T) {
	t.Parallel()
	var serving, database atomic.Bool
	says := func(text string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, text) })
	}
	h := Operator{
		Door:    New(Config{Hosts: []string{"slipway.test"}}),
		Public:  says("interface"),
		Metrics: says("figures"),
		Serving: &serving,
		Needs:   map[string]Need{"the database does not answer": func(context.Context) bool { return database.Load() }},
	}.Handler()
	ask := func(host, path string) (int, string) {
		r := httptest.NewRequest("GET", path, nil)
		r.Host = host
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, r)
		if rec.Code == http.StatusServiceUnavailable && rec.Header().Get("Retry-After") == "" {
			t.Errorf("%s: 503 without Retry-After", path)
		}
		return rec.Code, strings.TrimSpace(rec.Body.String())
	}
	for _, step := range []struct {
		change     func()
		host, path string
		status     int
		text       string
	}{
		{nil, "10.0.0.1", "/healthz", 200, "ok"},
		{nil, "10.0.0.1", "/readyz", 503, "starting or draining"},
		{func() { serving.Store(true) }, "10.0.0.1", "/readyz", 503, "the database does not answer"},
		{func() { database.Store(true) }, "10.0.0.1", "/readyz", 200, "ready"},
		{nil, "slipway.test", "/metrics", 200, "figures"},
		{nil, "slipway.test", "/", 200, "interface"},
		{nil, "slipway.test", "//x", 200, "interface"},
		{nil, "evil.test", "/metrics", 421, ""},
		{nil, "evil.test", "/", 421, ""},
	} {
		if step.change != nil {
			step.change()
		}
		status, text := ask(step.host, step.path)
		if status != step.status || step.text != "" && text != step.text {
			t.Errorf("%s%s: %d %q, want %d %q", step.host, step.path, status, text, step.status, step.text)
		}
	}
}
