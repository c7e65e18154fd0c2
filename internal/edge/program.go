package edge

import (
	"cmp"
	"context"
	"errors"
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
	"slipway/internal/upstream"
)

// Program is a site's program, held for one request.
type Program struct {
	Transport http.RoundTripper // connects to it whatever the address
	// Upstream holds connections to it, for all but what is unusual. Optional: nil where it
	// speaks something else than HTTP.
	Upstream *upstream.Pool
	Release  func()          // to be called when the request has ended
	Ended    <-chan struct{} // closed when the program has ended. Optional.
	MaxBody  int64           // the most bytes of a request's body. Optional: 0 means no limit.
	// FirstByte is how long it may take to begin its answer. Optional: 0 means the Edge's own.
	FirstByte time.Duration
	// Serve answers a request that a file answers, and reports whether it did. Optional.
	Serve func(w http.ResponseWriter, r *http.Request) bool
	// Answered hears an answer's status, how many bytes its body had, and how long its first byte
	// took. Optional.
	Answered func(status int, bytes int64, took time.Duration)
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
	for tries := 1; ; tries++ {
		p, err := e.Programs(r.Context(), t.deployment)
		if err != nil {
			e.asleep(w, r, t, err)
			return
		}
		if e.ask(w, r, t, p, begun, tries == mostTries) {
			return
		}
	}
}

// mostTries is how many times a request looks for a program that takes it, where one after
// the other ends in that moment.
const mostTries = 3

// endTime is how long the end of a program may take that accepts no connections.
const endTime = 5 * time.Second

// ask lets a program answer a request. It returns false where the program has ended without
// having got it, unless it is the last try.
func (e *Edge) ask(w *recorder, r *http.Request, t *target, p Program, begun time.Time, last bool) (done bool) {
	defer p.Release()
	first := time.Duration(0) // until the answer's first byte
	defer func() {
		if p.Answered != nil && w.status != 0 {
			p.Answered(w.status, w.bytes, cmp.Or(first, time.Since(begun)))
		}
	}()
	if t.preview {
		w.Header()["X-Robots-Tag"] = noindex
	}
	if p.Serve != nil && e.programFile(w, r, t, p) {
		return true
	}
	if p.MaxBody > 0 {
		if r.ContentLength > p.MaxBody {
			tooLarge(w, r)
			return true
		}
		r.Body = http.MaxBytesReader(w, r.Body, p.MaxBody) // it may not say how much comes
	}
	if p.Upstream != nil && usual(r) {
		var err error
		if first, err = e.direct(w, r, t, p, begun); err == nil {
			return true
		}
		if !last && p.ended(r.Context()) {
			return false
		}
		e.programFailed(w, r, t, err)
		return true
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	late := &patience{long: e.firstByteOf(p)}
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
		in.Body = &flowingBody{r.Body, conn, late.again}
	} else {
		_ = conn.SetReadDeadline(time.Time{})
	}
	_ = conn.SetWriteDeadline(time.Time{})
	proxy.ServeHTTP(&flowing{w, conn}, in)
	return true
}

// firstByteOf is how long a program may take to begin its answer.
func (e *Edge) firstByteOf(p Program) time.Duration {
	return cmp.Or(p.FirstByte, e.FirstByte, firstByte)
}

// ended reports whether a program that accepts no connections has ended, or does so soon.
func (p Program) ended(ctx context.Context) bool {
	if p.Ended == nil {
		return false
	}
	late := time.NewTimer(endTime)
	defer late.Stop()
	select {
	case <-p.Ended:
		return true
	case <-late.C:
	case <-ctx.Done():
	}
	return false
}

// buffers holds those that answers are copied through: 32 KiB each, which would otherwise be made
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
	conn  *http.ResponseController
	again func() // bytes came
}

func (b *flowingBody) Read(p []byte) (int, error) {
	_ = b.conn.SetReadDeadline(time.Now().Add(flowTime))
	n, err := b.ReadCloser.Read(p)
	b.again()
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
	p.Out.Trailer = nil // what comes after a body comes after it was checked
	for name := range p.Out.Header {
		if ours(name) {
			delete(p.Out.Header, name)
		}
	}
	addr, proto, forwarded := whoAsks(p.In)
	h := p.Out.Header
	if len(h["Cookie"]) > 0 {
		dropOurCookies(h)
	}
	h["X-Forwarded-For"] = []string{addr}
	h["X-Real-Ip"] = h["X-Forwarded-For"]
	h["X-Forwarded-Proto"] = []string{proto}
	h["X-Forwarded-Host"] = []string{p.In.Host}
	h["Forwarded"] = []string{forwarded}
}

// whoAsks returns what a program is told of a visitor: the address, the protocol, and the
// field Forwarded.
func whoAsks(r *http.Request) (addr, proto, forwarded string) {
	proto = "http"
	if r.TLS != nil {
		proto = "https"
	}
	addr = address(r.RemoteAddr)
	return addr, proto, forwardedField(addr, r.Host, proto)
}

func address(remote string) string {
	if addr, _, err := net.SplitHostPort(remote); err == nil {
		return addr
	}
	return remote
}

// forwardedField returns the value of the field Forwarded (RFC 7239).
func forwardedField(addr, host, proto string) string {
	if strings.Contains(addr, ":") {
		addr = `"[` + addr + `]"` // section 6
	}
	return "for=" + addr + ";host=" + strconv.Quote(host) + ";proto=" + proto
}

// ours reports whether a header may come from us alone. An underscore counts as a hyphen,
// as it does for the many programs that read headers as CGI names them; Proxy is a variable
// of the environment there.
func ours[T string | []byte](name T) bool {
	const prefix = "x-forwarded"
	if len(name) > len(prefix) && cgiEqual(name[:len(prefix)], prefix) {
		return name[len(prefix)] == '-' || name[len(prefix)] == '_'
	}
	return cgiEqual(name, prefix) || cgiEqual(name, "forwarded") || cgiEqual(name, "x-real-ip") || cgiEqual(name, "proxy")
}

// cgiEqual reports whether name is lower, but for its case and for hyphens.
func cgiEqual[T string | []byte](name T, lower string) bool {
	if len(name) != len(lower) {
		return false
	}
	for i := range len(lower) {
		ch := name[i]
		switch {
		case ch >= 'A' && ch <= 'Z':
			ch |= 0x20
		case ch == '_':
			ch = '-'
		}
		if ch != lower[i] {
			return false
		}
	}
	return true
}

// tooLarge answers a request whose body is longer than the site takes. Nothing can follow it.
func tooLarge(w *recorder, r *http.Request) {
	w.Header().Set("Connection", "close")
	fail(w, r, http.StatusRequestEntityTooLarge)
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
	e.sitePage(w, r, t, pageWaking)
}

// programFailed answers for a program that did not: it ended, or took too long.
func (e *Edge) programFailed(w *recorder, r *http.Request, t *target, err error) {
	if w.status != 0 {
		return // half an answer: the connection is all that can still be ended
	}
	if r.Context().Err() != nil {
		return
	}
	if more := new(http.MaxBytesError); errors.As(err, &more) {
		tooLarge(w, r)
		return
	}
	e.Log.DebugContext(r.Context(), "application did not answer", "site", t.site, "err", err)
	if errors.Is(err, errFirstByte) {
		e.sitePage(w, r, t, pageTimeout)
		return
	}
	e.sitePage(w, r, t, pageCrashed)
}
