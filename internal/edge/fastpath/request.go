package fastpath

import (
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// headers handles HEADERS: a new request, or trailers.
func (h *h2) headers(f frame) error {
	if f.stream == 0 || f.stream%2 == 0 {
		return connError(http2.ErrCodeProtocol)
	}
	block, depends, ok := unpad(f)
	if !ok {
		return connError(http2.ErrCodeProtocol)
	}
	if f.flags&http2.FlagHeadersPriority != 0 && depends == f.stream {
		return connError(http2.ErrCodeProtocol)
	}
	end := f.flags&http2.FlagHeadersEndStream != 0
	if f.flags&http2.FlagHeadersEndHeaders == 0 {
		h.open, h.openEnd, h.pieces = f.stream, end, 0
		h.block = append(h.block[:0], block...)
		return nil
	}
	return h.request(f.stream, block, end)
}

// continuation handles CONTINUATION (RFC 9113 §6.10).
func (h *h2) continuation(f frame) error {
	if h.open == 0 {
		return connError(http2.ErrCodeProtocol)
	}
	h.pieces++
	if h.pieces > 32 || len(h.block)+len(f.payload) > maxBlock {
		return connError(http2.ErrCodeEnhanceYourCalm)
	}
	h.block = append(h.block, f.payload...)
	if f.flags&http2.FlagContinuationEndHeaders == 0 {
		return nil
	}
	id := h.open
	h.open = 0
	err := h.request(id, h.block, h.openEnd)
	if cap(h.block) > maxFrame {
		h.block = nil
	}
	return err
}

// emit adds a decoded field. Fields beyond the limit are dropped: net/http, whose limit is lower, refuses the request.
func (h *h2) emit(f hpack.HeaderField) {
	h.size += int(f.Size())
	if h.size <= maxFields {
		h.fields = append(h.fields, f)
	}
}

// request answers a request or sends it to the lane.
func (h *h2) request(id uint32, block []byte, end bool) error {
	clear(h.fields)
	h.fields, h.size = h.fields[:0], 0
	if _, err := h.dec.Write(block); err != nil {
		return connError(http2.ErrCodeCompression)
	}
	if h.dec.Close() != nil {
		return connError(http2.ErrCodeCompression)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if id <= h.lastStream { // trailers, or an error
		s := h.streams[id]
		switch {
		case s != nil && s.lane && !s.sent:
			s.sent = end
			return h.lane.headers(id, h.fields, end)
		case s != nil && s.passed && !s.sent: // trailers after a body that was already checked
			if !end || !h.received(s, nil, true) {
				h.forget(s)
				h.rst(id, http2.ErrCodeProtocol)
			}
			return h.flushLarge()
		case s == nil && h.wasReset(id):
			return nil // sent before the client saw the reset
		}
		return connError(http2.ErrCodeStreamClosed)
	}
	if h.goingAway {
		h.ignored = max(h.ignored, id)
		return nil // GOAWAY told which streams are served
	}
	if h.fresh.Load() {
		h.fresh.Store(false)
	}
	h.lastStream, h.asked = id, true
	if len(h.streams)+h.lingering >= maxStreams {
		h.rst(id, http2.ErrCodeRefusedStream)
		h.overhead += int64(len(block))
		return h.flushLarge()
	}
	if h.drained.Load() || h.s.Draining.Load() {
		defer h.goAway(http2.ErrCodeNo)
	}
	switch passes := h.s.Hosts.Passes(&h.place); {
	case passes:
		if h.tryPass(id, end) {
			return nil
		}
	case end:
		if r, ok := h.plain(); ok {
			if a := h.s.Hosts.Find(&h.place, r.path, r.accepts); a != nil {
				if head, body, ok := r.pick(a); ok && h.s.Hosts.Admit(&h.place, len(body)) {
					return h.answer(id, a, &r, head, body)
				}
			}
		}
	}
	done, ok := h.held.take(h.size)
	if !ok {
		h.rst(id, http2.ErrCodeRefusedStream)
		h.overhead += int64(len(block))
		return h.flushLarge()
	}
	return h.detour(id, end, done)
}

func (h *h2) wasReset(id uint32) bool {
	for _, r := range h.reset {
		if r == id {
			return true
		}
	}
	return false
}

// answer appends a prepared response. The caller holds h.mu.
func (h *h2) answer(id uint32, a *Answer, r *plain, head *head, body []byte) error {
	h.served(a, r, head, len(body)) // count it even if the write fails: it was admitted
	h.buffer()
	date := h.s.now().h2
	n := len(head.h2) + len(date)
	if len(h.out)+n+min(len(body), 4096)+64 > outSize {
		if err := h.flush(); err != nil {
			return err
		}
		h.buffer()
	}
	if h.resize {
		n++
	}
	flags := http2.FlagHeadersEndHeaders
	if len(body) == 0 {
		flags |= http2.FlagHeadersEndStream
	}
	h.out = appendHead(h.out, n, http2.FrameHeaders, flags, id)
	if h.resize {
		h.resize = false
		h.out = append(h.out, 0x20)
	}
	h.out = append(append(h.out, head.h2...), date...)
	if len(body) > 0 {
		s := stream{id: id, window: h.initial, body: body}
		if err := h.body(&s); err != nil {
			return err
		}
		if len(s.body) > 0 {
			rest := &stream{id: s.id, window: s.window, body: s.body, late: time.Now().Add(h.s.writeTime(len(body)))}
			h.streams[id] = rest
			h.pending = append(h.pending, rest)
		}
	}
	return nil // the batch is sent when no more frames are buffered, or when it is full
}

// plain reads a request's fields and reports whether the request is plain. A malformed request isn't.
func (h *h2) plain() (r plain, ok bool) {
	var p pseudo
	r.cookies = h.cookies[:0]
	defer func() { h.cookies = r.cookies[:0] }()
	regular, accepts := false, 0
	if h.size > 8<<10 {
		return r, false
	}
	for i := range h.fields {
		f := &h.fields[i]
		if len(f.Name) > 0 && f.Name[0] == ':' {
			if regular || !p.put(f) {
				return r, false
			}
			continue
		}
		regular = true
		if !wellFormed(f) {
			return r, false
		}
		switch classify(f.Name) {
		case fieldOdd:
			if !isTrailers(f) {
				return r, false
			}
		case fieldHost, fieldConnection:
			return r, false
		case fieldAccept:
			accepts++
			if accepts > 1 {
				return r, false
			}
			if r.accepts, ok = h.acceptsOf(h.bytes(f.Value)); !ok {
				return r, false
			}
		case fieldReferrer:
			r.referrer = text{s: f.Value}
		case fieldAgent:
			r.agent = text{s: f.Value}
		case fieldTag:
			if r.tag != nil || f.Value == "" {
				return r, false
			}
			h.tagBuf = append(h.tagBuf[:0], f.Value...)
			r.tag = h.tagBuf
		case fieldCookie:
			r.cookies = append(r.cookies, text{s: f.Value})
		}
	}
	if p.path == "" || p.scheme != "https" || p.method != "GET" && p.method != "HEAD" || p.authority == "" || !h.isHost(h.bytes(p.authority)) {
		return r, false
	}
	r.head, r.path = p.method == "HEAD", h.bytes(p.path)
	return r, plainPath(r.path)
}

// pseudo holds the pseudo-header fields of a request (RFC 9113 §8.3.1).
type pseudo struct{ method, scheme, path, authority string }

// put sets a pseudo-header field. It reports false if the field is unknown, empty or repeated.
func (p *pseudo) put(f *hpack.HeaderField) bool {
	var at *string
	switch f.Name {
	case ":method":
		at = &p.method
	case ":scheme":
		at = &p.scheme
	case ":path":
		at = &p.path
	case ":authority":
		at = &p.authority
	default:
		return false
	}
	if *at != "" || f.Value == "" {
		return false
	}
	*at = f.Value
	return true
}

// wellFormed reports whether all parsers understand the field alike (RFC 9113 §8.2.1, but stricter).
func wellFormed(f *hpack.HeaderField) bool {
	for i := range len(f.Name) {
		if ch := f.Name[i]; !token[ch] || ch >= 'A' && ch <= 'Z' {
			return false
		}
	}
	for i := range len(f.Value) {
		if ch := f.Value[i]; ch < ' ' && ch != '\t' || ch == 0x7f {
			return false
		}
	}
	return f.Name != ""
}

// bytes returns s as bytes, valid until the next call.
func (h *h2) bytes(s string) []byte {
	h.buf = append(h.buf[:0], s...)
	return h.buf
}
