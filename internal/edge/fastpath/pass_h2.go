package fastpath

import (
	"bytes"
	"net"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"slipway/internal/platform/panics"
)

// maxPassed is the largest request body that is forwarded, in bytes; it is buffered whole.
const maxPassed = 32 << 10

// passMethods lists the methods that are forwarded.
var passMethods = map[string]string{
	"GET":     "GET",
	"HEAD":    "HEAD",
	"POST":    "POST",
	"PUT":     "PUT",
	"PATCH":   "PATCH",
	"DELETE":  "DELETE",
	"OPTIONS": "OPTIONS",
}

// tryPass lets [Hosts.Pass] answer a request in a new goroutine and reports whether it does. The caller holds h.mu.
func (h *h2) tryPass(id uint32, end bool) bool {
	r := requests.Get().(*Request)
	s := &stream{id: id, window: h.initial, sent: end, passed: true}
	r.reset(&h.place, h.sent.Remote, h.s, &h2Answer{h, s})
	r.Shares = true
	if !h.parsePass(r, end) {
		r.free()
		return false
	}
	var ok bool
	if s.done, ok = h.held.take(h.size + int(r.Length)); !ok {
		r.free()
		return false
	}
	answer := h.s.Hosts.Pass(r)
	if answer == nil {
		s.done()
		r.free()
		return false
	}
	s.left = r.Length
	if s.left > 0 {
		s.late = time.Now().Add(h.s.WriteTime)
	}
	h.streams[id] = s
	// uncaught: pass catches
	go h.pass(r, s, answer)
	return true
}

func (h *h2) pass(r *Request, s *stream, answer func() (whole bool)) {
	whole := false
	defer func() {
		if v := recover(); v != nil {
			_ = panics.Caught(v)
			whole = false
			if h.s.HTTP.ErrorLog != nil {
				h.s.HTTP.ErrorLog.Printf("fastpath: panic serving %v: %v", h.raw.RemoteAddr(), v)
			}
		}
		h.passed(s, whole)
		r.free()
	}()
	whole = answer() && r.end() == nil
}

// passed ends the stream of a forwarded request.
func (h *h2) passed(s *stream, whole bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !s.gone {
		h.forget(s)
		switch {
		case !whole:
			h.rst(s.id, http2.ErrCodeInternal)
		case !s.sent: // answered before its body was complete (RFC 9113 §8.1)
			h.rst(s.id, http2.ErrCodeNo)
		}
	}
	h.lingering--
	s.done()
	if h.over {
		return
	}
	h.flushSoon()
	if h.goingAway && len(h.streams) == 0 {
		h.wake()
	}
}

// flushSoon sends the batch after the goroutines that wait for the lock have added to it. The caller holds h.mu.
func (h *h2) flushSoon() {
	if h.flushing {
		return
	}
	h.flushing = true
	h.mu.Unlock()
	runtime.Gosched()
	h.mu.Lock()
	h.flushing = false
	if !h.over {
		_ = h.flush()
	}
}

