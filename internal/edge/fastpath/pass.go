package fastpath

import (
	"bytes"
	"errors"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Field is one header field of a request, with spaces around the value removed.
type Field struct{ Name, Value []byte }

// Request is a request that [Hosts.Pass] may answer: for the host of the TLS connection, a GET or HEAD without a body or,
// over HTTP/2, a common method with a body of at most maxPassed bytes. Its fields are valid until it is answered, by
// Begin, Add and Send, and then Write for the body.
type Request struct {
	Place  *Place
	Remote net.Addr
	Method string
	Length int64   // size of the body in bytes
	Target []byte  // path and query
	Path   []byte  // without the query
	Host   []byte  // as sent
	Fields []Field // without Host and Connection
	Last   bool    // the response must announce that its connection closes; HTTP/1.1 only
	// Shares says that the connection may have other running requests, as over HTTP/2.
	Shares bool

	to   answering
	s    *Server
	text []byte // HTTP/2: backing array of Fields and the other slices
	read []byte // the body, once complete

	head    []byte // header of the response under construction
	status  int
	dated   bool
	length  int64 // bytes of the body still to write; -1: unknown
	ended   bool  // the response is complete
	chunked bool
}

// answering writes responses in one protocol.
type answering interface {
	begin(r *Request)                               // writes the status
	add(r *Request, name, value []byte)             // writes a field
	send(r *Request, length int64, body bool) error // ends the header
	write(r *Request, p []byte) error               // writes a part of the body
	end(r *Request) error                           // ends a body of unknown length
	flush() error
	gone() bool
	body(r *Request) ([]byte, error) // reads the request body
}

// maxRequestFields caps the header fields of a request here; net/http accepts more.
const maxRequestFields = 100

// targetChar is the set of characters allowed in a path and query here.
var targetChar = func() (t [256]bool) {
	t = pathChar
	for _, c := range []byte("?[]") {
		t[c] = true
	}
	return t
}()

// parsePass parses a request's header, including the empty line, and reports whether [Hosts.Pass] may answer it. Anything
// not known to be harmless, or that could affect where the request ends, leaves the request to net/http, which reads
// the same bytes.
func (h *h1) parsePass(r *Request, b []byte) bool {
	r.reset(&h.place, h.sent.Remote, h.s, (*h1Answer)(h))
	line, rest, _ := bytes.Cut(b, crlf)
	if target, found := bytes.CutPrefix(line, []byte("GET ")); found {
		line, r.Method = target, http.MethodGet
	} else if target, found := bytes.CutPrefix(line, []byte("HEAD ")); found {
		line, r.Method = target, http.MethodHead
	} else {
		return false
	}
	ok := false
	if r.Target, ok = bytes.CutSuffix(line, []byte(" HTTP/1.1")); !ok || len(r.Target) == 0 || r.Target[0] != '/' {
		return false
	}
	for _, ch := range r.Target {
		if !targetChar[ch] {
			return false
		}
	}
	r.Path, _, _ = bytes.Cut(r.Target, []byte("?"))
	hosts, connections := 0, 0
	for {
		line, rest, ok = bytes.Cut(rest, crlf)
		if !ok {
			return false
		}
		if len(line) == 0 {
			break
		}
		colon := bytes.IndexByte(line, ':')
		if colon <= 0 || len(r.Fields) == maxRequestFields {
			return false
		}
		f := Field{line[:colon], bytes.Trim(line[colon+1:], " \t")}
		for _, ch := range f.Name {
			if !token[ch] {
				return false
			}
		}
		for _, ch := range f.Value {
			if ch < ' ' && ch != '\t' || ch == 0x7f {
				return false
			}
		}
		switch classify(f.Name) {
		case fieldHost:
			hosts++
			if hosts > 1 || !h.isHost(f.Value) {
				return false
			}
			r.Host = f.Value
			continue
		case fieldConnection:
			connections++
			if connections > 1 {
				return false
			}
			switch strings.ToLower(string(f.Value)) { // neither case allocates
			case "keep-alive":
			case "close":
				r.Last = true
			default:
				return false
			}
			continue
		case fieldOdd:
			if !passes(f.Name) {
				return false
			}
		}
		r.Fields = append(r.Fields, f)
	}
	return hosts == 1 && len(rest) == 0
}

// passes reports whether a field that classify considers odd may be forwarded: it changes the response, which the
// program knows, but not how messages are framed.
func passes(name []byte) bool {
	switch len(name) {
	case 5:
		return equal(name, "range")
	case 13:
		return equal(name, "authorization")
	}
	return len(name) > 3 && name[0]|0x20 == 'i' && name[1]|0x20 == 'f' && name[2] == '-'
}

// share: total one for each request that is passed on; owner see connlimit; edge more are made
var requests = sync.Pool{New: func() any { return new(Request) }}

// reset prepares r for a connection's next request and keeps its buffers.
func (r *Request) reset(at *Place, remote net.Addr, s *Server, to answering) {
	*r = Request{Place: at, Remote: remote, Fields: r.Fields[:0], text: r.text[:0], head: r.head[:0], s: s, to: to}
}

// free returns an answered request to the pool.
func (r *Request) free() {
	clear(r.Fields)
	if cap(r.head) > maxKept {
		r.head = nil
	}
	if cap(r.text) > maxKept {
		r.text = nil
	}
	r.reset(nil, nil, nil, nil)
	requests.Put(r)
}

// maxKept is the largest buffer kept for the next request, in bytes.
const maxKept = 16 << 10

// tryPass lets [Hosts.Pass] answer. taken is false if the request is left to net/http; more is false if the connection
// has ended.
func (h *h1) tryPass(b []byte) (taken, more bool) {
	r := requests.Get().(*Request)
	defer r.free()
	if !h.parsePass(r, b) {
		return false, false
	}
	r.Last = r.Last || h.drained.Load() || h.s.Draining.Load()
	answer := h.s.Hosts.Pass(r)
	if answer == nil {
		return false, false
	}
	h.passing.Store(true)
	defer h.passing.Store(false)
	ok := answer() && r.end() == nil
	if r.Last || !ok {
		h.last = h.flush() && ok
		return true, false
	}
	return true, true
}

// Protocol returns HTTP/1.1 or HTTP/2.0.
func (r *Request) Protocol() string {
	if r.Shares {
		return "HTTP/2.0"
	}
	return "HTTP/1.1"
}

// Body returns the request's body when it is complete. It waits up to a minute, then fails with
// [os.ErrDeadlineExceeded].
func (r *Request) Body() ([]byte, error) {
	if r.Length == 0 || r.read != nil {
		return r.read, nil
	}
	var err error
	r.read, err = r.to.body(r)
	return r.read, err
}

// Begin begins a response. A status below 200 is followed by another Begin.
func (r *Request) Begin(status int) {
	r.head, r.status, r.dated = r.head[:0], status, false
	r.to.begin(r)
}

// Add adds a header field; the caller has validated it. [Request.Send] writes connection-specific fields and
// Content-Length.
func (r *Request) Add(name, value []byte) {
	r.dated = r.dated || equal(name, "date")
	r.to.add(r, name, value)
}

// AddString is [Request.Add] for strings.
func (r *Request) AddString(name, value string) { r.Add([]byte(name), []byte(value)) }

// Send ends the header. length is the Content-Length, or -1; body says whether a body follows.
func (r *Request) Send(length int64, body bool) error {
	if r.status >= 200 {
		r.length = length
		if !body {
			r.length = 0
		}
		r.ended = !body
	}
	return r.to.send(r, length, body)
}

// Write adds a part of the body. It is sent once a TLS record is full, by Flush, or at the end of the response.
func (r *Request) Write(p []byte) (int, error) {
	if len(p) == 0 || r.ended {
		return 0, nil
	}
	if r.length >= 0 {
		if int64(len(p)) > r.length {
			return 0, errTooLong
		}
		r.length -= int64(len(p))
		r.ended = r.length == 0
	}
	if err := r.to.write(r, p); err != nil {
		return 0, err
	}
	return len(p), nil
}

var errTooLong = errors.New("more of the body than its length says")

// Flush sends what was written.
func (r *Request) Flush() error { return r.to.flush() }

// Gone reports whether the client has closed the connection or its sending half, or has canceled the request. It reads
// nothing.
func (r *Request) Gone() bool { return r.to.gone() }

// end ends the response, or aborts it if it isn't complete.
func (r *Request) end() error {
	switch {
	case r.ended:
		return nil
	case r.length > 0 || r.status < 200:
		return errHalf
	}
	r.ended = true
	return r.to.end(r)
}

var errHalf = errors.New("half an answer")

// h1Answer writes HTTP/1.1 responses.
type h1Answer h1

func (h *h1Answer) begin(r *Request) {
	if r.status == http.StatusOK {
		r.head = append(r.head, "HTTP/1.1 200 OK\r\n"...)
		return
	}
	r.head = strconv.AppendInt(append(r.head, "HTTP/1.1 "...), int64(r.status), 10)
	r.head = append(append(append(r.head, ' '), http.StatusText(r.status)...), "\r\n"...)
}

func (h *h1Answer) add(r *Request, name, value []byte) {
	r.head = append(append(r.head, name...), ": "...)
	r.head = append(append(r.head, value...), "\r\n"...)
}

func (h *h1Answer) send(r *Request, length int64, body bool) error {
	if r.status < 200 {
		r.head = append(r.head, crlf...)
		return h.put(r.head)
	}
	if !r.dated {
		r.head = append(r.head, r.s.now().h1...)
	}
	r.chunked = body && length < 0
	if r.chunked {
		r.head = append(r.head, "Transfer-Encoding: chunked\r\n"...)
	} else if length >= 0 {
		r.head = append(strconv.AppendInt(append(r.head, "Content-Length: "...), length, 10), crlf...)
	}
	if r.Last {
		r.head = append(r.head, "Connection: close\r\n"...)
	}
	r.head = append(r.head, crlf...)
	return h.put(r.head)
}

func (h *h1Answer) write(r *Request, p []byte) error {
	if !r.chunked {
		return h.put(p)
	}
	var size [20]byte
	if err := h.put(append(strconv.AppendInt(size[:0], int64(len(p)), 16), crlf...)); err != nil {
		return err
	}
	if err := h.put(p); err != nil {
		return err
	}
	return h.put(crlf)
}

func (h *h1Answer) end(r *Request) error {
	if !r.chunked {
		return nil
	}
	return h.put([]byte("0\r\n\r\n"))
}

func (h *h1Answer) put(p []byte) error {
	for len(p) > 0 {
		if h.out == nil {
			h.out = outs.Get().(*[]byte)
			*h.out = (*h.out)[:0]
		}
		n := min(len(p), outSize-len(*h.out))
		*h.out = append(*h.out, p[:n]...)
		p = p[n:]
		if len(*h.out) == outSize {
			if err := h.flush(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (h *h1Answer) flush() error {
	if !(*h1)(h).flush() {
		return net.ErrClosed
	}
	return nil
}

func (h *h1Answer) body(*Request) ([]byte, error) { return nil, nil } // HTTP/1.1 requests have no body here

func (h *h1Answer) gone() (is bool) {
	s, ok := h.raw.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return false
	}
	err = raw.Control(func(fd uintptr) {
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
		n, err := unix.Poll(p, 0)
		is = err == nil && n > 0 && p[0].Revents&(unix.POLLRDHUP|unix.POLLHUP|unix.POLLERR|unix.POLLNVAL) != 0
	})
	return is || err != nil
}
