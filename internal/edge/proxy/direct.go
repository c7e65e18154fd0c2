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
	"time"

	"slipway/internal/edge/access"
	"slipway/internal/edge/endpoint"
	"slipway/internal/edge/response"
	"slipway/internal/edge/upstream"
	"slipway/internal/platform/panics"
)

// usual reports whether a request needs nothing but to be sent to a program and answered.
// What it could change about the connection, and bodies without a length, are
// httputil.ReverseProxy's.
func usual(r *http.Request) bool {
	h := r.Header
	if r.ContentLength < 0 || len(r.TransferEncoding) > 0 || len(r.Trailer) > 0 || !r.ProtoAtLeast(1, 1) {
		return false
	}
	for _, name := range []string{"Upgrade", "Expect", "Trailer", "Transfer-Encoding"} {
		if len(h[name]) > 0 {
			return false
		}
	}
	if len(h["Te"]) > 0 && strings.HasPrefix(h.Get("Content-Type"), "application/grpc") {
		return false // trailers matter there
	}
	for _, v := range h["Connection"] {
		if !strings.EqualFold(v, "keep-alive") && !strings.EqualFold(v, "close") {
			return false
		}
	}
	return true
}

// heads holds buffers in which requests to programs, and heads of answers, are assembled.
// share: total one for each request that is passed to a program; owner see the pools of programs; edge more are made
var heads = sync.Pool{New: func() any { b := make([]byte, 0, 4<<10); return &b }}

func putHead(b *[]byte) {
	if cap(*b) <= 64<<10 {
		heads.Put(b)
	}
}

// appendRequest appends the head of the request that the program sees.
func appendRequest(b []byte, r *http.Request) []byte {
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
	return append(b, "\r\n"...)
}

// appendLength appends how long the body of a request is, where its method may have one.
func appendLength(b []byte, method string, n int64) []byte {
	switch {
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

// appendValue appends text that a server has checked; should anything be left in it that
// ends a line, it doesn't here.
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

// appendTarget appends a part of a request target, in which no space may be.
func appendTarget(b []byte, text string) []byte {
	for i := range len(text) {
		if ch := text[i]; ch <= ' ' || ch == 0x7f || ch == '#' {
			const hex = "0123456789ABCDEF"
			b = append(b, '%', hex[ch>>4], hex[ch&15])
		} else {
			b = append(b, ch)
		}
	}
	return b
}

// direct sends a request to a program and answers with what it says, as Serve does.
func (p *Proxy) direct(w *response.Recorder, r *http.Request, to *endpoint.Endpoint, s Site, begun time.Time) error {
	out := heads.Get().(*[]byte)
	defer putHead(out)
	*out = appendRequest((*out)[:0], r)
	conn := http.NewResponseController(w.ResponseWriter)
	if r.ContentLength == 0 {
		_ = conn.SetReadDeadline(time.Time{})
	}
	_ = conn.SetWriteDeadline(time.Time{})
	var h upstream.Head
	// A body comes from the visitor once: it gets no connection that has waited, and that the program may be about to close.
	for fresh, repeated := r.ContentLength > 0, false; ; fresh = true {
		c, err := to.Upstream.Get(r.Context(), fresh)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrUnreached, err)
		}
		x := &exchange{c: c, w: w, r: r, conn: conn, limit: p.firstByteOf(to)}
		err = x.ask(*out, &h)
		if err != nil && r.ContentLength == 0 && c.Again(err, r.Method, &repeated) {
			x.end(false)
			continue // the program's end was closed before it read any of it, or is gone with its machine
		}
		if err != nil {
			gone := r.Context().Err() != nil // before the end, which may look like it
			x.end(false)
			if gone {
				return nil
			}
			return x.failed(err)
		}
		w.First = time.Since(begun)
		whole := false
		defer func() { x.end(whole) }()
		p.setFields(w.Header(), &h, s.Host)
		w.Page = h.Status == http.StatusOK && r.Method == http.MethodGet && strings.HasPrefix(w.Header().Get("Content-Type"), "text/html")
		w.WriteHeader(h.Status)
		whole = x.body()
		return nil
	}
}

