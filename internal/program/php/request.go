package php

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"

	"slipway/internal/platform/fair"
	"slipway/internal/program/fastcgi"
)

// params are the variables of a request (RFC 3875, section 4.1), as nginx names them.
func (s *Site) params(r *http.Request, script, info string, length int64) []fastcgi.Param {
	h := r.Header
	host := r.Host
	name, port, err := net.SplitHostPort(host)
	if err != nil {
		name, port = host, "443"
	}
	top := path.Join(s.Top, s.Root)
	p := []fastcgi.Param{
		{Name: "GATEWAY_INTERFACE", Value: "CGI/1.1"},
		{Name: "SERVER_SOFTWARE", Value: "slipway"},
		{Name: "SERVER_PROTOCOL", Value: "HTTP/1.1"},
		{Name: "SERVER_NAME", Value: name},
		{Name: "SERVER_ADDR", Value: "127.0.0.1"},
		{Name: "REQUEST_METHOD", Value: r.Method},
		{Name: "QUERY_STRING", Value: r.URL.RawQuery},
		{Name: "REQUEST_URI", Value: r.URL.RequestURI()},
		{Name: "DOCUMENT_ROOT", Value: top},
		{Name: "DOCUMENT_URI", Value: "/" + script + info},
		{Name: "SCRIPT_NAME", Value: "/" + script},
		{Name: "SCRIPT_FILENAME", Value: path.Join(top, script)},
		{Name: "REMOTE_ADDR", Value: firstOf(h["X-Real-Ip"], "127.0.0.1")},
		{Name: "REDIRECT_STATUS", Value: "200"},
		{Name: "CONTENT_TYPE", Value: h.Get("Content-Type")},
	}
	if info != "" { // PHP takes an empty one for PHP_SELF, in the place of SCRIPT_NAME
		p = append(p, fastcgi.Param{Name: "PATH_INFO", Value: info})
	}
	if length >= 0 {
		p = append(p, fastcgi.Param{Name: "CONTENT_LENGTH", Value: strconv.FormatInt(length, 10)})
	}
	if h.Get("X-Forwarded-Proto") == "http" {
		if err != nil {
			port = "80"
		}
		p = append(p, fastcgi.Param{Name: "REQUEST_SCHEME", Value: "http"})
	} else {
		p = append(p, fastcgi.Param{Name: "REQUEST_SCHEME", Value: "https"}, fastcgi.Param{Name: "HTTPS", Value: "on"})
	}
	p = append(p, fastcgi.Param{Name: "SERVER_PORT", Value: port}, fastcgi.Param{Name: "HTTP_HOST", Value: host})
	for name, values := range h {
		// PHP takes dots for underscores: either would let one header pass for another. Proxy is
		// a variable of the environment to those that read it there (httpoxy).
		if !plainName(name) || name == "Proxy" || name == "Host" || name == "Content-Type" || name == "Content-Length" {
			continue
		}
		between := ", "
		if name == "Cookie" {
			between = "; "
		}
		p = append(p, fastcgi.Param{
			Name:  "HTTP_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_")),
			Value: strings.Join(values, between),
		})
	}
	return p
}

