// Package proxy owns the exchange between a visitor and what answers for a site: its program, or another host that its
// rules forward to. It sets the headers that identify the visitor and drops forged ones, streams in both directions,
// limits how long either side may be silent, and drops headers meant for Slipway itself.
//
// Ordinary requests are written to a connection of package upstream, without net/http (Pass) or behind it (Serve).
// Requests that can change the connection go through [httputil.ReverseProxy].
package proxy

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"slipway/internal/edge/connlimit"
	"slipway/internal/edge/endpoint"
	"slipway/internal/edge/response"
	"slipway/internal/platform/fair"
)

// Config holds the settings of a Proxy.
type Config struct {
	// SiteDomain is the sites' common domain. Programs can't set cookies for it.
	SiteDomain string
	FirstByte  time.Duration // time limit for the first byte of a response. Optional: 0 means 100s.
	AltSvc     string        // the Alt-Svc header that Pass sends. Optional.
	// VisitorHeader is the header in which trusted proxies name the visitor. Optional.
	VisitorHeader string
	// Out reaches other hosts, through egress. Optional: nil forwards nothing.
	Out http.RoundTripper
	Log *slog.Logger
	// Shared caps the concurrent requests over HTTP/2 and HTTP/3 in Serve; one owner's sites may have a quarter of
	// them. Each holds a file descriptor, for the program's connection or a file. Optional: 0 means a quarter of the
	// process's limit.
	Shared int
}

// Proxy forwards requests. It is safe for concurrent use.
type Proxy struct {
	Config
	altSvc             []byte // Config.AltSvc
	visitorHeader      string // Config.VisitorHeader, for cgiEqual
	forwarding, shared *fair.Pool
}

// New returns a Proxy.
func New(c Config) *Proxy {
	if c.Shared == 0 {
		n, err := connlimit.Descriptors()
		if err != nil {
			n = 1024 // the usual limit of a process
		}
		c.Shared = int(min(n, 1<<20) / 4)
	}
	return &Proxy{
		Config: c, altSvc: []byte(c.AltSvc), visitorHeader: strings.NewReplacer("_", "-", ".", "-").Replace(strings.ToLower(c.VisitorHeader)),
		// share: total 512 requests forwarded to other hosts; owner 128, of one site 32; edge 503 with Retry-After
		forwarding: fair.New(fair.Config{Places: proxyMost, Owner: proxyOwner, Site: proxySite}),
		// share: total a quarter of the file descriptors, of requests over HTTP/2 and 3 that programs answer; owner a quarter of that, one visitor half of it; edge 503 with Retry-After
		shared: fair.New(fair.Config{Places: c.Shared, Owner: (c.Shared + 3) / 4, Visitor: (c.Shared + 7) / 8}),
	}
}

// Default time limits: until a program's first byte, and for a visitor to read or send some bytes.
const (
	firstByte = 100 * time.Second
	flowTime  = time.Minute
)

// Site describes the site that a request is for.
type Site struct {
	Host      string // requested host, lower case, without port
	Preview   bool   // a preview address
	Protected bool   // behind a password or sign-in
}

// Errors of Serve and Pass. No response was written then.
var (
	ErrUnreached = errors.New("the application accepts no connections") // the application didn't get the request
	ErrTimeout   = errors.New("no answer in time")
)

// errHeader is returned if a response's header is larger than allowed.
var errHeader = errors.New("its header is too large")

// Reason describes an error of Serve or Pass for the site's log.
func Reason(err error) string {
	switch {
	case errors.Is(err, ErrTimeout):
		return "the application did not begin to answer in time"
	case errors.Is(err, ErrUnreached):
		return "the application accepts no connections"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return "the application closed the connection before it answered"
	}
	text := strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(err.Error(), "\uFFFD"))
	return text[:min(len(text), maxReason)]
}

// maxReason caps the bytes of an error in a site's log, since some quote the application.
const maxReason = 200

// Serve forwards a request to a program. It returns an error if the program didn't answer and the visitor still waits
// for a response.
func (p *Proxy) Serve(w *response.Recorder, r *http.Request, to *endpoint.Endpoint, s Site, begun time.Time) error {
	if s.Preview {
		w.Header()["X-Robots-Tag"] = response.Noindex
	}
	if r.Method == http.MethodConnect { // a 2xx would look like an open tunnel
		w.Header().Set("Connection", "close")
		response.Fail(w, r, http.StatusNotImplemented)
		return nil
	}
	// Connections are limited where they are accepted, but one HTTP/2 connection has 128 requests: unread responses
	// could use up the control plane's file descriptors.
	if r.ProtoMajor > 1 {
		done, ok := p.shared.Try(w.Who(r))
		if !ok {
			response.Page(w, r, response.PageOverloaded)
			return nil
		}
		defer done()
	}
	if to.Serve != nil && serveFile(w, r, to, s) {
		return nil
	}
	if to.MaxBody > 0 {
		if r.ContentLength > to.MaxBody {
			tooLarge(w, r)
			return nil
		}
		r.Body = http.MaxBytesReader(w, r.Body, to.MaxBody) // the request may not declare its length
	}
	if to.Upstream != nil && usual(r) {
		return p.direct(w, r, to, s, begun)
	}
	return p.reverse(w, r, to, s, begun)
}

