package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"slipway/internal/edge/access"
	"slipway/internal/edge/endpoint"
	"slipway/internal/edge/response"
	"slipway/internal/edge/upstream"
	"slipway/internal/platform/panics"
)

// usual reports whether a request can be written to the program directly. Upgrades and trailers go through
// [httputil.ReverseProxy].
func usual(r *http.Request) bool {
	h := r.Header
	if len(r.Trailer) > 0 || !r.ProtoAtLeast(1, 1) || r.ContentLength < 0 && !mayChunk(r.Method) {
		return false
	}
	for _, name := range []string{"Upgrade", "Trailer", "Transfer-Encoding"} {
		if len(h[name]) > 0 {
			return false
		}
	}
	if len(h["Te"]) > 0 && strings.HasPrefix(h.Get("Content-Type"), "application/grpc") {
		return false // gRPC needs trailers
	}
	for _, v := range h["Connection"] {
		if !strings.EqualFold(v, "keep-alive") && !strings.EqualFold(v, "close") {
			return false
		}
	}
	return true
}

// mayChunk reports whether a body of unknown length is sent in chunks. Bodies of other methods are most often empty,
// which [http.Transport] finds out first.
func mayChunk(method string) bool {
	return method == http.MethodPost || method == http.MethodPut || method == http.MethodPatch
}

// heads holds buffers for requests to programs and for response headers.
// share: total one for each request that is passed to a program; owner see the pools of programs; edge more are made
var heads = sync.Pool{New: func() any { b := make([]byte, 0, 4<<10); return &b }}

func putHead(b *[]byte) {
	if cap(*b) <= 64<<10 {
		heads.Put(b)
	}
}

// appendRequest appends the request line and header for the program.
func appendRequest(b []byte, r *http.Request, id string) []byte {
	b = append(b, r.Method...)
	b = append(b, ' ')
	b = appendTarget(b, r.URL.EscapedPath())
	if r.URL.ForceQuery || r.URL.RawQuery != "" {
		b = appendTarget(append(b, '?'), r.URL.RawQuery)
	}
	b = append(b, " HTTP/1.1\r\nHost: "...)
	b = appendValue(b, r.Host)
	b = append(b, "\r\n"...)
	for name, values := range r.Header {
		if !toProgram(name) || cgiEqual(name, "host") {
			continue
		}
		for _, v := range values {
			if name == "Cookie" && strings.Contains(v, access.CookiePrefix) {
				h := http.Header{"Cookie": {v}}
				access.DropCookies(h)
				v = h.Get("Cookie")
				if v == "" {
					continue
				}
			}
			b = appendField(b, name, v)
		}
	}
	b = appendLength(b, r.Method, r.ContentLength)
	addr, proto, forwarded := whoAsks(r)
	b = appendWho(b, addr, proto, r.Host, forwarded)
	b = appendField(b, response.RequestField, id)
	return append(b, "\r\n"...)
}

// appendLength appends how the program finds the end of the body, for methods that may have one.
func appendLength(b []byte, method string, n int64) []byte {
	switch {
	case n < 0:
		return append(b, "Transfer-Encoding: chunked\r\n"...)
	case n > 0:
		b = strconv.AppendInt(append(b, "Content-Length: "...), n, 10)
		return append(b, "\r\n"...)
	case method != http.MethodGet && method != http.MethodHead && method != http.MethodOptions:
		return append(b, "Content-Length: 0\r\n"...)
	}
	return b
}

func appendField(b []byte, name, value string) []byte {
	b = append(appendValue(b, name), ": "...)
	return append(appendValue(b, value), "\r\n"...)
}

// appendValue appends a validated value. As a second line of defense it replaces line breaks.
func appendValue(b []byte, text string) []byte {
	if !strings.ContainsAny(text, "\r\n\x00") {
		return append(b, text...)
	}
	return append(b, strings.Map(func(r rune) rune {
		if r == '\r' || r == '\n' || r == 0 {
			return ' '
		}
		return r
	}, text)...)
}

// appendTarget appends a part of a request target and escapes what may not be in one, such as bytes of UTF-8.
func appendTarget(b []byte, text string) []byte {
	for i := range len(text) {
		if ch := text[i]; ch <= ' ' || ch >= 0x7f || ch == '#' {
			const hex = "0123456789ABCDEF"
			b = append(b, '%', hex[ch>>4], hex[ch&15])
		} else {
			b = append(b, ch)
		}
	}
	return b
}

