package proxy

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"slipway/internal/access"
	"slipway/internal/endpoint"
	"slipway/internal/fastpath"
	"slipway/internal/upstream"
)

// How long a program may take before the fast path looks whether the visitor is still there,
// and how often it looks from then on.
const (
	firstLook = 100 * time.Millisecond
	nextLook  = time.Second
)

// passing is a request that the fast path has passed on.
type passing struct {
	p     *Proxy
	q     *fastpath.Request
	begun time.Time
	limit time.Duration // for the first byte
	buf   *[]byte
	out   Passed
}

// Passed says what became of a request that was passed on.
type Passed struct {
	Taken  bool          // else nothing of it has been read or written
	Whole  bool          // all of the answer has been written
	Status int           // 0 where nothing was
	Bytes  int64         // of the body
	Page   bool          // the answer is an HTML page
	First  time.Duration // until the answer's first byte
}

// Passable reports whether a request may be given to Pass: its path is written as it is, and it
// carries no cookie that is not the program's business.
func Passable(q *fastpath.Request) bool {
	if bytes.IndexByte(q.Path, '%') >= 0 {
		return false
	}
	for _, f := range q.Fields {
		if upstream.Is(f.Name, "cookie") && bytes.Contains(f.Value, []byte(access.CookiePrefix)) {
			return false
		}
	}
	return true
}

// Pass answers a request with what a program says, as Serve does, without net/http. It takes
// none whose program has ended this moment. It returns an error as Serve does.
func (p *Proxy) Pass(q *fastpath.Request, to *endpoint.Endpoint, begun time.Time) (Passed, error) {
	c, err := to.Upstream.Get(context.Background(), false)
	if err != nil {
		return Passed{}, nil
	}
	x := passing{p: p, q: q, begun: begun, limit: p.firstByteOf(to), buf: heads.Get().(*[]byte)}
	defer func() { putHead(x.buf) }()
	err = x.run(c)
	return x.out, err
}

// run asks the program and answers, as Pass does.
func (x *passing) run(c *upstream.Conn) error {
	var h upstream.Head
	if err := x.ask(c, &h); err != nil {
		unread := c.Unread(err)
		c.Close()
		if unread {
			return nil // the program's end was closed before it read any of it
		}
		x.out.Taken = true
		if errors.Is(err, errVisitorGone) {
			return nil
		}
		return err
	}
	x.out.Taken = true
	x.out.First = time.Since(x.begun)
	if x.out.Whole = x.answer(c, &h); x.out.Whole {
		c.Put()
	} else {
		c.Close()
	}
	return nil
}

// told holds what a program is told of one connection's other end.
type told struct {
	host   string
	fields []byte
}

// request puts the head together that the program sees.
func (x *passing) request() []byte {
	q := x.q
	b := append((*x.buf)[:0], "GET "...)
	if q.Head {
		b = append((*x.buf)[:0], "HEAD "...)
	}
	b = append(append(b, q.Target...), " HTTP/1.1\r\nHost: "...)
	b = append(append(b, q.Host...), "\r\n"...)
	for _, f := range q.Fields {
		if hop(f.Name) || ours(f.Name) {
			continue
		}
		b = append(append(b, f.Name...), ": "...)
		b = append(append(b, f.Value...), "\r\n"...)
	}
	known, ok := q.Place.Told.(*told)
	if !ok || known.host != string(q.Host) {
		known = &told{host: string(q.Host)}
		addr := address(q.Remote.String())
		known.fields = appendWho(nil, addr, "https", known.host, forwardedField(addr, known.host, "https"))
		q.Place.Told = known
	}
	*x.buf = append(append(b, known.fields...), "\r\n"...)
	return *x.buf
}

var errVisitorGone = errors.New("the visitor has left")

// ask sends the request and reads the head of its answer.
func (x *passing) ask(c *upstream.Conn, h *upstream.Head) error {
	_ = c.SetReadDeadline(x.begun.Add(firstLook))
	if _, err := c.Write(x.request()); err != nil {
		return err
	}
	for n := 0; ; {
		err := c.ReadHead(h, x.q.Head)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			if err := x.look(c); err != nil {
				return err
			}
			if time.Since(x.begun) > x.limit {
				return ErrTimeout
			}
		case err != nil || h.Status >= 200:
			return err
		case n >= maxInformational:
			return errInformational
		default:
			n++
			if h.Status == http.StatusEarlyHints {
				b := append((*x.buf)[:0], "HTTP/1.1 103 Early Hints\r\n"...)
				for _, f := range h.Fields {
					if upstream.Is(f.Name, "link") {
						b = append(append(append(b, "Link: "...), f.Value...), "\r\n"...)
					}
				}
				*x.buf = append(b, "\r\n"...)
				if _, err := x.q.Write(*x.buf); err != nil {
					return errVisitorGone
				}
				if x.q.Flush() != nil {
					return errVisitorGone
				}
			}
		}
	}
}