// reverse handles unusual requests and programs.
func (p *Proxy) reverse(w *response.Recorder, r *http.Request, to *endpoint.Endpoint, s Site, begun time.Time) error {
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	id := requestID(w, r)
	late := &patience{long: p.firstByteOf(to)}
	late.timer = time.AfterFunc(late.long, func() { cancel(ErrTimeout) })
	defer late.end()
	proxy := httputil.ReverseProxy{
		Rewrite:       func(q *httputil.ProxyRequest) { rewrite(q, id) },
		Transport:     to.Transport,
		FlushInterval: -1, // forward streams and events at once
		BufferPool:    buffers{},
		ErrorLog:      slog.NewLogLogger(p.Log.Handler(), slog.LevelDebug),
		ModifyResponse: func(resp *http.Response) error {
			late.end()
			if !response.Fits(resp.Header) {
				return errHeader
			}
			w.First = time.Since(begun)
			p.ownCookies(resp.Header, s.Host)
			resp.Header.Del("Alt-Svc") // would point visitors away from us
			dropServerHeaders(resp.Header)
			if resp.StatusCode == http.StatusOK && strings.HasPrefix(resp.Header.Get("Content-Type"), "text/html") &&
				r.Method == http.MethodGet {
				w.Page = true
			}
			return nil
		},
		ErrorHandler: func(_ http.ResponseWriter, _ *http.Request, err error) {
			late.end()
			if context.Cause(ctx) == ErrTimeout {
				err = ErrTimeout
			}
			late.err = err
		},
	}
	in := r.WithContext(ctx)
	conn := http.NewResponseController(w)
	var body *flowingBody
	if r.Body != nil && r.Body != http.NoBody {
		body = &flowingBody{ReadCloser: r.Body, conn: conn, again: late.again}
		defer body.leave() // after an early response the transport may still read
		in.Body = body
		// Otherwise net/http would close the body at the response's first byte, and the transport, which reads on to
		// find the body's end, would abort the response.
		_ = conn.EnableFullDuplex()
	} else {
		_ = conn.SetReadDeadline(time.Time{})
	}
	_ = conn.SetWriteDeadline(time.Time{})
	out := http.ResponseWriter(&flowing{w, conn, func() { cancel(nil) }})
	if !r.ProtoAtLeast(1, 1) {
		out = &finalOnly{out}
	}
	proxy.ServeHTTP(out, in)
	if w.Status == 0 {
		lastRequest(w, r, body == nil || body.over.Load())
	}
	if more := new(http.MaxBytesError); errors.As(late.err, &more) && w.Status == 0 && r.Context().Err() == nil {
		tooLarge(w, r)
		return nil
	}
	if w.Status != 0 || r.Context().Err() != nil {
		return nil // incomplete response: only the connection can be aborted; or the visitor has left
	}
	return late.err
}

// firstByteOf returns the time limit for an endpoint's first byte.
func (p *Proxy) firstByteOf(to *endpoint.Endpoint) time.Duration {
	return cmp.Or(to.FirstByte, p.FirstByte, firstByte)
}

// buffers reuses the 32 KiB buffers through which responses are copied.
type buffers struct{}

// share: total one for each answer that is copied; owner see the pools of programs; edge more are made
var bufferPool = sync.Pool{New: func() any { return new([32 << 10]byte) }}

// Get implements [httputil.BufferPool].
func (buffers) Get() []byte { return bufferPool.Get().(*[32 << 10]byte)[:] }

// Put implements [httputil.BufferPool].
func (buffers) Put(b []byte) { bufferPool.Put((*[32 << 10]byte)(b)) }

// flowing gives each write of a response its own deadline: a stream may last as long as its program wants, but a
// visitor who doesn't read is dropped.
type flowing struct {
	*response.Recorder
	conn   *http.ResponseController
	cancel func() // cancels the request
}

func (f *flowing) Write(b []byte) (int, error) {
	_ = f.conn.SetWriteDeadline(time.Now().Add(flowTime))
	return f.Recorder.Write(b)
}

// Unwrap serves [http.ResponseController].
func (f *flowing) Unwrap() http.ResponseWriter { return f.Recorder }

// finalOnly drops 1xx responses: an HTTP/1.0 client would take them for the final one (RFC 9110 §15.2).
type finalOnly struct{ http.ResponseWriter }

func (f *finalOnly) WriteHeader(status int) {
	if status >= http.StatusOK || status == http.StatusSwitchingProtocols {
		f.ResponseWriter.WriteHeader(status)
	}
}

// Unwrap serves [http.ResponseController].
func (f *finalOnly) Unwrap() http.ResponseWriter { return f.ResponseWriter }

// flowingBody gives each read of a request body its own deadline. At the body's end it removes the deadline, since the
// server detects by a pending read that the visitor has left.
type flowingBody struct {
	io.ReadCloser
	again func()      // called when bytes arrive
	over  atomic.Bool // read to its end

	mu   sync.Mutex // guards conn
	conn *http.ResponseController
}

func (b *flowingBody) Read(p []byte) (int, error) {
	b.by(time.Now().Add(flowTime))
	n, err := b.ReadCloser.Read(p)
	b.again()
	if err == io.EOF {
		b.over.Store(true)
	}
	if err != nil {
		b.by(time.Time{})
	}
	return n, err
}

func (b *flowingBody) by(t time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.conn != nil {
		_ = b.conn.SetReadDeadline(t)
	}
}

// leave must be called before the handler returns: later, changing the deadline would crash (HTTP/2) or affect the next
// request.
func (b *flowingBody) leave() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.conn = nil
}

// patience is the time limit for a program's first byte. It restarts with each part of the request body, so uploads may
// take as long as they need.
type patience struct {
	long  time.Duration
	timer *time.Timer
	err   error      // why there was no response
	mu    sync.Mutex // guards over
	over  bool
}

func (p *patience) again() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.over {
		p.timer.Reset(p.long)
	}
}

func (p *patience) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.over = true
	p.timer.Stop()
}

// tooLarge answers 413 and closes the connection, since the rest of the body isn't read.
func tooLarge(w *response.Recorder, r *http.Request) {
	w.Header().Set("Connection", "close")
	response.Fail(w, r, http.StatusRequestEntityTooLarge)
}
