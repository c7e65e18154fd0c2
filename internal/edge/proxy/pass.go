package proxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"slipway/internal/edge/access"
	"slipway/internal/edge/endpoint"
	"slipway/internal/edge/fastpath"
	"slipway/internal/edge/response"
	"slipway/internal/edge/upstream"
	"slipway/internal/platform/fair"
)

// Time until the first check that the visitor is still connected, and the interval of later checks.
const (
	firstLook = 100 * time.Millisecond
	nextLook  = time.Second
)

// passing is a request that the fast path forwards.
type passing struct {
	p     *Proxy
	q     *fastpath.Request
	begun time.Time
	asked time.Time     // when the request was sent
	limit time.Duration // time limit for the first byte
	buf   *[]byte
	out   Passed
}

// Passed describes the result of a forwarded request.
type Passed struct {
	Whole  bool          // the whole response was written
	Status int           // 0 if no response was written
	Bytes  int64         // size of the body
	Page   bool          // the response is an HTML page
	First  time.Duration // time to the first byte

	Request string // the request's id, which the program got; on our error page, its id
}

// Passable reports whether Pass can handle a request: its path needs no escaping, and it carries none of our own
// cookies.
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

// Pass forwards a request to a program without net/http, with the result of [Proxy.Serve]. who is counted among the
// requests that share connections.
func (p *Proxy) Pass(q *fastpath.Request, to *endpoint.Endpoint, who fair.Who, begun time.Time) (Passed, error) {
	if q.Shares {
		done, ok := p.shared.Try(who)
		if !ok {
			var out Passed
			out.Answer(q, func(w http.ResponseWriter) {
				response.Page(w, &http.Request{Method: q.Method, Header: http.Header{}}, response.PageOverloaded)
			})
			return out, nil
		}
		defer done()
	}
	x := passing{p: p, q: q, begun: begun, limit: p.firstByteOf(to), buf: heads.Get().(*[]byte)}
	defer func() { putHead(x.buf) }()
	body, err := q.Body()
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		x.out.Answer(q, func(w http.ResponseWriter) {
			response.Fail(w, &http.Request{Method: q.Method, Header: http.Header{}}, http.StatusRequestTimeout)
		})
		return x.out, nil
	case err != nil:
		return x.out, nil // the visitor has left
	}
	text := x.request(body)
	resend := upstream.Idempotent(q.Method) || len(text) <= atOnce
	for fresh, repeated := !resend, false; ; fresh = true {
		c, err := to.Upstream.Get(context.Background(), fresh)
		if err != nil {
			return x.out, fmt.Errorf("%w: %w", ErrUnreached, err)
		}
		again, err := x.run(c, text, resend, &repeated)
		if again {
			continue
		}
		return x.out, err
	}
}

// atOnce is the request size, in bytes, that programs read in one piece or not at all: if a kept connection was just
// closed, nothing of such a request was read. Longer requests that may not be repeated get a new connection.
const atOnce = 4 << 10

// run sends the request and forwards the response, as [Proxy.Pass] does. resend says that the request may be repeated
// (see [upstream.Conn.Again]); again tells the caller to repeat it.
func (x *passing) run(c *upstream.Conn, text []byte, resend bool, repeated *bool) (again bool, err error) {
	var h upstream.Head
	if err := x.ask(c, text, &h); err != nil {
		gone := errors.Is(err, errVisitorGone)
		again := !gone && resend && c.Again(err, x.q.Method, repeated)
		c.Close()
		if gone {
			return false, nil
		}
		return again, err
	}
	x.out.First = time.Since(x.begun)
	x.out.Whole = x.answer(c, &h)
	if x.out.Whole {
		c.Put()
	} else {
		c.Close()
	}
	return false, nil
}

// told caches what programs are told about a connection's client.
type told struct {
	host   string
	fields []byte
}

// request assembles the request for the program.
func (x *passing) request(body []byte) []byte {
	q := x.q
	b := append(append((*x.buf)[:0], q.Method...), ' ')
	b = append(append(b, q.Target...), " HTTP/1.1\r\nHost: "...)
	b = append(append(b, q.Host...), "\r\n"...)
	for _, f := range q.Fields {
		if !toProgram(f.Name) || claims(x.p, f.Name) {
			continue
		}
		b = append(append(b, f.Name...), ": "...)
		b = append(append(b, f.Value...), "\r\n"...)
	}
	b = appendLength(b, q.Method, q.Length)
	known, ok := q.Place.Told.Load().(*told)
	if !ok || known.host != string(q.Host) {
		known = &told{host: string(q.Host)}
		addr := address(q.Remote.String())
		known.fields = appendWho(nil, addr, "https", known.host, forwardedField(addr, known.host, "https"))
		q.Place.Told.Store(known)
	}
	x.out.Request = response.NewID()
	b = appendField(append(b, known.fields...), response.RequestField, x.out.Request)
	*x.buf = append(append(b, "\r\n"...), body...)
	return *x.buf
}