// plainName reports whether a header's name has nothing but letters, digits and hyphens.
func plainName(name string) bool {
	return !strings.ContainsFunc(name, func(c rune) bool {
		return c != '-' && (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z')
	})
}

func firstOf(values []string, otherwise string) string {
	if len(values) > 0 && values[0] != "" {
		return values[0]
	}
	return otherwise
}

// A body of unknown length is read before PHP sees it, because PHP reads as much as
// CONTENT_LENGTH says: so many bytes of it at most. What is not short is stored, so many
// such bodies at once, of all sites, of one owner's and of one visitor. Over HTTP/3 the length
// is unknown of most requests, also of those without a body.
const (
	maxSpool      = 64 << 20
	maxSpools     = 32
	ownerSpools   = 8
	visitorSpools = 4
	shortLength   = 4 << 10
)

// share: total 32 request bodies of unknown length on disk, 64 MiB each; owner 8, of which one visitor has 4; edge 503, and 408 for a body that comes slower than 16 KiB/s
var spools = fair.New(fair.Config{Places: maxSpools, Owner: ownerSpools, Visitor: visitorSpools})

// A body that is stored comes at least so fast, after a first while: it holds a place.
const (
	spoolGrace = 30 * time.Second
	spoolRate  = 16 << 10 // bytes per second
)

// paced reads a body that must come at a rate.
type paced struct {
	io.Reader
	since time.Time
	n     int64
}

func (p *paced) Read(b []byte) (int, error) {
	n, err := p.Reader.Read(b)
	p.n += int64(n)
	if took := time.Since(p.since) - spoolGrace; err == nil && took > 0 && p.n < int64(took.Seconds()*spoolRate) {
		return n, &refusal{http.StatusRequestTimeout, "The upload is too slow"}
	}
	return n, err
}

// refusal is a request that is answered without PHP.
type refusal struct {
	status int
	text   string
}

func (r *refusal) Error() string { return r.text }

// body returns a request's body and its length. done is to be called once when the request
// has ended.
func (s *Site) body(r *http.Request) (body io.Reader, length int64, done func(), err error) {
	if r.Body == nil || r.Body == http.NoBody || r.ContentLength == 0 {
		return nil, 0, closer(r.Body), nil
	}
	if r.ContentLength > 0 {
		return r.Body, r.ContentLength, closer(r.Body), nil
	}
	first := make([]byte, shortLength)
	read := 0
	for read < len(first) && err == nil {
		var n int
		n, err = r.Body.Read(first[read:])
		read += n
	}
	switch {
	case err == io.EOF && read == 0:
		return nil, 0, closer(r.Body), nil
	case err == io.EOF:
		return bytes.NewReader(first[:read]), int64(read), closer(r.Body), nil
	case err != nil: // half a body
		return nil, 0, nil, err
	}
	spooled, ok := spools.Try(fair.Who{
		Owner: string(s.Owner), Site: string(s.Name),
		Visitor: fair.Visitor(firstOf(r.Header["X-Real-Ip"], "")),
	})
	if !ok {
		return nil, 0, nil, &refusal{http.StatusServiceUnavailable, "Too many uploads without a Content-Length are under way"}
	}
	f, err := os.CreateTemp(s.Spool, "body-")
	if err != nil {
		spooled()
		return nil, 0, nil, fmt.Errorf("store body: %w", err)
	}
	_ = os.Remove(f.Name())
	drop := sync.OnceFunc(func() { _ = f.Close(); _ = r.Body.Close(); spooled() })
	n, err := io.Copy(f, io.LimitReader(io.MultiReader(bytes.NewReader(first), &paced{Reader: r.Body, since: time.Now()}), maxSpool+1))
	if err == nil && n > maxSpool {
		err = &refusal{http.StatusRequestEntityTooLarge, fmt.Sprintf("A request without a Content-Length may have %d MiB", maxSpool>>20)}
	}
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		drop()
		return nil, 0, nil, err
	}
	return f, n, drop, nil
}

func closer(c io.Closer) func() {
	return func() {
		if c != nil {
			_ = c.Close()
		}
	}
}

// closing ends a request with its answer.
type closing struct {
	io.ReadCloser
	done func()
}

func (c *closing) Close() error {
	err := c.ReadCloser.Close()
	c.done()
	return err
}

// plainAnswer is an answer of ours in PHP's place.
func plainAnswer(r *http.Request, status int, h http.Header, text string) *http.Response {
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Length", strconv.Itoa(len(text)))
	body := text
	if r.Method == http.MethodHead {
		body = ""
	}
	return &http.Response{
		Status:        fmt.Sprintf("%d %s", status, http.StatusText(status)),
		StatusCode:    status,
		Proto:         "HTTP/1.1",
		ProtoMajor:    1,
		ProtoMinor:    1,
		Header:        h,
		ContentLength: int64(len(text)),
		Body:          io.NopCloser(strings.NewReader(body)),
		Request:       r,
	}
}

// folderAt is where a folder without its slash leads: on the same host whatever the path.
func folderAt(u *url.URL) string {
	to := "/" + strings.TrimLeft(u.EscapedPath(), "/\\") + "/"
	if u.RawQuery != "" {
		to += "?" + u.RawQuery
	}
	return to
}
