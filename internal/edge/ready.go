package edge

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"slipway/internal/fastpath"
)

// Secure returns the server for TLS listeners: the handler of HTTPS with the limits of
// Server, and the fast path in front of it unless Config.NoFastPath says otherwise.
func (e *Edge) Secure() *fastpath.Server {
	c := fastpath.Config{HTTP: e.Server(e.HTTPS()), Find: e.ready, Plain: e.plainHost, Served: e.served, Draining: e.Draining}
	if e.Awake != nil {
		c.Passes, c.HostPasses, c.Pass = e.passes, e.hostPasses, e.pass
	}
	if e.NoFastPath {
		c.Plain, c.HostPasses = func(string) bool { return false }, nil
	}
	return fastpath.New(c)
}

// plainHost reports whether connections for a host are worth the fast path: those of
// sites whose backend is files, or a program that has pages.
func (e *Edge) plainHost(host string) bool {
	if e.control[host] {
		return false
	}
	to := e.leads(host)
	return to.plain() != nil || e.paged(to.program())
}

// paged reports whether a target is a program that has pages.
func (e *Edge) paged(t *target) bool {
	return t != nil && e.HasPages != nil && e.HasPages(t.deployment)
}

// way is where a host leads.
type way struct {
	to   *site  // its place in the table; nil: nowhere
	site string // whose place it must be, for a custom host
}

func (e *Edge) leads(host string) way {
	hosts := e.table.hosts()
	if label, ok := e.label(host); ok {
		return way{to: hosts.slot(label)}
	}
	if c := hosts.claim(host); c != nil && c.redirectTo == "" {
		return way{hosts.slotOf(c.site), c.site}
	}
	return way{}
}

// wayOf returns where a connection leads. Which site that is is remembered until any host is
// added or taken away; what the site answers with is looked up every time.
func (e *Edge) wayOf(at *fastpath.Place) *way {
	known, ok := at.Known.(*way)
	if now := e.table.hosts().round; !ok || at.Since != now {
		found := e.leads(at.Host)
		known = &found
		at.Known, at.Since = known, now
	}
	return known
}

// program returns what a site's requests are passed on to, if that is a program's live
// deployment, for everybody.
func (w way) program() *target {
	if w.to == nil {
		return nil
	}
	t := w.to.target.Load()
	if t == nil || w.site != "" && t.site != w.site || t.state != stateLive || t.backend != backendProgram || t.protected() {
		return nil
	}
	return t
}

// plain returns what a site answers with, if that is its live release, for everybody.
func (w way) plain() *target {
	if w.to == nil {
		return nil
	}
	t := w.to.target.Load()
	if t == nil || t.state != stateLive || t.backend != backendFiles || t.release == "" || t.protected() {
		return nil
	}
	if w.site != "" && t.site != w.site {
		return nil // another site has taken the place just now
	}
	return t
}

// ready returns the answer for a path of a site that is ready in memory, or makes it so.
// It is nil where the answer is not a file's, whole and with status 200, or depends on
// more of a request than its path and the encodings that it accepts.
func (e *Edge) ready(at *fastpath.Place, path []byte, accepts fastpath.Encodings) *fastpath.Answer {
	to := e.wayOf(at)
	t := to.plain()
	if t == nil {
		return e.readyPage(to.program(), at, path, accepts)
	}
	a := e.hot.get(t, at.Host, path, accepts)
	if a == nil {
		if a = e.prepare(t, at.Host, string(path), accepts); a == nil {
			return nil
		}
		e.metrics.cache("answer", false)
		e.hot.put(a)
	} else {
		e.metrics.cache("answer", true)
	}
	return a.Answer
}

// readyPage returns a page of a program, whose Age is that of this second.
func (e *Edge) readyPage(t *target, at *fastpath.Place, path []byte, accepts fastpath.Encodings) *fastpath.Answer {
	if t == nil || e.Page == nil || bytes.IndexByte(path, '%') >= 0 {
		return nil
	}
	if t.release != "" && len(path) > 1 {
		if _, ok := e.findAsset(context.Background(), t, string(path[1:])); ok {
			return nil // a file has precedence
		}
	}
	of, answer := e.Page(t.deployment, at.Host+e.port, string(path))
	if of == nil {
		return e.readyFile(t, at, string(path))
	}
	now := time.Now().Unix()
	if a := e.hot.get(t, at.Host, path, accepts); a != nil && a.of == of && a.second == now {
		e.metrics.cache("answer", true)
		return a.Answer
	}
	accept := ""
	if accepts != 0 {
		accept = accepts.String()
	}
	header, body := answer(accept)
	e.offer(header, 2)
	made, err := fastpath.NewAnswer(header, body)
	if err != nil {
		return nil
	}
	made.Sessions = e.SessionCookies
	a := &hotAnswer{Answer: made, target: t, host: at.Host, path: string(path), accepts: accepts, page: true, of: of, second: now}
	made.Of = a
	e.metrics.cache("answer", false)
	e.hot.put(a)
	return made
}

// maxReadyFile is how long a program's file may be to be kept, in bytes.
const maxReadyFile = 1 << 20