// parsePass parses a request's fields and reports whether [Hosts.Pass] may answer it. end says that no body follows.
// Anything not known to be harmless is left to net/http.
func (h *h2) parsePass(r *Request, end bool) bool {
	if h.size > maxH1 || len(h.fields) > maxRequestFields {
		return false
	}
	keep := func(s string) []byte {
		at := len(r.text)
		r.text = append(r.text, s...)
		return r.text[at:len(r.text):len(r.text)]
	}
	var p pseudo
	cookie, cookies, lengths, regular, trailers, grpc := 0, 0, 0, false, false, false
	for i := range h.fields {
		f := &h.fields[i]
		if len(f.Name) > 0 && f.Name[0] == ':' {
			if regular || !p.put(f) {
				return false
			}
			continue
		}
		regular = true
		if !wellFormed(f) {
			return false
		}
		switch classify(f.Name) {
		case fieldHost, fieldConnection:
			return false
		case fieldOdd:
			if f.Name == "content-length" {
				lengths++
				if lengths > 1 || len(f.Value) > 5 {
					return false
				}
				for j := range len(f.Value) {
					if f.Value[j] < '0' || f.Value[j] > '9' {
						return false
					}
				}
				r.Length, _ = strconv.ParseInt(f.Value, 10, 64)
				continue
			}
			if isTrailers(f) {
				trailers = true
				continue
			}
			if !passes([]byte(f.Name)) {
				return false
			}
		case fieldCookie:
			cookies++
			if cookies > 1 {
				continue
			}
			cookie = len(r.Fields)
		}
		grpc = grpc || f.Name == "content-type" && strings.HasPrefix(f.Value, "application/grpc")
		r.Fields = append(r.Fields, Field{keep(f.Name), bytes.Trim(keep(f.Value), " \t")})
	}
	if trailers && grpc { // gRPC needs trailers
		return false
	}
	if cookies > 1 { // joined into one field for the program (RFC 9113 §8.2.3)
		at := len(r.text)
		for i := range h.fields {
			if f := &h.fields[i]; f.Name == "cookie" {
				if len(r.text) > at {
					r.text = append(r.text, "; "...)
				}
				r.text = append(r.text, f.Value...)
			}
		}
		r.Fields[cookie].Value = r.text[at:len(r.text):len(r.text)]
	}
	r.Method = passMethods[p.method]
	bodiless := p.method == "GET" || p.method == "HEAD" || p.method == "OPTIONS"
	switch {
	case r.Method == "" || r.Length > maxPassed || lengths > 0 && (bodiless || end && r.Length > 0):
		return false
	case !end && r.Length == 0: // body of unknown length
		return false
	}
	if p.scheme != "https" || p.path == "" || p.path[0] != '/' || !h.isHost(h.bytes(p.authority)) {
		return false
	}
	for i := range len(p.path) {
		if !targetChar[p.path[i]] {
			return false
		}
	}
	r.Target, r.Host = keep(p.path), keep(p.authority)
	r.Path, _, _ = bytes.Cut(r.Target, []byte("?"))
	return true
}

// isTrailers reports whether a field is "te: trailers", which Firefox sends with every request. It has no effect on
// responses without trailers.
func isTrailers(f *hpack.HeaderField) bool { return f.Name == "te" && f.Value == "trailers" }

// received adds a part of the body of a forwarded request. It reports false if the body doesn't match Content-Length.
// The caller holds h.mu.
func (h *h2) received(s *stream, part []byte, end bool) bool {
	s.left -= int64(len(part))
	if s.left < 0 || end && s.left > 0 {
		return false // malformed (RFC 9113 §8.1.1)
	}
	if s.body == nil {
		s.body = make([]byte, 0, s.left+int64(len(part)))
	}
	s.body = append(s.body, part...)
	s.sent = end
	if end {
		h.more.Broadcast()
	}
	return true
}

func (a *h2Answer) body(*Request) ([]byte, error) {
	h, s := a.h, a.s
	h.mu.Lock()
	defer h.mu.Unlock()
	if !s.sent {
		late := time.AfterFunc(time.Until(s.late), func() {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.more.Broadcast()
		})
		defer late.Stop()
	}
	for !s.sent && !a.over() {
		if !time.Now().Before(s.late) {
			return nil, os.ErrDeadlineExceeded
		}
		h.more.Wait()
	}
	if a.over() {
		return nil, net.ErrClosed
	}
	b := s.body
	s.body = nil
	return b, nil
}

// h2Answer writes the response of one stream.
type h2Answer struct {
	h *h2
	s *stream
}

func (a *h2Answer) begin(r *Request) {
	if i := statusIndex(r.status); i > 0 {
		r.head = append(r.head, 0x80|i)
		return
	}
	r.head = strconv.AppendInt(append(r.head, 0x08, 3), int64(r.status), 10)
}

// statusIndex returns the index of a status in HPACK's static table (RFC 7541 appendix A), or 0.
func statusIndex(status int) byte {
	switch status {
	case 200:
		return 8
	case 204:
		return 9
	case 206:
		return 10
	case 304:
		return 11
	case 400:
		return 12
	case 404:
		return 13
	case 500:
		return 14
	}
	return 0
}