// direct sends a request to a program and forwards its response, as [Proxy.Serve] does.
func (p *Proxy) direct(w *response.Recorder, r *http.Request, to *endpoint.Endpoint, s Site, begun time.Time) error {
	out := heads.Get().(*[]byte)
	defer putHead(out)
	*out = appendRequest((*out)[:0], r, requestID(w, r))
	conn := http.NewResponseController(w.ResponseWriter)
	if r.ContentLength == 0 {
		_ = conn.SetReadDeadline(time.Time{})
	} else {
		// Otherwise net/http would wait for the visitor's next bytes before it sends the response.
		_ = conn.EnableFullDuplex()
	}
	_ = conn.SetWriteDeadline(time.Time{})
	var h upstream.Head
	// A body can be sent only once, so such a request gets a new connection rather than an idle one that the program
	// may be closing.
	for fresh, repeated := r.ContentLength != 0, false; ; fresh = true {
		c, err := to.Upstream.Get(r.Context(), fresh)
		if err != nil {
			lastRequest(w, r, false)
			return fmt.Errorf("%w: %w", ErrUnreached, err)
		}
		x := &exchange{c: c, w: w, r: r, conn: conn, limit: p.firstByteOf(to)}
		err = x.ask(*out, &h)
		if err != nil && r.ContentLength == 0 && c.Again(err, r.Method, &repeated) {
			x.end(false)
			continue // the program closed the connection before reading the request, or its machine is gone
		}
		if err != nil {
			gone := r.Context().Err() != nil // check before end, which cancels too
			lost := x.visitorLost()          // and before it interrupts the body
			x.end(false)
			if gone {
				return nil
			}
			lastRequest(w, r, x.all.Load())
			return x.failed(err, lost)
		}
		w.First = time.Since(begun)
		whole := false
		defer func() { x.end(whole) }()
		p.setFields(w.Header(), &h, s.Host)
		lastRequest(w, r, x.all.Load())
		w.Page = h.Status == http.StatusOK && r.Method == http.MethodGet && strings.HasPrefix(w.Header().Get("Content-Type"), "text/html")
		w.WriteHeader(h.Status)
		whole = x.body()
		return nil
	}
}

// lastRequest ends a visitor's connection with a response that comes before the end of the request's body, of which all
// says whether it has been read. Over HTTP/1.1, what is left would otherwise be read as the next request.
func lastRequest(w http.ResponseWriter, r *http.Request, all bool) {
	if r.ProtoMajor == 1 && r.ContentLength != 0 && !all {
		w.Header().Set("Connection", "close")
	}
}

// failed returns why no response began, or nil if the visitor is the cause.
// lost is why the visitor's body failed.
func (x *exchange) failed(err, lost error) error {
	switch {
	case errors.As(lost, new(*http.MaxBytesError)):
		tooLarge(x.w, x.r)
	case lost != nil && !errors.Is(lost, os.ErrDeadlineExceeded):
		response.Fail(x.w, x.r, http.StatusBadRequest) // incomplete request body
	case lost != nil:
		response.Fail(x.w, x.r, http.StatusRequestTimeout)
	case x.w.Status != 0: // incomplete response: only aborting the connection is left
	case errors.Is(err, os.ErrDeadlineExceeded):
		return ErrTimeout
	default:
		return err
	}
	return nil
}

type exchange struct {
	c     *upstream.Conn
	w     *response.Recorder
	r     *http.Request
	conn  *http.ResponseController
	limit time.Duration // time limit for the first byte
	stop  func() bool   // stops watching for the visitor's disconnect
	sent  chan struct{} // closed when the request body has been sent; nil without a body
	all   atomic.Bool   // the whole request body has been read
	// proceed is closed once the program wants the body, if the visitor has asked (Expect: 100-continue). refused is
	// closed if the program has answered instead.
	proceed, refused chan struct{}

	mu       sync.Mutex // guards the fields below
	answered bool
	lost     error // why the visitor's body failed
}

// maxInformational caps the 1xx responses before the final one.
const maxInformational = 16

var errInformational = errors.New("read the program's answer: too many informational responses")

// continueTime is how long a program may take to ask for a body that the visitor hasn't sent yet.
const continueTime = time.Second

// ask sends the request and reads the response header. The time limit counts from the last byte of the request.
func (x *exchange) ask(head []byte, h *upstream.Head) error {
	x.stop = context.AfterFunc(x.r.Context(), x.c.Abort)
	x.wait()
	_ = x.c.SetWriteDeadline(time.Now().Add(x.limit))
	if _, err := x.c.Write(head); err != nil {
		return err
	}
	proceed := func() {}
	if x.r.ContentLength != 0 {
		x.sent = make(chan struct{})
		if x.r.Header.Get("Expect") != "" {
			x.proceed, x.refused = make(chan struct{}), make(chan struct{})
			proceed = sync.OnceFunc(func() { close(x.proceed) })
			// Programs may not know the header (RFC 9110 §10.1.1).
			defer time.AfterFunc(continueTime, proceed).Stop()
			defer func() { close(x.refused) }()
		}
		panics.Go(x.send)
	}
	for range maxInformational {
		if err := x.c.ReadHead(h, x.r.Method == http.MethodHead); err != nil {
			return err
		}
		if h.Status >= 200 {
			if !x.c.Done() || x.sent != nil {
				x.answer()
			}
			return nil
		}
		if h.Status == http.StatusContinue {
			proceed() // net/http sends its own when the body is read
		} else {
			own := x.w.Header()
			before := own.Clone()
			for _, f := range h.Fields {
				if !hop(f.Name) && !serverField(f.Name) && !upstream.Is(f.Name, "set-cookie") && !upstream.Is(f.Name, "content-length") {
					own.Add(string(f.Name), string(f.Value))
				}
			}
			x.w.WriteHeader(h.Status)
			clear(own)
			for name, values := range before {
				own[name] = values
			}
		}
	}
	return errInformational
}

