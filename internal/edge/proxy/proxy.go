// Package proxy owns what happens between a visitor and what answers in a site's place: its
// program, or another host that its rules forward to. It says who asks, and nobody else can;
// it streams both ways, bounds how long either side may say nothing, and lets neither tell
// the other what is meant for us.
//
// Usual requests are written to a connection of package upstream, ahead of net/http (Pass) or
// behind it; what can change the connection goes through httputil.ReverseProxy.
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
	"syscall"
	"time"

	"slipway/internal/edge/connlimit"
	"slipway/internal/edge/endpoint"
	"slipway/internal/edge/response"
	"slipway/internal/platform/fair"
)

// Config holds the settings of a Proxy.
type Config struct {
	// SiteDomain is the domain that the built-in addresses of all sites share: no cookie is set
	// for it.
	SiteDomain string
	FirstByte  time.Duration // before the first byte of a response. Optional: 0 means 100s.
	AltSvc     string        // what Pass tells visitors of HTTP/3. Optional.
	// Out reaches other hosts, through egress. Optional: without it nothing is forwarded.
	Out http.RoundTripper
	Log *slog.Logger
	// Shared is how many requests that share connections, over HTTP/2 and HTTP/3, Serve has under
	// way, a quarter of them for one owner's sites. Each holds a file descriptor, of a program's connection or
	// of its file. Optional: 0 means a quarter of those that the process may have.
	Shared int
}

// Proxy passes requests on. It is safe for concurrent use.
type Proxy struct {
	Config
	altSvc             []byte // Config.AltSvc
	forwarding, shared *fair.Pool
}

// New returns a Proxy.
func New(c Config) *Proxy {
	if c.Shared == 0 {
		n, err := connlimit.Descriptors()
		if err != nil {
			n = 1024 // what a process has as a rule
		}
		c.Shared = int(min(n, 1<<20) / 4)
	}
	return &Proxy{
		Config: c, altSvc: []byte(c.AltSvc),
		// share: total 512 requests forwarded to other hosts; owner 128, of one site 32; edge 503 with Retry-After
		forwarding: fair.New(fair.Config{Places: proxyMost, Owner: proxyOwner, Site: proxySite}),
		// share: total a quarter of the file descriptors, of requests over HTTP/2 and 3 that programs answer; owner a quarter of that, one visitor half of it; edge 503 with Retry-After
		shared: fair.New(fair.Config{Places: c.Shared, Owner: (c.Shared + 3) / 4, Visitor: (c.Shared + 7) / 8}),
	}
}

// How long a program may take to begin its answer, where Config doesn't say, and a visitor
// to take or send some bytes.
const (
	firstByte = 100 * time.Second
	flowTime  = time.Minute
)

// Site holds what a request for a program is for.
type Site struct {
	Host      string // that was asked, in lower case, without port
	Preview   bool   // the address of a deployment or a branch
	Protected bool   // not everybody may see it
}

// Errors of Serve and Pass. Nobody has been answered then.
var (
	ErrUnreached = errors.New("the application accepts no connections") // it has not got the request
	ErrTimeout   = errors.New("no answer in time")
)

// errHeader is the error of an answer with more before its body than one may have.
var errHeader = errors.New("its header is too large")

// Reason says for a site's log why its program did not answer: an error of Serve or Pass.
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

// maxReason is how many bytes of an error a site's log gets: some quote the application.
const maxReason = 200

// Serve lets a program answer a request. It returns an error where the program didn't, and
// somebody still waits for an answer.
func (p *Proxy) Serve(w *response.Recorder, r *http.Request, to *endpoint.Endpoint, s Site, begun time.Time) error {
	if s.Preview {
		w.Header()["X-Robots-Tag"] = response.Noindex
	}
	if r.Method == http.MethodConnect { // whoever gets a 2xx would take the connection for a tunnel
		w.Header().Set("Connection", "close")
		response.Fail(w, r, http.StatusNotImplemented)
		return nil
	}
	// Connections are counted where they are accepted, but one of HTTP/2 has 128 requests: answers
	// that nobody reads would use up the descriptors of the control plane.
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
		r.Body = http.MaxBytesReader(w, r.Body, to.MaxBody) // it may not say how much comes
	}
	if to.Upstream != nil && usual(r) {
		return p.direct(w, r, to, s, begun)
	}
	return p.reverse(w, r, to, s, begun)
}

