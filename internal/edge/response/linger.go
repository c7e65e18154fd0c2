package response

import (
	"io"
	"net/http"
	"sync/atomic"
	"time"
)

// patience limits Linger.
type patience struct {
	total time.Duration
	idle  time.Duration // until the visitor sends more
	short time.Duration // the same if the response doesn't end before
}

var usual = patience{30 * time.Second, 5 * time.Second, 500 * time.Millisecond}

// Linger answers a request with a handler and then discards what the handler left of the request's body, for a limited
// time. Otherwise closing the connection would reset it, and a visitor who is still sending would never read the
// response. HTTP/2 and HTTP/3 don't need it: there, a response may end before the request.
func Linger(w http.ResponseWriter, r *http.Request, answer http.HandlerFunc) {
	usual.linger(w, r, answer)
}

func (p patience) linger(w http.ResponseWriter, r *http.Request, answer http.HandlerFunc) {
	if r.ProtoMajor != 1 || r.ContentLength == 0 || r.Header.Get("Expect") != "" || r.Header.Get("Upgrade") != "" {
		answer(w, r) // with Expect, reading would ask for the body
		return
	}
	body := &rest{ReadCloser: r.Body}
	q := *r // net/http looks at the body of its own request
	q.Body = body
	answer(w, &q)
	if body.over.Load() {
		return
	}
	conn := http.NewResponseController(w)
	if conn.Flush() != nil {
		return
	}
	known := w.Header().Get("Content-Length") != ""
	idle := p.short
	if known {
		idle = p.idle
	}
	var part [16 << 10]byte
	for until := time.Now().Add(p.total); time.Now().Before(until); {
		_ = conn.SetReadDeadline(time.Now().Add(idle))
		if _, err := body.Read(part[:]); err != nil {
			break
		}
	}
	if body.over.Load() {
		return
	}
	// What is left must not be read as the next request.
	c, buf, err := conn.Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if !known && r.ProtoAtLeast(1, 1) && r.Method != http.MethodHead {
		_, _ = buf.WriteString("0\r\n\r\n") // the last chunk
		_ = buf.Flush()
	}
	_ = c.Close()
}

// rest is a request body that knows whether something of it is left.
type rest struct {
	io.ReadCloser
	over atomic.Bool // read to its end, or closed
}

func (b *rest) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF {
		b.over.Store(true)
	}
	return n, err
}

func (b *rest) Close() error {
	b.over.Store(true)
	return b.ReadCloser.Close()
}
