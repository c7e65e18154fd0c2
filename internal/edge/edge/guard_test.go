package edge

import (
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"slipway/internal/platform/id"

	"slipway/internal/edge/fastpath"
)

// origin counts the requests forwarded to it.
type origin struct{ asked atomic.Int64 }

func (o *origin) RoundTrip(r *http.Request) (*http.Response, error) {
	o.asked.Add(1)
	return &http.Response{
		StatusCode:    200,
		Proto:         "HTTP/1.1",
		ProtoMajor:    1,
		ProtoMinor:    1,
		Header:        http.Header{"Content-Type": {"text/plain"}},
		Body:          io.NopCloser(strings.NewReader("forwarded")),
		ContentLength: 9,
		Request:       r,
	}, nil
}

// Responses that depend on more than the path are never kept as ready answers, and checking for one forwards no
// request: each visitor's request is forwarded once.
func TestNotReady(t *testing.T) {
	t.Parallel()
	o := &origin{}
	w := start(t, func(c *Config) { c.Out = o })
	w.live("s1", "blog", stateLive, w.publish(map[string]string{
		"index.html": "home", "de.html": "deutsch", "beta.html": "beta", "secret/x.html": "secret", "about.html": "about",
		"_redirects": "/lang /de 200! Language=de\n/lang /about 200\n/cookie /beta 200! Cookie=beta\n/cookie /about 200\n/api/* https://origin.test/:splat 200\n/gone /about 404\n/old /about 301\n",
		"_headers":   "/secret/*\n  Basic-Auth: joe:pass\n",
	}))
	w.settle("s1", `{"proxyHosts":["origin.test"]}`)
	const host = "https://blog.sites.test"
	w.get(host+"/lang").want(t, 200, "about")
	w.get(host+"/lang", "Accept-Language: de").want(t, 200, "deutsch")
	w.get(host+"/lang").want(t, 200, "about")
	w.get(host+"/cookie").want(t, 200, "about")
	w.get(host+"/cookie", "Cookie: beta=1").want(t, 200, "beta")
	w.get(host+"/secret/x").want(t, 401, "")
	w.get(host+"/secret/x", "Authorization: Basic am9lOnBhc3M=").want(t, 200, "secret")
	w.get(host+"/secret/x").want(t, 401, "")
	for n := int64(1); n <= 3; n++ {
		w.get(host+"/api/x").want(t, 200, "forwarded")
		if got := o.asked.Load(); got != n {
			t.Fatalf("%d requests were forwarded after %d", got, n)
		}
	}
	at := &fastpath.Place{Host: "blog.sites.test"}
	for _, path := range []string{"/lang", "/cookie", "/secret/x", "/api/x", "/gone", "/old", "/nothing"} {
		if w.ready(at, []byte(path), 0) != nil {
			t.Errorf("%s is ready", path)
		}
	}
	if w.ready(at, []byte("/about"), 0) == nil {
		t.Error("/about is not ready")
	}
	if o.asked.Load() != 3 {
		t.Error("looking whether it is ready forwards a request")
	}

	// Once a site is protected, no ready answer of it is used.
	w.get(host+"/about").want(t, 200, "about")
	w.settle("s1", `{"protection":"all","hash":"x"}`)
	if w.ready(at, []byte("/about"), 0) != nil {
		t.Error("a protected page is ready")
	}
	w.get(host+"/about").want(t, 401, "")
}

// Readers see a batch of changes all at once: no host has left its old site without having reached the new one.
func TestHostsSwapAtOnce(t *testing.T) {
	t.Parallel()
	var tb table
	tb.now.Store(&hosts{})
	row := func(site id.Site, label string, version int64) *target {
		return &target{site: site, label: label, state: stateEmpty, version: version}
	}
	tb.change(func(c *changes) {
		for i := range 1000 {
			c.set(row(id.Site("s"+string(rune('a'+i%26))+string(rune('a'+i/26))), "l"+string(rune('a'+i%26))+string(rune('a'+i/26)), 1))
		}
		c.set(row("one", "first", 1))
		c.claims([]*claim{{host: "www.test", site: "one", state: claimActive, version: 1}}, 0)
	})
	if n := tb.hosts().len(); n != 1002 {
		t.Fatalf("%d hosts", n)
	}
	old := tb.hosts()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range 500 {
			from, to := "first", "second"
			if i%2 == 1 {
				from, to = to, from
			}
			tb.change(func(c *changes) {
				c.set(row("one", to, int64(i+2)))
				if tb.hosts().find(from) == nil || tb.hosts().find(to) != nil {
					t.Error("seen before it was in force")
				}
			})
		}
	}()
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
		}
		h := tb.hosts()
		first, second := h.find("first"), h.find("second")
		if (first == nil) == (second == nil) || h.of("one") == nil || h.claim("www.test") == nil || h.len() != 1002 {
			t.Fatalf("half a change: %v, %v, %d", first, second, h.len())
		}
	}
	if old.find("first") == nil || old.find("second") != nil {
		t.Error("a snapshot in use has changed")
	}
	tb.change(func(c *changes) { c.keep(map[id.Site]bool{"one": true}); c.claims(nil, 0) })
	if h := tb.hosts(); h.len() != 1 || h.claim("www.test") != nil || h.of("one") == nil {
		t.Errorf("%d are left", h.len())
	}
}
