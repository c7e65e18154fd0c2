package edge

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"slipway/internal/fastpath"
	"slipway/internal/upstream"
)

// hostPasses reports whether requests for a host are passed on to a program by the fast path.
func (e *Edge) hostPasses(host string) bool {
	t := e.leads(host).program()
	return !e.control[host] && t != nil && !e.paged(t)
}

// passes reports the same of a connection.
func (e *Edge) passes(at *fastpath.Place) bool {
	t := e.wayOf(at).program()
	return t != nil && !e.paged(t)
}

// How long a program may take before the fast path looks whether the visitor is still there,
// and how often it looks from then on.
const (
	firstLook = 100 * time.Millisecond
	nextLook  = time.Second
)

// pass answers a request with what a program says, as program does, without net/http. It
// leaves to net/http what is anybody else's: files, a program that sleeps, pages of ours
// before the program was asked.
func (e *Edge) pass(q *fastpath.Request) (taken, ok bool) {
	t := e.wayOf(q.Place).program()
	if t == nil || bytes.IndexByte(q.Path, '%') >= 0 {
		return false, false
	}
	for _, f := range q.Fields {
		if upstream.Is(f.Name, "cookie") && bytes.Contains(f.Value, []byte(ourCookies)) {
			return false, false
		}
	}
	if t.release != "" && len(q.Path) > 1 {
		if _, ok := e.findAsset(context.Background(), t, string(q.Path[1:])); ok {
			return false, false
		}
	}
	begun := time.Now()
	p, awake := e.Awake(t.deployment)
	if !awake {
		return false, false
	}
	defer p.Release()
	if p.Upstream == nil || p.Serve != nil {
		return false, false
	}
	c, err := p.Upstream.Get(context.Background(), false)
	if err != nil {
		return false, false // it has ended this moment
	}
	x := passing{e: e, q: q, t: t, begun: begun, limit: e.firstByteOf(p), buf: heads.Get().(*[]byte)}
	defer func() { putHead(x.buf) }()
	if taken, ok = x.run(p, c); taken {
		e.passed(&x, p)
	}
	return taken, ok
}

// passing is a request that the fast path has passed on.
type passing struct {
	e     *Edge
	q     *fastpath.Request
	t     *target
	begun time.Time
	limit time.Duration // for the first byte
	buf   *[]byte

	first  time.Duration // until the answer's first byte
	status int
	bytes  int64
	page   bool
}

// passed counts an answer.
func (e *Edge) passed(x *passing, p Program) {
	e.metrics.answered(x.status, x.bytes)
	if x.status == 0 {
		return
	}
	if p.Answered != nil {
		p.Answered(x.status, x.bytes, cmp.Or(x.first, time.Since(x.begun)))
	}
	if x.t.visits == nil {
		return
	}
	shown := x.page && x.status == http.StatusOK
	line := Line{Method: http.MethodGet, Protocol: "HTTP/1.1", Status: x.status, Bytes: x.bytes}
	if x.q.Head {
		line.Method = http.MethodHead
	}
	from := ""
	for _, f := range x.q.Fields {
		switch {
		case upstream.Is(f.Name, "user-agent"):
			line.Agent = string(f.Value)
		case upstream.Is(f.Name, "referer"):
			from = string(f.Value)
		}
	}
	e.visitOf(x.t, x.q.Place.Host, string(x.q.Path), shown, from, func() client {
		if c, ok := x.q.Place.Client.(*client); ok {
			return *c
		}
		c := e.clientOf(x.q.Remote.String())
		x.q.Place.Client = &c
		return c
	}, line)
	e.visited.count(x.t.visits, x.status, x.bytes, shown)
}

// run asks the program and answers, as pass does.
func (x *passing) run(p Program, c *upstream.Conn) (taken, ok bool) {
	var h upstream.Head
	if err := x.ask(c, &h); err != nil {
		unread := c.Unread(err)
		c.Close()
		if unread {
			return false, false // the program's end was closed before it read any of it
		}
		return true, x.failed(err)
	}
	x.first = time.Since(x.begun)
	if !x.answer(c, &h) {
		c.Close()
		return true, false
	}
	c.Put()
	return true, true
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
				return errFirstByte
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
	x.status = h.Status
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
		x.bytes += int64(len(part))
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
	if x.e.altSvc != nil {
		b = append(append(append(b, "Alt-Svc: "...), x.e.altSvc[0]...), "\r\n"...)
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
			if upstream.Is(f.Name, "set-cookie") && x.e.strayCookie(string(f.Value), x.q.Place.Host) {
				continue
			}
		case 12:
			if upstream.Is(f.Name, "content-type") {
				if h.Status == http.StatusNotModified {
					continue
				}
				x.page = h.Status == http.StatusOK && !x.q.Head && bytes.HasPrefix(f.Value, []byte("text/html"))
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

// failed answers for a program that didn't.
func (x *passing) failed(err error) bool {
	if errors.Is(err, errVisitorGone) {
		return false
	}
	x.e.Log.Debug("application did not answer", "site", x.t.site, "err", err)
	n := pageCrashed
	if errors.Is(err, errFirstByte) {
		n = pageTimeout
	}
	method := http.MethodGet
	if x.q.Head {
		method = http.MethodHead
	}
	w := &whole{header: http.Header{}}
	x.e.offer(w.header, 1)
	x.e.sitePage(&recorder{ResponseWriter: w}, &http.Request{Method: method, Header: http.Header{}}, x.t, n)
	b := appendStatus((*x.buf)[:0], w.status)
	names := make([]string, 0, len(w.header))
	for name := range w.header {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		b = appendField(b, name, strings.Join(w.header[name], ", "))
	}
	b = append(b, x.q.Date()...)
	if x.q.Last {
		b = append(b, "Connection: close\r\n"...)
	}
	*x.buf = append(append(b, "\r\n"...), w.body...)
	x.status, x.bytes = w.status, int64(len(w.body))
	_, err = x.q.Write(*x.buf)
	return err == nil
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