// reverse is for what is unusual about a request or a program.
func (p *Proxy) reverse(w *response.Recorder, r *http.Request, to *endpoint.Endpoint, s Site, begun time.Time) error {
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	late := &patience{long: p.firstByteOf(to)}
	late.timer = time.AfterFunc(late.long, func() { cancel(ErrTimeout) })
	defer late.end()
	proxy := httputil.ReverseProxy{
		Rewrite:       rewrite,
		Transport:     to.Transport,
		FlushInterval: -1, // streams and events go out as they come
		BufferPool:    buffers{},
		ErrorLog:      slog.NewLogLogger(p.Log.Handler(), slog.LevelDebug),
		ModifyResponse: func(resp *http.Response) error {
			late.end()
			if !response.Fits(resp.Header) {
				return errHeader
			}
			w.First = time.Since(begun)
			p.ownCookies(resp.Header, s.Host)
			resp.Header.Del("Alt-Svc") // it would lead to what isn't the program's
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
	if r.Body != nil && r.Body != http.NoBody {
		body := &flowingBody{ReadCloser: r.Body, conn: conn, again: late.again}
		defer body.leave() // the transport may read on, after an early answer
		in.Body = body
		// Otherwise net/http closes the body with the first byte of the answer, and the transport,
		// which reads on to see whether the body has ended, gives the answer up.
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
	if more := new(http.MaxBytesError); errors.As(late.err, &more) && w.Status == 0 && r.Context().Err() == nil {
		tooLarge(w, r)
		return nil
	}
	if w.Status != 0 || r.Context().Err() != nil {
		return nil // half an answer: the connection is all that can still be ended; or nobody is there
	}
	return late.err
}

// firstByteOf is how long a program may take to begin its answer.
func (p *Proxy) firstByteOf(to *endpoint.Endpoint) time.Duration {
	return cmp.Or(to.FirstByte, p.FirstByte, firstByte)
}

// buffers holds those that answers are copied through: 32 KiB each, which would otherwise be made
// for every answer.
type buffers struct{}

// share: total one for each answer that is copied; owner see the pools of programs; edge more are made
var bufferPool = sync.Pool{New: func() any { return new([32 << 10]byte) }}

// Get is for httputil.ReverseProxy.
func (buffers) Get() []byte { return bufferPool.Get().(*[32 << 10]byte)[:] }

// Put is its opposite.
func (buffers) Put(b []byte) { bufferPool.Put((*[32 << 10]byte)(b)) }

// flowing gives each write of an answer its own deadline: a stream takes as long as its
// program likes, and a visitor who reads nothing holds nothing for long.
type flowing struct {
	*response.Recorder
	conn   *http.ResponseController
	cancel func() // ends the request
}

func (f *flowing) Write(b []byte) (int, error) {
	_ = f.conn.SetWriteDeadline(time.Now().Add(flowTime))
	return f.Recorder.Write(b)
}

// Unwrap is for http.ResponseController.
func (f *flowing) Unwrap() http.ResponseWriter { return f.Recorder }

// finalOnly leaves out what comes before an answer: a client that speaks HTTP/1.0 would take it
// for the answer (RFC 9110, section 15.2).
type finalOnly struct{ http.ResponseWriter }

func (f *finalOnly) WriteHeader(status int) {
	if status >= http.StatusOK || status == http.StatusSwitchingProtocols {
		f.ResponseWriter.WriteHeader(status)
	}
}

// Unwrap is for http.ResponseController.
func (f *finalOnly) Unwrap() http.ResponseWriter { return f.ResponseWriter }

// flowingBody does the same for what a visitor sends. At its end the deadline goes: the
// server notices by a read that a visitor has left.
type flowingBody struct {
	io.ReadCloser
	again func() // bytes came

	mu   sync.Mutex // guards conn
	conn *http.ResponseController
}

func (b *flowingBody) Read(p []byte) (int, error) {
	b.by(time.Now().Add(flowTime))
	n, err := b.ReadCloser.Read(p)
	b.again()
	if err != nil {
		b.by(time.Time{})
	}
	return n, err
}

// by sets the deadline.
func (b *flowingBody) by(t time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.conn != nil {
		_ = b.conn.SetReadDeadline(t)
	}
}

// leave is called before the handler returns: to touch the connection afterwards would end the
// process (net/http's HTTP/2 has none then), or change the next request's deadline.
func (b *flowingBody) leave() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.conn = nil
}

// patience is the time that a program has for the first byte of its answer. It counts from
// the last byte of the request that came: an upload takes as long as it takes.
type patience struct {
	long  time.Duration
	timer *time.Timer
	err   error      // why there was no answer
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

// tooLarge answers a request whose body is longer than the site takes. Nothing can follow it.
func tooLarge(w *response.Recorder, r *http.Request) {
	w.Header().Set("Connection", "close")
	response.Fail(w, r, http.StatusRequestEntityTooLarge)
}
