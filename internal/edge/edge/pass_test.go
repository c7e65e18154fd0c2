package edge

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"slipway/internal/platform/id"

	"slipway/internal/edge/endpoint"
	"slipway/internal/edge/upstream"
	"slipway/internal/platform/fault"
)

// ending is a source whose program has always ended when a request is passed to it.
type ending struct {
	*programs
	dead atomic.Int64
}

// Awake implements endpoint.Source.
func (e *ending) Awake(id.Deployment) (*endpoint.Endpoint, bool) {
	ended := make(chan struct{})
	close(ended)
	e.dead.Add(1)
	refuse := func(context.Context) (net.Conn, error) { return nil, errors.New("nobody listens") }
	return &endpoint.Endpoint{
		Upstream: upstream.New(upstream.Config{Dial: refuse}),
		Ended:    ended,
		Failed:   e.fail,
		Release:  func() { e.dead.Add(-1) },
	}, true
}

// do sends a request over proto.
func (e *ending) do(t *testing.T, proto, method, path, body string) (*http.Response, string) {
	t.Helper()
	transport := &http.Transport{
		TLSClientConfig:   &tls.Config{RootCAs: e.roots, ServerName: "app.sites.test", NextProtos: []string{proto}},
		ForceAttemptHTTP2: proto == "h2",
	}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(t.Context(), method, "https://"+e.https+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Host = "app.sites.test"
	resp, err := transport.RoundTrip(req)
	if err != nil {
		t.Fatalf("%s over %s: %v", method, proto, err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("%s over %s: %v", method, proto, err)
	}
	return resp, string(b)
}

// If a program has ended when a request is passed to it, the next program answers, or a page says when to try again.
func TestPassedToTheNext(t *testing.T) {
	t.Parallel()
	e := &ending{}
	e.programs = startProgram(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		_, _ = io.WriteString(w, r.Method+" "+r.URL.RequestURI()+" "+string(b))
	}, func(c *Config) {
		e.programs = c.Programs["node"].(*programs)
		c.Programs["node"] = e
	})
	for _, proto := range []string{"http/1.1", "h2"} {
		for method, body := range map[string]string{"GET": "", "DELETE": "", "POST": "a body"} {
			resp, got := e.do(t, proto, method, "/a?b=c", body)
			if want := method + " /a?b=c " + body; resp.StatusCode != 200 || got != want {
				t.Errorf("%s over %s: %d %q, want %q", method, proto, resp.StatusCode, got, want)
			}
		}
	}
	refused := error(&fault.Error{Kind: fault.Unavailable, Message: "The application crashed", Code: "application_crashed"})
	e.refuse.Store(&refused)
	for _, proto := range []string{"http/1.1", "h2"} {
		if resp, got := e.do(t, proto, "GET", "/",
			""); resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") != "5" ||
			!strings.Contains(got, "<html") {
			t.Errorf("over %s, where none starts: %d %v %.80q", proto, resp.StatusCode, resp.Header, got)
		}
	}
	if n := e.dead.Load() + e.held.Load(); n != 0 {
		t.Errorf("%d programs are still held", n)
	}
}
