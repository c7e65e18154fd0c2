package response

import (
	"io"
	"net/http"
	"sync/atomic"
	"time"
)

// Limits of Linger: in total, until the visitor sends more, and the same if the response ends only with the connection.
const (
	lingerTime  = 30 * time.Second
	lingerIdle  = 5 * time.Second
	lingerShort = 500 * time.Millisecond
)

// Linger answers a request with a handler and then discards what the handler left of the request's body, for a limited
// time. Otherwise closing the connection would reset it, and a visitor who is still sending would never read the
// response. HTTP/2 and HTTP/3 don't need it: there, a response may end before the request.
func Linger(w http.ResponseWriter, r *http.Request, answer http.HandlerFunc) {
	if r.ProtoMajor != 1 || r.ContentLength == 0 || r.Header.Get("Expect") != "" || r.Header.Get("Upgrade") != "" {
		answer(w, r) // with Expect, reading would ask for the body
		return
	}
	body := &rest{ReadCloser: r.Body}
	r.Body = body
	answer(w, r)
	if body.over.Load() {
		return
	}
	conn := http.NewResponseController(w)
	if conn.Flush() != nil {
		return
	}
	idle := lingerShort
	if w.Header().Get("Content-Length") != "" {
		idle = lingerIdle
	}
	var part [16 << 10]byte
	for until := time.Now().Add(lingerTime); time.Now().Before(until); {
		_ = conn.SetReadDeadline(time.Now().Add(idle))
		if _, err := body.Read(part[:]); err != nil {
			return
		}
	}
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
