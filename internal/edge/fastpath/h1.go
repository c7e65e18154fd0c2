package fastpath

import (
	"bytes"
	"cmp"
	"io"
	"net"
	"time"
)

// maxH1 is the largest request header served here, in bytes; net/http has its own limit.
const maxH1 = 8 << 10

// serveH1 answers plain requests of an HTTP/1.1 connection. It hands the connection to net/http at the first other
// request.
func serveH1(c *conn) {
	h := &h1{conn: c}
	defer h.release()
	if read, give := h.run(); give {
		c.leaving.Lock()
		c.left = true // a shutdown from now on must not wake net/http's reader
		c.raw.SetDeadline(time.Time{})
		c.leaving.Unlock()
		rest := bytes.Clone(read)
		h.release()
		c.idling(false)
		c.s.toH1.give(&handed{Conn: c.tls, read: rest, state: c.state, below: c.raw})
		return
	}
	c.end(h.last)
}

type h1 struct {
	*conn
	first [256]byte // read buffer of an idle connection
	in    *[]byte
	n     int // bytes used in in
	out   *[]byte
	late  time.Time // deadline of the header; zero if unset
	last  bool      // the client knows that no response follows
}

func (h *h1) release() {
	if h.in != nil {
		ins.Put(h.in)
	}
	if h.out != nil {
		outs.Put(h.out)
	}
	h.in, h.out, h.n = nil, nil, 0
}

// run serves until the connection ends; then give is false. If a request isn't plain, give is true and read holds its
// bytes for net/http.
func (h *h1) run() (read []byte, give bool) {
	for {
		if h.n == 0 && !h.wait() {
			return nil, false
		}
		b := (*h.in)[:h.n]
		end := bytes.Index(b, crlfcrlf)
		if end < 0 {
			if odd(b) {
				return h.leave()
			}
			switch err := h.more(); err {
			case nil:
			case io.EOF: // net/http reports it
				return h.leave()
			default:
				return nil, false
			}
			continue
		}
		if h.s.Hosts.Passes(&h.place) {
			taken, more := h.tryPass(b[:end+4])
			if !taken {
				return h.leave()
			}
			if !more {
				return nil, false
			}
			h.n, h.late = copy(*h.in, b[end+4:]), time.Time{}
			continue
		}
		r, ok := h.parseH1(b[:end+4])
		if !ok {
			return h.leave()
		}
		a := h.s.Hosts.Find(&h.place, r.path, r.accepts)
		if a == nil {
			return h.leave()
		}
		head, body, ok := r.pick(a)
		if !ok || !h.s.Hosts.Admit(&h.place, len(body)) {
			return h.leave()
		}
		last := r.close || h.drained.Load() || h.s.Draining.Load()
		if !h.answer(a, &r, head, body, last) {
			return nil, false
		}
		h.n, h.late = copy(*h.in, b[end+4:]), time.Time{}
		if last {
			h.last = h.flush()
			return nil, false
		}
	}
}

// odd reports whether the start of a header can't become a plain request, so that net/http can refuse it at once.
func odd(b []byte) bool {
	if b[0] != 'G' && b[0] != 'H' || len(b) >= maxH1 {
		return true
	}
	for i, ch := range b {
		if ch == '\n' && b[i-1] != '\r' {
			return true
		}
	}
	return false
}

// wait reads the first bytes of a request. Meanwhile it holds no buffer.
func (h *h1) wait() bool {
	if !h.flush() {
		return false
	}
	h.release()
	// The cookies point into the returned buffer.
	clear(h.cookies[:cap(h.cookies)])
	if now := time.Now(); h.readBy.Sub(now) < h.s.IdleTime*3/4 { // moving the deadline is expensive
		h.readBy = now.Add(h.s.IdleTime)
		h.raw.SetReadDeadline(h.readBy)
	}
	if h.drained.Load() && !h.fresh.Load() { // wakeUp's deadline may just have been overwritten
		return false
	}
	h.idling(true)
	n, _ := h.tls.Read(h.first[:])
	h.idling(false)
	if n == 0 {
		return false
	}
	if h.fresh.Load() {
		h.fresh.Store(false)
	}
	h.in = ins.Get().(*[]byte)
	h.n = copy(*h.in, h.first[:n])
	h.late = time.Time{}
	return true
}

// more reads more of a request's header, until its deadline.
func (h *h1) more() error {
	if !h.flush() {
		return net.ErrClosed
	}
	if h.late.IsZero() {
		h.late = time.Now().Add(h.s.HeaderTime)
		h.readBy = time.Time{}
		h.raw.SetReadDeadline(h.late)
	}
	n, err := h.tls.Read((*h.in)[h.n:])
	h.n += n
	if n > 0 {
		return nil
	}
	if ne, ok := err.(net.Error); ok && ne.Timeout() && time.Now().Before(h.late) {
		// Shutdown caused the timeout, but a started request is still answered.
		h.raw.SetReadDeadline(h.late)
		return nil
	}
	return cmp.Or(err, io.EOF)
}

// leave returns the unread bytes and hands the connection over.
func (h *h1) leave() ([]byte, bool) {
	if !h.flush() {
		return nil, false
	}
	return (*h.in)[:h.n], true
}

// answer adds a response to the batch, or sends it if it is large.
func (h *h1) answer(a *Answer, r *plain, head *head, body []byte, last bool) bool {
	date := h.s.now().h1
	const closing = "Connection: close\r\n"
	size := len(body)
	h.served(a, r, head, size) // count it even if the write fails: it was admitted
	need := len(head.h1) + len(date) + len(closing) + len(crlf)
	if h.out != nil && len(*h.out)+need+min(len(body), 4096) > outSize && !h.flush() {
		return false
	}
	if h.out == nil {
		h.out = outs.Get().(*[]byte)
		*h.out = (*h.out)[:0]
	}
	out := append(append(*h.out, head.h1...), date...)
	if last {
		out = append(out, closing...)
	}
	out = append(out, crlf...)
	n := min(size, outSize-len(out))
	out = append(out, body[:n]...)
	*h.out = out
	if n == size {
		return true
	}
	h.within(size)
	if _, err := h.tls.Write(out); err != nil {
		return false
	}
	*h.out = out[:0]
	_, err := h.tls.Write(body[n:])
	return err == nil
}

func (h *h1) flush() bool {
	if h.out == nil || len(*h.out) == 0 {
		return true
	}
	h.within(0)
	_, err := h.tls.Write(*h.out)
	*h.out = (*h.out)[:0]
	return err == nil
}