// look sees to it that a program doesn't go on for a visitor who has left.
func (x *passing) look(c *upstream.Conn) error {
	if x.q.Gone() {
		return errVisitorGone
	}
	return c.SetReadDeadline(time.Now().Add(nextLook))
}

// answer passes the answer on, and reports whether all of it came and went.
func (x *passing) answer(c *upstream.Conn, h *upstream.Head) bool {
	chunked := h.Body && h.Length < 0
	*x.buf = x.head((*x.buf)[:0], h, chunked)
	x.out.Status = h.Status
	if _, err := x.q.Write(*x.buf); err != nil {
		return false
	}
	before := func() error {
		_ = c.SetReadDeadline(time.Now().Add(nextLook))
		return x.q.Flush()
	}
	for {
		part, err := c.Next(before)
		switch {
		case err == io.EOF:
			if chunked {
				_, err = x.q.Write([]byte("0\r\n\r\n"))
				return err == nil
			}
			return true
		case errors.Is(err, os.ErrDeadlineExceeded):
			if x.look(c) != nil {
				return false
			}
			continue
		case err != nil:
			return false // the visitor notices: the connection ends
		}
		x.out.Bytes += int64(len(part))
		if chunked {
			var size [24]byte
			if _, err = x.q.Write(append(strconv.AppendInt(size[:0], int64(len(part)), 16), "\r\n"...)); err != nil {
				return false
			}
		}
		if _, err = x.q.Write(part); err != nil {
			return false
		}
		if chunked {
			if _, err = x.q.Write([]byte("\r\n")); err != nil {
				return false
			}
		}
	}
}

// head puts the head of an answer together.
func (x *passing) head(b []byte, h *upstream.Head, chunked bool) []byte {
	b = appendStatus(b, h.Status)
	if x.p.AltSvc != "" {
		b = append(append(append(b, "Alt-Svc: "...), x.p.AltSvc...), "\r\n"...)
	}
	more, dated := connections(h.Fields), false
	for _, f := range h.Fields {
		if hop(f.Name) || serverField(f.Name) || upstream.Is(f.Name, "content-length") || len(more) > 0 && named(more, f.Name) {
			continue
		}
		switch len(f.Name) {
		case 4:
			dated = dated || upstream.Is(f.Name, "date")
		case 10:
			if upstream.Is(f.Name, "set-cookie") && x.p.strayCookie(string(f.Value), x.q.Place.Host) {
				continue
			}
		case 12:
			if upstream.Is(f.Name, "content-type") {
				if h.Status == http.StatusNotModified {
					continue
				}
				x.out.Page = h.Status == http.StatusOK && !x.q.Head && bytes.HasPrefix(f.Value, []byte("text/html"))
			}
		}
		b = append(append(b, f.Name...), ": "...)
		b = append(append(b, f.Value...), "\r\n"...)
	}
	if !dated {
		b = append(b, x.q.Date()...)
	}
	switch {
	case chunked:
		b = append(b, "Transfer-Encoding: chunked\r\n"...)
	case h.Length >= 0 && h.Status != http.StatusNoContent && h.Status != http.StatusNotModified:
		b = strconv.AppendInt(append(b, "Content-Length: "...), h.Length, 10)
		b = append(b, "\r\n"...)
	}
	if x.q.Last {
		b = append(b, "Connection: close\r\n"...)
	}
	return append(b, "\r\n"...)
}

func appendStatus(b []byte, status int) []byte {
	if status == http.StatusOK {
		return append(b, "HTTP/1.1 200 OK\r\n"...)
	}
	b = strconv.AppendInt(append(b, "HTTP/1.1 "...), int64(status), 10)
	return append(append(append(b, ' '), http.StatusText(status)...), "\r\n"...)
}

// Answer answers a request that Pass took, and hasn't answered, with what f writes.
func (o *Passed) Answer(q *fastpath.Request, f func(w http.ResponseWriter)) {
	w := &whole{header: http.Header{}}
	f(w)
	b := appendStatus(nil, w.status)
	for _, name := range slices.Sorted(maps.Keys(w.header)) {
		b = appendField(b, name, strings.Join(w.header[name], ", "))
	}
	b = append(b, q.Date()...)
	if q.Last {
		b = append(b, "Connection: close\r\n"...)
	}
	b = append(append(b, "\r\n"...), w.body...)
	o.Status, o.Bytes = w.status, int64(len(w.body))
	_, err := q.Write(b)
	o.Whole = err == nil
}

// whole takes an answer of ours.
type whole struct {
	header http.Header
	status int
	body   []byte
}

func (w *whole) Header() http.Header { return w.header }

func (w *whole) WriteHeader(status int) { w.status = status }

func (w *whole) Write(p []byte) (int, error) {
	w.body = append(w.body, p...)
	return len(p), nil
}