var errVisitorGone = errors.New("the visitor has left")

// ask sends the request and reads the response header.
func (x *passing) ask(c *upstream.Conn, text []byte, h *upstream.Head) error {
	x.asked = time.Now()
	_ = c.SetWriteDeadline(x.asked.Add(x.limit))
	_ = c.SetReadDeadline(x.asked.Add(firstLook))
	if _, err := c.Write(text); errors.Is(err, os.ErrDeadlineExceeded) {
		return ErrTimeout
	} else if err != nil {
		return err
	}
	for n := 0; ; {
		err := c.ReadHead(h, x.q.Method == http.MethodHead)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			if err := x.look(c); err != nil {
				return err
			}
			if time.Since(x.asked) > x.limit {
				return ErrTimeout
			}
		case err != nil || h.Status >= 200:
			return err
		case n >= maxInformational:
			return errInformational
		default:
			n++
			if h.Status == http.StatusEarlyHints {
				x.q.Begin(h.Status)
				for _, f := range h.Fields {
					if upstream.Is(f.Name, "link") {
						x.q.Add(f.Name, f.Value)
					}
				}
				if x.q.Send(-1, false) != nil || x.q.Flush() != nil {
					return errVisitorGone
				}
			}
		}
	}
}

// look aborts the program's request if the visitor has left.
func (x *passing) look(c *upstream.Conn) error {
	if x.q.Gone() {
		return errVisitorGone
	}
	return c.SetReadDeadline(time.Now().Add(nextLook))
}

// answer forwards the response and reports whether all of it was received and sent.
func (x *passing) answer(c *upstream.Conn, h *upstream.Head) bool {
	x.out.Status = h.Status
	x.head(h)
	length := h.Length
	if h.Status == http.StatusNoContent || h.Status == http.StatusNotModified {
		length = -1
	}
	if x.q.Send(length, h.Body) != nil {
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
			return true
		case errors.Is(err, os.ErrDeadlineExceeded):
			if x.look(c) != nil {
				return false
			}
			continue
		case err != nil:
			return false // the visitor sees an incomplete response
		}
		x.out.Bytes += int64(len(part))
		if _, err = x.q.Write(part); err != nil {
			return false
		}
	}
}

var altSvc = []byte("Alt-Svc")

// head writes the status and headers of the response.
func (x *passing) head(h *upstream.Head) {
	x.q.Begin(h.Status)
	if len(x.p.altSvc) > 0 {
		x.q.Add(altSvc, x.p.altSvc)
	}
	more := connections(h.Fields)
	for _, f := range h.Fields {
		if !x.p.toVisitor(f, more, x.q.Place.Host) {
			continue
		}
		if upstream.Is(f.Name, "content-type") {
			if h.Status == http.StatusNotModified {
				continue
			}
			x.out.Page = h.Status == http.StatusOK && x.q.Method == http.MethodGet && bytes.HasPrefix(f.Value, []byte("text/html"))
		}
		x.q.Add(f.Name, f.Value)
	}
}

// Answer answers with what f writes, if Pass wrote no response.
func (o *Passed) Answer(q *fastpath.Request, f func(w http.ResponseWriter)) {
	w := &whole{header: http.Header{}}
	f(w)
	q.Begin(w.status)
	for _, name := range slices.Sorted(maps.Keys(w.header)) {
		if name != "Content-Length" {
			q.AddString(name, strings.Join(w.header[name], ", "))
		}
	}
	length, err := strconv.ParseInt(w.header.Get("Content-Length"), 10, 64)
	if err != nil {
		length = int64(len(w.body))
	}
	o.Status, o.Bytes, o.Request = w.status, int64(len(w.body)), w.header.Get(response.RequestField)
	if err = q.Send(length, o.Bytes > 0); err == nil {
		_, err = q.Write(w.body)
	}
	o.Whole = err == nil
}

// whole collects a response of ours.
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