// readyFile returns a file of a program that has pages. The program's Serve is asked each time
// whether the file is still the one that is kept, as a browser would ask.
func (e *Edge) readyFile(t *target, at *fastpath.Place, path string) *fastpath.Answer {
	p, ok := e.PageFiles(t.deployment, path)
	if !ok {
		return nil
	}
	defer p.Release()
	if p.Serve == nil {
		return nil
	}
	known := e.hot.get(t, at.Host, []byte(path), 0)
	tag := ""
	if known != nil {
		tag, _ = known.of.(string)
	}
	got := e.fileOf(p, at.Host, path, tag)
	if tag != "" && got.status == http.StatusNotModified {
		e.metrics.cache("answer", true)
		return known.Answer
	}
	if got.status != http.StatusOK || got.over {
		return nil
	}
	made, err := fastpath.NewAnswer(got.header, got.body.Bytes())
	if err != nil {
		return nil
	}
	if tag = got.header.Get("Etag"); tag == "" {
		return nil
	}
	if again := e.fileOf(p, at.Host, path, tag); again.status == http.StatusNotModified {
		_ = made.Unchanged(tag, again.header) // it is left to net/http then
	}
	a := &hotAnswer{Answer: made, target: t, host: at.Host, path: path, page: strings.HasPrefix(got.header.Get("Content-Type"), "text/html"), of: tag}
	made.Of = a
	e.metrics.cache("answer", false)
	e.hot.put(a)
	return made
}

// fileOf asks a program's Serve for a path.
func (e *Edge) fileOf(p Program, host, path, tag string) *kept {
	r := &http.Request{Method: http.MethodGet, URL: &url.URL{Path: path}, Host: host, RequestURI: path, Proto: "HTTP/2.0", ProtoMajor: 2, Header: http.Header{}, Body: http.NoBody}
	if tag != "" {
		r.Header["If-None-Match"] = []string{tag}
	}
	out := &kept{header: http.Header{}}
	e.offer(out.header, r.ProtoMajor)
	if !p.Serve(out, r) {
		out.status = 0
	}
	return out
}

// kept takes an answer whole, unless it is too long.
type kept struct {
	header http.Header
	status int
	body   bytes.Buffer
	over   bool
}

func (k *kept) Header() http.Header { return k.header }

func (k *kept) WriteHeader(status int) {
	if k.status != 0 {
		return
	}
	k.status = status
	n, err := strconv.ParseInt(k.header.Get("Content-Length"), 10, 64)
	k.over = err == nil && n > maxReadyFile // known before any of it is read
}

func (k *kept) Write(b []byte) (int, error) {
	k.WriteHeader(http.StatusOK)
	if k.over = k.over || k.body.Len()+len(b) > maxReadyFile; k.over {
		return 0, errCaptured
	}
	return k.body.Write(b)
}

// prepare lets the files backend answer a request that has nothing but the path and the
// encodings, and keeps what it said: so the fast path says what the other one would.
func (e *Edge) prepare(t *target, host, path string, accepts fastpath.Encodings) *hotAnswer {
	u, err := url.ParseRequestURI(path)
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	r := (&http.Request{Method: http.MethodGet, URL: u, Host: host, RequestURI: path, Proto: "HTTP/2.0", ProtoMajor: 2, Header: http.Header{}, Body: http.NoBody}).WithContext(ctx)
	if accepts != 0 {
		r.Header["Accept-Encoding"] = []string{accepts.String()}
	}
	out := &capture{header: http.Header{}}
	e.offer(out.header, r.ProtoMajor)
	rec := &recorder{ResponseWriter: out, trial: true}
	e.files(rec, r, t)
	if rec.status != http.StatusOK || rec.ready == nil {
		return nil
	}
	made, err := fastpath.NewAnswer(out.header, rec.ready.body)
	if err != nil {
		return nil
	}
	// Who has it already is told so, in the same way.
	if tag := out.header.Get("Etag"); tag != "" {
		again := &recorder{ResponseWriter: &capture{header: http.Header{}}, trial: true}
		e.offer(again.Header(), r.ProtoMajor)
		r.Header["If-None-Match"] = []string{tag}
		if e.files(again, r, t); again.status == http.StatusNotModified {
			_ = made.Unchanged(tag, again.Header()) // it is left to net/http then
		}
	}
	a := &hotAnswer{Answer: made, target: t, host: host, path: path, accepts: accepts, page: rec.page}
	made.Of = a
	return a
}

// served counts an answer of the fast path.
func (e *Edge) served(s *fastpath.Sent) {
	e.metrics.answered(s.Status, s.Size)
	h, ok := s.Answer.Of.(*hotAnswer)
	if ok && h.target.visits != nil {
		e.visitReady(s, h) // before it is counted: collecting begins with what is counted
		e.visited.count(h.target.visits, s.Status, s.Size, h.page && !s.Head)
	}
}

var errCaptured = errors.New("only the header is wanted")

// capture takes the header of an answer.
type capture struct{ header http.Header }

func (c *capture) Header() http.Header       { return c.header }
func (c *capture) WriteHeader(int)           {}
func (c *capture) Write([]byte) (int, error) { return 0, errCaptured }