// nameIndex returns the index of a common field name in the static table, or 0.
func nameIndex(name []byte) int {
	switch len(name) {
	case 4:
		if equal(name, "date") {
			return 33
		}
		if equal(name, "etag") {
			return 34
		}
		if equal(name, "vary") {
			return 59
		}
	case 8:
		if equal(name, "location") {
			return 46
		}
	case 10:
		if equal(name, "set-cookie") {
			return 55
		}
	case 12:
		if equal(name, "content-type") {
			return 31
		}
	case 13:
		if equal(name, "cache-control") {
			return 24
		}
		if equal(name, "last-modified") {
			return 44
		}
	case 14:
		if equal(name, "content-length") {
			return 28
		}
	case 16:
		if equal(name, "content-encoding") {
			return 26
		}
	}
	return 0
}

// appendInt appends an HPACK integer after the first bits of a byte (RFC 7541 §5.1).
func appendInt(b []byte, first byte, bits uint, n int) []byte {
	most := 1<<bits - 1
	if n < most {
		return append(b, first|byte(n))
	}
	b = append(b, first|byte(most))
	for n -= most; n >= 0x80; n >>= 7 {
		b = append(b, byte(n)|0x80)
	}
	return append(b, byte(n))
}

// appendLiteral appends a literal field without indexing (RFC 7541 §6.2.2).
func appendLiteral(b, name, value []byte) []byte {
	if i := nameIndex(name); i > 0 {
		b = appendInt(b, 0, 4, i)
	} else {
		b = appendInt(append(b, 0), 0, 7, len(name))
		for _, ch := range name {
			if ch >= 'A' && ch <= 'Z' {
				ch |= 0x20
			}
			b = append(b, ch)
		}
	}
	return append(appendInt(b, 0, 7, len(value)), value...)
}

func (a *h2Answer) add(r *Request, name, value []byte) { r.head = appendLiteral(r.head, name, value) }

// over reports whether the client no longer wants the response. The caller holds h.mu.
func (a *h2Answer) over() bool { return a.s.gone || a.h.over }

func (a *h2Answer) send(r *Request, length int64, body bool) error {
	if r.status >= 200 {
		if !r.dated {
			r.head = append(r.head, r.s.now().h2...)
		}
		if length >= 0 {
			var text [20]byte
			r.head = appendLiteral(r.head, contentLength, strconv.AppendInt(text[:0], length, 10))
		}
	}
	h := a.h
	h.mu.Lock()
	defer h.mu.Unlock()
	if a.over() {
		return net.ErrClosed
	}
	h.buffer()
	if len(h.out)+len(r.head)+2*frameHead > outSize {
		if err := h.flush(); err != nil {
			return err
		}
		h.buffer()
	}
	block := r.head
	if h.resize {
		h.resize = false
		block = append([]byte{0x20}, block...)
	}
	h.out = appendBlock(h.out, a.s.id, block, r.ended && r.status >= 200)
	if cap(r.head) > smallHeld { // the body may wait for a slow client
		r.head = nil
	}
	return nil
}

var contentLength = []byte("content-length")

func (a *h2Answer) write(r *Request, p []byte) error {
	h, s := a.h, a.s
	h.mu.Lock()
	defer h.mu.Unlock()
	if a.over() {
		return net.ErrClosed
	}
	s.body, s.more = p, !r.ended
	defer func() { s.body = nil }()
	if err := h.body(s); err != nil {
		return err
	}
	if len(s.body) == 0 {
		return nil
	}
	// The windows are closed: the reader continues when they open, and checks the deadline.
	s.late = time.Now().Add(h.s.writeTime(len(p)))
	h.pending = append(h.pending, s)
	if err := h.flush(); err != nil {
		return err
	}
	h.wake()
	for len(s.body) > 0 && !a.over() {
		h.more.Wait()
	}
	if len(s.body) > 0 {
		return net.ErrClosed
	}
	return nil
}

func (a *h2Answer) end(*Request) error {
	h := a.h
	h.mu.Lock()
	defer h.mu.Unlock()
	if a.over() {
		return net.ErrClosed
	}
	h.buffer()
	h.out = appendHead(h.out, 0, http2.FrameData, http2.FlagDataEndStream, a.s.id)
	return nil
}

func (a *h2Answer) flush() error {
	a.h.mu.Lock()
	defer a.h.mu.Unlock()
	if a.over() {
		return net.ErrClosed
	}
	return a.h.flush()
}

func (a *h2Answer) gone() bool {
	a.h.mu.Lock()
	defer a.h.mu.Unlock()
	return a.over()
}