// wait restarts the time limit.
func (x *exchange) wait() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.answered {
		_ = x.c.SetReadDeadline(time.Now().Add(x.limit))
	}
}

// visitorLost returns why the visitor's body failed, so far.
func (x *exchange) visitorLost() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.lost
}

// answer stops the time limit, because the response has begun.
func (x *exchange) answer() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.answered = true
	_ = x.c.SetReadDeadline(time.Time{})
}

// send sends the request body.
func (x *exchange) send() {
	defer close(x.sent)
	if x.proceed != nil {
		select {
		case <-x.proceed:
		case <-x.refused:
			return
		}
	}
	c, chunks := x.c, x.r.ContentLength < 0
	defer func() { _ = c.SetWriteDeadline(time.Time{}) }() // don't affect the connection's next request
	buf := buffers{}.Get()
	defer buffers{}.Put(buf)
	body := &flowingBody{ReadCloser: x.r.Body, conn: x.conn, again: x.wait}
	const sizeLine, lineEnd = 10, 2 // room for a chunk's size and end
	var n int64
	for {
		m, err := body.Read(buf[sizeLine : len(buf)-lineEnd])
		n += int64(m)
		if n == x.r.ContentLength || chunks && err == io.EOF {
			x.all.Store(true)
		}
		part := buf[sizeLine : sizeLine+m]
		if chunks && m > 0 {
			size := append(strconv.AppendInt(make([]byte, 0, sizeLine), int64(m), 16), "\r\n"...)
			copy(buf[sizeLine-len(size):], size)
			part = append(buf[sizeLine-len(size):sizeLine+m], "\r\n"...)
		}
		if chunks && err == io.EOF {
			part = append(part, "0\r\n\r\n"...)
		}
		if len(part) > 0 {
			_ = c.SetWriteDeadline(time.Now().Add(x.limit))
			if _, err := c.Write(part); err != nil {
				x.all.Store(false)
				return // the program may have answered without reading it
			}
		}
		switch {
		case err == io.EOF && x.all.Load():
			return
		case err == io.EOF:
			err = io.ErrUnexpectedEOF
			fallthrough
		case err != nil:
			x.mu.Lock()
			x.lost = err
			x.mu.Unlock()
			c.Abort()
			return
		}
	}
}

// body forwards the response body and reports whether it was complete.
func (x *exchange) body() bool {
	w := &flowing{Recorder: x.w, conn: x.conn}
	before := func() error {
		err := x.conn.Flush()
		if errors.Is(err, http.ErrNotSupported) {
			err = nil
		}
		return err
	}
	for {
		part, err := x.c.Next(before)
		if err == io.EOF {
			return true
		}
		if err != nil {
			x.end(false)
			if x.r.Context().Err() == nil {
				panic(http.ErrAbortHandler) // the visitor must see that the response is incomplete
			}
			return false
		}
		if _, err := w.Write(part); err != nil {
			return false
		}
	}
}

// sendTime is how long to wait for the next part of a request body after the program has answered, and lingerTime the
// same over HTTP/1.1: if it comes, [response.Linger] can discard the others.
const (
	sendTime   = 100 * time.Millisecond
	lingerTime = time.Second
)

// end ends the exchange once, and keeps its connection if it is reusable.
func (x *exchange) end(whole bool) {
	if x.c == nil {
		return
	}
	c := x.c
	if x.sent != nil {
		select {
		case <-x.sent:
		default: // answered without the whole request; neither connection is reusable
			c.Abort()
			limit := sendTime
			if whole && x.r.ProtoMajor == 1 {
				limit = lingerTime
				_ = x.conn.Flush()
			}
			late := time.NewTimer(limit)
			select {
			case <-x.sent: // finished just in time
			case <-late.C:
				_ = x.conn.SetReadDeadline(time.Unix(1, 0))
				<-x.sent
			}
			late.Stop()
			whole = false
		}
	}
	x.c = nil
	if x.stop() && whole && x.visitorLost() == nil && (x.sent == nil || x.all.Load()) {
		c.Put()
	} else {
		c.Close()
	}
}

// setFields sets the response headers for the visitor.
func (p *Proxy) setFields(to http.Header, h *upstream.Head, host string) {
	more := connections(h.Fields)
	for _, f := range h.Fields {
		if p.toVisitor(f, more, host) {
			to.Add(string(f.Name), string(f.Value))
		}
	}
	if h.Length >= 0 && h.Status != http.StatusNoContent && h.Status != http.StatusNotModified {
		to["Content-Length"] = []string{strconv.FormatInt(h.Length, 10)}
	}
	if _, ok := to["Content-Type"]; !ok {
		to["Content-Type"] = nil // nil prevents net/http from guessing
	}
}