// failed returns why a program's answer didn't begin, unless the visitor is the cause.
func (x *exchange) failed(err error) error {
	switch {
	case x.lost != nil && !errors.Is(x.lost, os.ErrDeadlineExceeded):
		response.Fail(x.w, x.r, http.StatusBadRequest) // half a body
	case x.lost != nil:
		response.Fail(x.w, x.r, http.StatusRequestTimeout)
	case x.w.Status != 0: // half an answer: the connection is all that can still be ended
	case errors.Is(err, os.ErrDeadlineExceeded):
		return ErrTimeout
	default:
		return err
	}
	return nil
}

// exchange is one request on one connection.
type exchange struct {
	c     *upstream.Conn
	w     *response.Recorder
	r     *http.Request
	conn  *http.ResponseController
	limit time.Duration // for the first byte
	stop  func() bool   // ends the watch over the visitor
	sent  chan struct{} // closed when the body has been sent; nil where there is none
	lost  error         // why the visitor's body didn't come; to be read once sent is closed

	mu       sync.Mutex // guards answered
	answered bool
}

// maxInformational is how many answers below 200 may come before the one.
const maxInformational = 16

var errInformational = errors.New("read the program's answer: too many informational responses")

// ask sends the request and reads the head of its answer. The program's time counts from the
// last byte of the request that came.
func (x *exchange) ask(head []byte, h *upstream.Head) error {
	x.stop = context.AfterFunc(x.r.Context(), x.c.Abort)
	x.wait()
	_ = x.c.SetWriteDeadline(time.Now().Add(x.limit))
	if _, err := x.c.Write(head); err != nil {
		return err
	}
	if x.r.ContentLength > 0 {
		x.sent = make(chan struct{})
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
		if h.Status != http.StatusContinue {
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

// wait begins the program's time anew.
func (x *exchange) wait() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.answered {
		_ = x.c.SetReadDeadline(time.Now().Add(x.limit))
	}
}

// answer ends the program's time: its answer has begun.
func (x *exchange) answer() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.answered = true
	_ = x.c.SetReadDeadline(time.Time{})
}

// send sends the visitor's body.
func (x *exchange) send() {
	defer close(x.sent)
	c := x.c
	defer func() { _ = c.SetWriteDeadline(time.Time{}) }() // the next request's writes are not these
	buf := buffers{}.Get()
	defer buffers{}.Put(buf)
	body := &flowingBody{ReadCloser: x.r.Body, conn: x.conn, again: x.wait}
	var n int64
	for {
		m, err := body.Read(buf)
		if m > 0 {
			n += int64(m)
			_ = c.SetWriteDeadline(time.Now().Add(x.limit))
			if _, err := c.Write(buf[:m]); err != nil {
				return // it may have answered all the same
			}
		}
		switch {
		case err == io.EOF && n == x.r.ContentLength:
			return
		case err == io.EOF:
			err = io.ErrUnexpectedEOF
			fallthrough
		case err != nil:
			x.lost = err
			c.Abort()
			return
		}
	}
}

// body passes the answer's body on, and reports whether all of it came.
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
				panic(http.ErrAbortHandler) // the visitor must notice that this is not all
			}
			return false
		}
		if _, err := w.Write(part); err != nil {
			return false
		}
	}
}

// sendTime is how long the end of a request's body is waited for that a program has answered
// without.
const sendTime = 100 * time.Millisecond

// end ends the exchange, once; its connection is kept where it may be.
func (x *exchange) end(whole bool) {
	if x.c == nil {
		return
	}
	c := x.c
	if x.sent != nil {
		select {
		case <-x.sent:
		default: // it answered without all of the request: nothing can follow on either connection
			whole = false
			c.Abort()
			late := time.NewTimer(sendTime)
			select {
			case <-x.sent: // it was about to
			case <-late.C:
				x.w.Header().Set("Connection", "close")
				_ = x.conn.SetReadDeadline(time.Unix(1, 0))
				<-x.sent
			}
			late.Stop()
		}
	}
	x.c = nil
	if x.stop() && whole && x.lost == nil {
		c.Put()
	} else {
		c.Close()
	}
}

// setFields sets the fields of an answer that a visitor gets.
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
		to["Content-Type"] = nil // net/http would guess
	}
}
