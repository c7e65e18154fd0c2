package edge

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"time"

	"slipway/internal/platform/id"

	"slipway/internal/edge/allowance"
	"slipway/internal/edge/fastpath"
	"slipway/internal/edge/ready"
	"slipway/internal/edge/visits"
)

// Secure returns the server for TLS listeners: the HTTPS handler with the limits of [Edge.Server], behind the fast path
// unless [Config.NoFastPath] is set.
func (e *Edge) Secure() *fastpath.Server {
	return fastpath.New(fastpath.Config{HTTP: e.Server(e.HTTPS()), Hosts: quick{e}, Draining: e.Draining})
}

// quick adapts an Edge to the fast path.
type quick struct{ e *Edge }

// Takes leaves a trusted proxy's connections to net/http, because each of their requests has its own visitor.
func (q quick) Takes(host string, from net.Addr) bool {
	return !q.e.NoFastPath && !q.e.Proxies.From(from.String()) && (q.e.plainHost(host) || q.e.hostPasses(host))
}

func (q quick) Find(at *fastpath.Place, path []byte, accepts fastpath.Encodings) *fastpath.Answer {
	return q.e.ready(at, path, accepts)
}

func (q quick) Admit(at *fastpath.Place, size int) bool { return q.e.admit(at, int64(size)) }

func (q quick) Passes(at *fastpath.Place) bool               { return q.e.passes(at) }
func (q quick) Pass(r *fastpath.Request) func() (whole bool) { return q.e.pass(r) }
func (q quick) Served(s *fastpath.Sent)                      { q.e.served(s) }

// plainHost reports whether the fast path serves a host: a site whose backend is files, or a program that has pages.
func (e *Edge) plainHost(host string) bool {
	if e.isControl(host) {
		return false
	}
	to := e.leads(host)
	if to.plain() != nil {
		return true
	}
	t := to.program()
	return t != nil && t.pages != nil
}

// way is a connection's host resolved to a site.
type way struct {
	to   *site   // the site's slot in the table; nil if unknown
	site id.Site // site that the slot must still have, for a custom host

	taken *allowance.Lease // lease that admitted a response not yet passed to Served
	size  int64            // body size of that response
}

func (e *Edge) leads(host string) way {
	hosts := e.table.hosts()
	if label, ok := e.label(host); ok {
		return way{to: hosts.slot(label)}
	}
	if c := hosts.claim(host); c != nil && c.redirectTo == "" {
		return way{to: hosts.slotOf(c.site), site: c.site}
	}
	return way{}
}

// wayOf returns where a connection's host leads. The result is kept until hosts are added or removed; the site's target
// is read for every request.
func (e *Edge) wayOf(at *fastpath.Place) *way {
	known, ok := at.Known.(*way)
	if now := e.table.hosts().round; !ok || at.Since != now {
		found := e.leads(at.Host)
		known = &found
		at.Known, at.Since = known, now
	}
	return known
}

// program returns the target if it is the live deployment of an unprotected program.
func (w way) program() *target {
	if w.to == nil {
		return nil
	}
	t := w.to.target.Load()
	if t == nil || w.site != "" && t.site != w.site || t.state != stateLive || t.backend != backendProgram || t.programs == nil ||
		t.protected() || t.lease != nil || t.spent() {
		return nil
	}
	return t
}

// plain returns the target if it is the live release of an unprotected site.
func (w way) plain() *target {
	if w.to == nil {
		return nil
	}
	t := w.to.target.Load()
	if t == nil || t.state != stateLive || t.backend != backendFiles || t.release == "" || t.protected() {
		return nil
	}
	if w.site != "" && t.site != w.site {
		return nil // the slot now belongs to another site
	}
	return t
}

// ready returns the prepared response for a path, or prepares it. It returns nil if the response isn't a whole file
// with status 200, or depends on more than the path and the accepted encodings.
func (e *Edge) ready(at *fastpath.Place, path []byte, accepts fastpath.Encodings) *fastpath.Answer {
	to := e.wayOf(at)
	t := to.plain()
	if t == nil {
		return e.readyPage(to.program(), at, path, accepts)
	}
	a := e.answers.Get(t.answers, at.Host, path, accepts)
	if a == nil {
		a = e.prepare(t, at.Host, string(path), accepts)
		if a == nil {
			return nil
		}
		e.metrics.cache("answer", false)
		e.answers.Put(a)
	} else {
		e.metrics.cache("answer", true)
	}
	return a.Answer
}

// admit takes a response's bytes from its owner's bandwidth if little is left.
func (e *Edge) admit(at *fastpath.Place, size int64) bool {
	to := e.wayOf(at)
	t := to.plain()
	if t == nil {
		return true
	}
	if t.spent() {
		return false // answered slowly elsewhere
	}
	if t.lease == nil || t.visits == nil {
		return true
	}
	if !t.lease.Take(size) {
		return false // net/http waits for a loan
	}
	to.taken, to.size = t.lease, size
	return true
}

// prepare lets the files backend answer a request that has only a path and encodings, and keeps the response, so that
// both paths answer alike.
func (e *Edge) prepare(t *target, host, path string, accepts fastpath.Encodings) *ready.Answer {
	u, err := url.ParseRequestURI(path)
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	r := (&http.Request{
		Method:     http.MethodGet,
		URL:        u,
		Host:       host,
		RequestURI: path,
		Proto:      "HTTP/2.0",
		ProtoMajor: 2,
		Header:     http.Header{},
		Body:       http.NoBody,
	}).WithContext(ctx)
	if accepts != 0 {
		r.Header["Accept-Encoding"] = []string{accepts.String()}
	}
	out := &capture{header: http.Header{}}
	e.offer(out.header, r.ProtoMajor)
	rec := record(out)
	rec.Trial = true
	e.files(rec, r, t)
	if rec.Status != http.StatusOK || !rec.Ready {
		return nil
	}
	made, err := fastpath.NewAnswer(out.header, rec.Body)
	if err != nil {
		return nil
	}
	// Prepare the 304 for visitors who have the file.
	if tag := out.header.Get("Etag"); tag != "" {
		again := record(&capture{header: http.Header{}})
		again.Trial = true
		e.offer(again.Header(), r.ProtoMajor)
		r.Header["If-None-Match"] = []string{tag}
		e.files(again, r, t)
		if again.Status == http.StatusNotModified {
			_ = made.Unchanged(tag, again.Header()) // on failure net/http answers
		}
	}
	a := &ready.Answer{
		Answer:  made,
		Page:    visits.Page{Site: t.visits, Host: host, Path: path, HTML: rec.Page},
		Source:  t.answers,
		Accepts: accepts,
		Log:     t.accessLog(),
	}
	made.Of = a
	return a
}

// served counts a response of the fast path.
func (e *Edge) served(s *fastpath.Sent) {
	e.metrics.answered(s.Status, s.Size)
	h, ok := s.Answer.Of.(*ready.Answer)
	if ok && h.Site != nil {
		e.visits.Sent(s, &h.Page, h.Log) // record the visit first: collecting starts with the counted bytes
		e.visits.Count(h.Site, s.Status, s.Size, h.HTML && !s.Head)
	}
	if to, ok := s.Place.Known.(*way); ok && to.taken != nil { // after counting
		to.taken.Settle(to.size)
		to.taken = nil
	}
}

var errCaptured = errors.New("only the header is wanted")

// capture records a response's header.
type capture struct{ header http.Header }

func (c *capture) Header() http.Header       { return c.header }
func (c *capture) WriteHeader(int)           {}
func (c *capture) Write([]byte) (int, error) { return 0, errCaptured }
