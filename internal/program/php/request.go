package php

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"

	"slipway/internal/platform/fair"
	"slipway/internal/program/fastcgi"
)

// params are the variables of a request (RFC 3875, section 4.1), as nginx names them.
func (s *Site) params(r *http.Request, c call, length int64) []fastcgi.Param {
	script, info := c.script, c.info
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
		{Name: "QUERY_STRING", Value: c.query},
		{Name: "REQUEST_URI", Value: r.URL.RequestURI()},
		{Name: "DOCUMENT_ROOT", Value: top},
		{Name: "DOCUMENT_URI", Value: "/" + script + info},
		{Name: "SCRIPT_NAME", Value: "/" + script},
		{Name: "SCRIPT_FILENAME", Value: path.Join(top, script)},
		{Name: "REMOTE_ADDR", Value: firstOf(h["X-Real-Ip"], "127.0.0.1")},
		{Name: "REDIRECT_STATUS", Value: strconv.Itoa(cmp.Or(c.status, http.StatusOK))},
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
	return s.redirected(p, r, c)
}

// redirected adds the variables of a script to which rules led, as Apache has them, and what the rules set.
func (s *Site) redirected(p []fastcgi.Param, r *http.Request, c call) []fastcgi.Param {
	if c.moved && c.info == "" { // PHP drops PATH_INFO beside a REDIRECT_URL
		p = append(p, fastcgi.Param{Name: "REDIRECT_URL", Value: r.URL.Path})
		if r.URL.RawQuery != "" {
			p = append(p, fastcgi.Param{Name: "REDIRECT_QUERY_STRING", Value: r.URL.RawQuery})
		}
	}
	if len(c.env) == 0 {
		return p
	}
	has := make(map[string]bool, len(p))
	for _, v := range p {
		has[v.Name] = true
	}
	for name, value := range c.env {
		if !has[name] {
			p = append(p, fastcgi.Param{Name: name, Value: value})
		}
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

// A body is read before PHP sees it, so that a visitor who sends slowly holds no worker. What is not short is stored on disk.
const (
	maxBody     = visitorSpool << 20
	shortLength = 16 << 10
)

// A body that is stored comes at least so fast, after a first while: it holds a place.
const (
	spoolGrace = 30 * time.Second
	spoolRate  = 4 << 10 // bytes per second
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

// body reads a request's body and returns it with its length. done is to be called when the body is needed no longer.
func (s *Site) body(r *http.Request, who fair.Who) (body io.Reader, length int64, done func(), err error) {
	switch {
	case r.Body == nil || r.Body == http.NoBody || r.ContentLength == 0:
		return nil, 0, closer(r.Body), nil
	case r.ContentLength > maxBody:
		return nil, 0, nil, &refusal{http.StatusRequestEntityTooLarge, fmt.Sprintf("A request may have %d MiB", maxBody>>20)}
	}
	first := make([]byte, shortLength)
	if 0 < r.ContentLength && r.ContentLength < shortLength {
		first = first[:r.ContentLength]
	}
	read := 0
	for read < len(first) && err == nil {
		var n int
		n, err = r.Body.Read(first[read:])
		read += n
	}
	switch {
	case err != nil && err != io.EOF: // half a body
		return nil, 0, nil, err
	case r.ContentLength == int64(read), r.ContentLength < 0 && err == io.EOF && read > 0:
		return bytes.NewReader(first[:read]), int64(read), closer(r.Body), nil
	case err == io.EOF && r.ContentLength > 0:
		return nil, 0, nil, io.ErrUnexpectedEOF
	case err == io.EOF:
		return nil, 0, closer(r.Body), nil
	}
	to := &spool{dir: s.Spool, who: who}
	length, err = io.Copy(to, io.LimitReader(io.MultiReader(bytes.NewReader(first), &paced{Reader: r.Body, since: time.Now()}), maxBody+1))
	switch {
	case errors.Is(err, errNoRoom):
		err = &refusal{http.StatusServiceUnavailable, "Too many uploads are under way"}
	case err == nil && length > maxBody:
		err = &refusal{http.StatusRequestEntityTooLarge, fmt.Sprintf("A request may have %d MiB", maxBody>>20)}
	case err == nil && r.ContentLength >= 0 && length != r.ContentLength:
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		to.close()
		return nil, 0, nil, err
	}
	return io.NewSectionReader(to.file, 0, length), length, sync.OnceFunc(func() { to.close(); _ = r.Body.Close() }), nil
}

func closer(c io.Closer) func() {
	return func() {
		if c != nil {
			_ = c.Close()
		}
	}
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
