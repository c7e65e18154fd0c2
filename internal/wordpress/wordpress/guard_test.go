package wordpress

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"slipway/internal/platform/id"

	"slipway/internal/edge/endpoint"
	"slipway/internal/wordpress/guard"
	"slipway/internal/wordpress/pagecache"
)

// fill requests a page and stores the answer that a program would give.
func fill(c *pagecache.Cache, r *http.Request, body string) {
	h := http.Header{"Content-Type": {"text/html; charset=UTF-8"}}
	defer c.Filling("site", r)()
	resp := &http.Response{StatusCode: 200, Header: h, Body: io.NopCloser(strings.NewReader(body))}
	c.Store("owner", "site", "site", r, resp, time.Now(), pagecache.Everybodys)
	_, _ = io.ReadAll(resp.Body)
}

// shown returns the body of a page.
func shown(p *pagecache.Page) string {
	_, body := p.Answer("")
	return string(body)
}

func request(path string, header ...string) *http.Request {
	r := httptest.NewRequest("GET", "https://blog.test"+path, nil)
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	return r
}

// answering implements Programs with programs that all give the same answer.
type answering server

func (a answering) Acquire(context.Context, id.Deployment) (*endpoint.Endpoint, error) {
	return &endpoint.Endpoint{Transport: server(a), Release: func() {}}, nil
}

func (a answering) Awake(id.Deployment) (*endpoint.Endpoint, bool) { return nil, false }

// through returns the transport that leads through the guard of a site's deployment to a program.
func through(w *WordPress, site id.Site, deployment id.Deployment, program answering) http.RoundTripper {
	gs := guard.New(guard.Config{Programs: program, Cache: w.cache, Sites: guarded{w}})
	return gs.Endpoint(guard.Served{Site: site, Owner: "owner"}, deployment).Transport
}
