package fastpath

import (
	"bytes"
	"net"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Field is one header field of a request, as it was sent but for the spaces around its value.
type Field struct{ Name, Value []byte }

// Request is one without a ready answer that Config.Pass may answer by itself: GET or HEAD
// over HTTP/1.1, without a body, for the host that TLS was made for. What it holds stands
// until Pass returns.
type Request struct {
	Place  *Place
	Remote net.Addr
	Head   bool    // the method is HEAD, else GET
	Target []byte  // path and query
	Path   []byte  // without the query
	Host   []byte  // as it was sent
	Fields []Field // without Host and Connection
	Last   bool    // the answer is to say that it is its connection's last; Pass may set it
	h      *h1
}

// maxRequestFields is how many fields a request may have here; net/http takes more.
const maxRequestFields = 100

// targetChar holds the characters that a path and its query may have here.
var targetChar = func() (t [256]bool) {
	t = pathChar
	for _, c := range []byte("?[]") {
		t[c] = true
	}
	return t
}()

// parsePass reads a request's header, which ends in an empty line, and reports whether it is
// one for Config.Pass. Everything that it doesn't know to be harmless, or that could say
// where the request ends, leaves the request to net/http, which reads the same bytes.
func (h *h1) parsePass(r *Request, b []byte) bool {
	*r = Request{Place: &h.place, Remote: h.sent.Remote, Fields: r.Fields[:0], h: h}
	line, rest, _ := bytes.Cut(b, crlf)
	if target, found := bytes.CutPrefix(line, []byte("GET ")); found {
		line = target
	} else if target, found := bytes.CutPrefix(line, []byte("HEAD ")); found {
		line, r.Head = target, true
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
			if hosts++; hosts > 1 || !h.isHost(f.Value) {
				return false
			}
			r.Host = f.Value
			continue
		case fieldConnection:
			if connections++; connections > 1 {
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

// passes tells the fields that change what is answered, which whoever answers knows, from
// those that change how messages are read.
func passes(name []byte) bool {
	switch len(name) {
	case 5:
		return equal(name, "range")
	case 13:
		return equal(name, "authorization")
	}
	return len(name) > 3 && name[0]|0x20 == 'i' && name[1]|0x20 == 'f' && name[2] == '-'
}

// share: total one for each request that is read; owner see connlimit; edge more are made
var requests = sync.Pool{New: func() any { return new(Request) }}

// tryPass lets Config.Pass answer. taken is false where it leaves the request to net/http;
// more is false where the connection is over.
func (h *h1) tryPass(b []byte) (taken, more bool) {
	r := requests.Get().(*Request)
	defer func() {
		clear(r.Fields)
		*r = Request{Fields: r.Fields[:0]}
		requests.Put(r)
	}()
	if !h.parsePass(r, b) {
		return false, false
	}
	r.Last = r.Last || h.drained.Load() || h.s.Draining()
	h.passing.Store(true)
	defer h.passing.Store(false)
	taken, ok := h.s.Pass(r)
	if taken && (r.Last || !ok) {
		h.last = h.flush() && ok
		return true, false
	}
	return taken, ok
}

// Write adds to the answer, which goes out when there is a record's worth of it, with Flush,
// or when no further request has been read.
func (r *Request) Write(p []byte) (int, error) {
	h, all := r.h, len(p)
	for len(p) > 0 {
		if h.out == nil {
			h.out = outs.Get().(*[]byte)
			*h.out = (*h.out)[:0]
		}
		n := min(len(p), outSize-len(*h.out))
		*h.out = append(*h.out, p[:n]...)
		if p = p[n:]; len(*h.out) == outSize && !h.flush() {
			return 0, net.ErrClosed
		}
	}
	return all, nil
}

// Flush sends what was written.
func (r *Request) Flush() error {
	if !r.h.flush() {
		return net.ErrClosed
	}
	return nil
}

// Date returns the Date field of this second, as a line.
func (r *Request) Date() []byte { return r.h.s.now().h1 }

// Gone reports whether the other end has closed the connection, or its half of it. It reads
// nothing.
func (r *Request) Gone() (is bool) {
	s, ok := r.h.raw.(syscall.Conn)
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
