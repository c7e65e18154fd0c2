package edge

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"strconv"
	"strings"
	"sync"
	"time"

	"slipway/internal/fault"
)

// Program is a site's program, held for one request.
type Program struct {
	Transport http.RoundTripper // connects to it whatever the address
	Release   func()            // to be called when the request has ended
	// Serve answers a request that a file answers, and reports whether it did. Optional.
	Serve func(w http.ResponseWriter, r *http.Request) bool
	// Answered hears an answer's status, and how long its first byte took. Optional.
	Answered func(status int, took time.Duration)
}

// How long a program may take to begin its answer, where Config doesn't say, and a visitor
// to take or send some bytes.
const (
	firstByte = 100 * time.Second
	flowTime  = time.Minute
)

// program is the backend of sites that are programs. A sleeping one is woken while the
// request is held. Static files are answered without it.
func (e *Edge) program(w *recorder, r *http.Request, t *target) {
	if e.programAsset(w, r, t) {
		return
	}
	begun := time.Now()
	p, err := e.Programs(r.Context(), t.deployment)
	if err != nil {
		e.asleep(w, r, t, err)
		return
	}
	defer p.Release()
	first := time.Duration(0) // until the answer's first byte
	defer func() {
		if p.Answered != nil && w.status != 0 {
			p.Answered(w.status, cmp.Or(first, time.Since(begun)))
		}
	}()
	if t.preview {
		w.Header()["X-Robots-Tag"] = noindex
	}
	if p.Serve != nil && e.programFile(w, r, t, p) {
		return
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	late := &patience{long: cmp.Or(e.FirstByte, firstByte)}
	late.timer = time.AfterFunc(late.long, func() { cancel(errFirstByte) })
	defer late.end()
	proxy := httputil.ReverseProxy{
		Rewrite:       rewrite,
		Transport:     p.Transport,
		FlushInterval: -1, // streams and events go out as they come
		BufferPool:    buffers{},
		ErrorLog:      slog.NewLogLogger(e.Log.Handler(), slog.LevelDebug),
		ModifyResponse: func(resp *http.Response) error {
			late.end()
			first = time.Since(begun)
			e.ownCookies(resp.Header, hostname(r.Host))
			resp.Header.Del("Alt-Svc") // it would lead to what isn't the program's
			dropServerHeaders(resp.Header)
			if resp.StatusCode == http.StatusOK && strings.HasPrefix(resp.Header.Get("Content-Type"), "text/html") && r.Method == http.MethodGet {
				w.page = true
			}
			return nil
		},
		ErrorHandler: func(_ http.ResponseWriter, _ *http.Request, err error) {
			late.end()
			if context.Cause(ctx) == errFirstByte {
				err = errFirstByte
			}
			e.programFailed(w, r, t, err)
		},
	}
	in := r.WithContext(ctx)
	conn := http.NewResponseController(w)
	if r.Body != nil && r.Body != http.NoBody {
		in.Body = &flowingBody{r.Body, conn, late}
	} else {
		_ = conn.SetReadDeadline(time.Time{})
	}
	_ = conn.SetWriteDeadline(time.Time{})
	proxy.ServeHTTP(&flowing{w, conn}, in)
}

// buffers are what answers are copied through: 32 KiB each, which would otherwise be made
// for every answer.
type buffers struct{}

var bufferPool = sync.Pool{New: func() any { return new([32 << 10]byte) }}

// Get is for httputil.ReverseProxy.
func (buffers) Get() []byte { return bufferPool.Get().(*[32 << 10]byte)[:] }

// Put is its opposite.
func (buffers) Put(b []byte) { bufferPool.Put((*[32 << 10]byte)(b)) }

// flowing gives each write of an answer its own deadline: a stream takes as long as its
// program likes, and a visitor who reads nothing holds nothing for long.
type flowing struct {
	*recorder
	conn *http.ResponseController
}

func (f *flowing) Write(b []byte) (int, error) {
	_ = f.conn.SetWriteDeadline(time.Now().Add(flowTime))
	return f.recorder.Write(b)
}

// Unwrap is for http.ResponseController.
func (f *flowing) Unwrap() http.ResponseWriter { return f.recorder }

// flowingBody does the same for what a visitor sends. At its end the deadline goes: the
// server notices by a read that a visitor has left.
type flowingBody struct {
	io.ReadCloser
	conn *http.ResponseController
	late *patience
}

func (b *flowingBody) Read(p []byte) (int, error) {
	_ = b.conn.SetReadDeadline(time.Now().Add(flowTime))
	n, err := b.ReadCloser.Read(p)
	b.late.again()
	if err != nil {
		_ = b.conn.SetReadDeadline(time.Time{})
	}
	return n, err
}

// patience is the time that a program has for the first byte of its answer. It counts from
// the last byte of the request that came: an upload takes as long as it takes.
type patience struct {
	long  time.Duration
	timer *time.Timer
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

var errFirstByte = errors.New("no answer in time")

// rewrite makes the request that the program sees: the same host and path, and who asked,
// in headers of ours alone: what a visitor sent under their names is gone.
func rewrite(p *httputil.ProxyRequest) {
	p.Out.URL.Scheme, p.Out.URL.Host = "http", "program"
	p.Out.Host = p.In.Host
	for name := range p.Out.Header {
		if ours(name) {
			delete(p.Out.Header, name)
		}
	}
	addr, _, err := net.SplitHostPort(p.In.RemoteAddr)
	if err != nil {
		addr = p.In.RemoteAddr
	}
	proto := "http"
	if p.In.TLS != nil {
		proto = "https"
	}
	h := p.Out.Header
	if len(h["Cookie"]) > 0 {
		dropCookie(h, accessCookie) // it is ours
	}
	h["X-Forwarded-For"] = []string{addr}
	h["X-Real-Ip"] = h["X-Forwarded-For"]
	h["X-Forwarded-Proto"] = []string{proto}
	h["X-Forwarded-Host"] = []string{p.In.Host}
	node := addr
	if strings.Contains(addr, ":") {
		node = `"[` + addr + `]"` // RFC 7239 §6
	}
	h["Forwarded"] = []string{fmt.Sprintf("for=%s;host=%q;proto=%s", node, p.In.Host, proto)}
}

// ours reports whether a header may come from us alone. An underscore counts as a hyphen,
// as it does for the many programs that read headers as CGI names them; Proxy is a variable
// of the environment there.
func ours(name string) bool {
	name = http.CanonicalHeaderKey(strings.ReplaceAll(name, "_", "-"))
	return strings.HasPrefix(name, "X-Forwarded-") || name == "X-Forwarded" || name == "Forwarded" || name == "X-Real-Ip" || name == "Proxy"
}

// asleep answers for a program that could not be woken.
func (e *Edge) asleep(w *recorder, r *http.Request, t *target, err error) {
	if r.Context().Err() != nil {
		return // nobody is there any more
	}
	after := 5 * time.Second
	if f := fault.As(err); f != nil {
		if f.RetryAfter > 0 {
			after = f.RetryAfter
		}
	} else {
		e.Log.ErrorContext(r.Context(), "application not woken", "site", t.site, "deployment", t.deployment, "err", err)
	}
	w.Header().Set("Retry-After", strconv.Itoa(int((after+time.Second-1)/time.Second)))
	e.bound(w, r)
	page(w, r, pageWaking)
}

// programFailed answers for a program that did not: it ended, or took too long.
func (e *Edge) programFailed(w *recorder, r *http.Request, t *target, err error) {
	if w.status != 0 {
		return // half an answer: the connection is all that can still be ended
	}
	if r.Context().Err() != nil {
		return
	}
	e.Log.DebugContext(r.Context(), "application did not answer", "site", t.site, "err", err)
	if errors.Is(err, errFirstByte) {
		page(w, r, pageTimeout)
		return
	}
	page(w, r, pageCrashed)
}
