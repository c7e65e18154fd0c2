package edge

import (
	"bytes"
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"slipway/internal/edge/endpoint"
	"slipway/internal/edge/fastpath"
	"slipway/internal/edge/ready"
	"slipway/internal/edge/visits"
)

// readyPage returns a page that a program has ready, with the Age of the current second.
func (e *Edge) readyPage(t *target, at *fastpath.Place, path []byte, accepts fastpath.Encodings) *fastpath.Answer {
	if t == nil || t.pages == nil || bytes.IndexByte(path, '%') >= 0 {
		return nil
	}
	if t.release != "" && len(path) > 1 {
		if _, ok := e.findAsset(context.Background(), t, string(path[1:])); ok {
			return nil // files take precedence
		}
	}
	if tree, err := e.ruled(context.Background(), t); err != nil || tree != nil {
		return nil
	}
	of, answer := t.pages.Page(t.deployment, at.Host+e.port, string(path))
	if of == nil {
		return e.readyFile(t, at, string(path), accepts)
	}
	now := time.Now().Unix()
	if a := e.answers.Get(t.answers, at.Host, path, accepts); a != nil && a.Version == of && a.Second == now {
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
	made.Sessions = t.pages.SessionCookies(t.deployment)
	a := &ready.Answer{
		Answer:  made,
		Page:    visits.Page{Site: t.visits, Host: at.Host, Path: string(path), HTML: true},
		Source:  t.answers,
		Accepts: accepts,
		Log:     t.accessLog(),
		Version: of,
		Second:  now,
	}
	made.Of = a
	e.metrics.cache("answer", false)
	e.answers.Put(a)
	return made
}

// maxReadyFile is the largest file of a program that is kept, in bytes.
const maxReadyFile = 1 << 20

// readyFile returns a file of a program that has pages. Each time, it asks the endpoint's Serve whether the kept file
// is still current, as a browser would.
func (e *Edge) readyFile(t *target, at *fastpath.Place, path string, accepts fastpath.Encodings) *fastpath.Answer {
	p, ok := t.pages.File(t.deployment, at.Host, path)
	if !ok {
		return nil
	}
	defer p.Release()
	if p.Serve == nil {
		return nil
	}
	known := e.answers.Get(t.answers, at.Host, []byte(path), accepts)
	tag := ""
	if known != nil {
		tag, _ = known.Version.(string)
	}
	got := e.fileOf(p, at.Host, path, tag, accepts)
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
	tag = got.header.Get("Etag")
	if tag == "" {
		return nil
	}
	if again := e.fileOf(p, at.Host, path, tag, accepts); again.status == http.StatusNotModified {
		_ = made.Unchanged(tag, again.header) // on failure net/http answers
	}
	a := &ready.Answer{
		Answer: made,
		Page: visits.Page{
			Site: t.visits,
			Host: at.Host,
			Path: path,
			HTML: strings.HasPrefix(got.header.Get("Content-Type"), "text/html"),
		},
		Source:  t.answers,
		Accepts: accepts,
		Log:     t.accessLog(),
		Version: tag,
	}
	made.Of = a
	e.metrics.cache("answer", false)
	e.answers.Put(a)
	return made
}

// fileOf requests a path from a program's Serve.
func (e *Edge) fileOf(p *endpoint.Endpoint, host, path, tag string, accepts fastpath.Encodings) *kept {
	r := &http.Request{
		Method:     http.MethodGet,
		URL:        &url.URL{Path: path},
		Host:       host,
		RequestURI: path,
		Proto:      "HTTP/2.0",
		ProtoMajor: 2,
		Header:     http.Header{},
		Body:       http.NoBody,
	}
	if accepts != 0 {
		r.Header["Accept-Encoding"] = []string{accepts.String()}
	}
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

// kept records a whole response, unless it is too large.
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
	k.over = err == nil && n > maxReadyFile // known too large before reading
}

func (k *kept) Write(b []byte) (int, error) {
	k.WriteHeader(http.StatusOK)
	k.over = k.over || k.body.Len()+len(b) > maxReadyFile
	if k.over {
		return 0, errCaptured
	}
	return k.body.Write(b)
}
