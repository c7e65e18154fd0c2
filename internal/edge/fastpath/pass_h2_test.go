//lint:file-ignore SA1019 the client under the test is x/net/http2 itself, with its own settings

package fastpath

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// passed is a server that passes every request on to the behavior that the path names.
type passed struct {
	*world
	requests atomic.Int64
	running  sync.WaitGroup
	waiting  chan struct{}          // a request has reached /wait or /held
	bodies   chan error             // results of Body
	held     chan struct{}          // lets /held continue
	left     chan struct{}          // a request at /wait has noticed that its visitor left
	told     atomic.Pointer[string] // fields of the last request
}

func startPassing(t *testing.T, change ...func(*Config)) *passed {
	p := &passed{
		waiting: make(chan struct{}, 2000),
		bodies:  make(chan error, 200),
		held:    make(chan struct{}),
		left:    make(chan struct{}, 200),
	}
	p.world = start(t, append([]func(*Config){func(c *Config) {
		c.Hosts.(*hosts).pass = func(r *Request) func() bool {
			if bytes.HasPrefix(r.Path, []byte("/leave")) || bytes.Equal(r.Path, []byte("/small")) {
				return nil
			}
			p.requests.Add(1)
			p.running.Add(1)
			return func() bool {
				defer p.running.Done()
				return p.answer(r)
			}
		}
	}}, change...)...)
	return p
}

func (p *passed) answer(r *Request) bool {
	var text strings.Builder
	for _, f := range r.Fields {
		fmt.Fprintf(&text, "%s: %s\n", f.Name, f.Value)
	}
	fields := text.String()
	p.told.Store(&fields)
	switch string(r.Path) {
	case "/early":
		r.Begin(http.StatusForbidden)
		return r.Send(5, true) == nil && write(r, "early")
	case "/panic":
		panic("on purpose")
	case "/half":
		r.Begin(http.StatusOK)
		return r.Send(10, true) == nil && write(r, "half")
	case "/short": // claims to be complete, but isn't
		r.Begin(http.StatusOK)
		return r.Send(10, true) == nil && write(r, "short")
	case "/long":
		r.Begin(http.StatusOK)
		return r.Send(3, true) == nil && write(r, "too long")
	case "/wait":
		p.waiting <- struct{}{}
		for !r.Gone() {
			time.Sleep(time.Millisecond) // polls Gone, as code that waits for a program does
		}
		p.left <- struct{}{}
		return false
	case "/held":
		p.waiting <- struct{}{}
		<-p.held
	case "/hint":
		r.Begin(http.StatusEarlyHints)
		r.AddString("Link", "</a.css>; rel=preload")
		if r.Send(-1, false) != nil || r.Flush() != nil {
			return false
		}
	}
	body, err := r.Body()
	if r.Length > 0 {
		p.bodies <- err
	}
	if err != nil {
		return false
	}
	r.Begin(http.StatusOK)
	r.AddString("X-Method", r.Method)
	r.AddString("ETAG", `"x"`)
	if bytes.HasPrefix(r.Path, []byte("/stream")) {
		if r.Send(-1, true) != nil {
			return false
		}
		for range 64 {
			if !write(r, large[:16<<10]) {
				return false
			}
			if r.Flush() != nil {
				return false
			}
		}
		return true
	}
	out := append([]byte("passed "), body...)
	if bytes.HasPrefix(r.Path, []byte("/large")) {
		out = []byte(large)
	}
	if r.Method == http.MethodHead {
		return r.Send(int64(len(out)), false) == nil
	}
	if r.Send(int64(len(out)), true) != nil {
		return false
	}
	_, err = r.Write(out)
	return err == nil
}

func (p *passed) client() *http.Client {
	return &http.Client{
		Transport: &http2.Transport{DialTLSContext: func(ctx context.Context, network, _ string, _ *tls.Config) (net.Conn, error) {
			d := tls.Dialer{Config: &tls.Config{ServerName: site, InsecureSkipVerify: true, NextProtos: []string{"h2"}}}
			return d.DialContext(ctx, network, p.fast)
		}},
	}
}

// Requests of all kinds share one connection with requests that net/http answers.
func TestPassHTTP2(t *testing.T) {
	t.Parallel()
	p := startPassing(t)
	client := p.client()
	defer client.CloseIdleConnections()
	var all sync.WaitGroup
	for i := range 300 {
		all.Go(func() {
			for _, tt := range []struct {
				method, path, body, want string
				fails                    bool
			}{
				{"GET", "/a", "", "passed ", false},
				{"HEAD", "/a", "", "", false},
				{"POST", "/a?b=c", "a body", "passed a body", false},
				{"PUT", "/a", large[:4<<10], "passed " + large[:4<<10], false},
				{"DELETE", "/a", "", "passed ", false},
				{"GET", "/large", "", large, false},
				{"GET", "/stream", "", strings.Repeat(large[:16<<10], 64), false},
				{"GET", "/hint", "", "passed ", false},
				{"GET", "/leave", "", "status /leave\n", false},
				{"POST", "/leave", "12345", "5 bytes, trailer \"\"", false},
				{"POST", "/a", strings.Repeat("x", maxPassed+1), fmt.Sprintf("%d bytes, trailer \"\"", maxPassed+1), false},
				{"GET", "/half", "", "", true},
				{"GET", "/short", "", "", true},
				{"GET", "/long", "", "", true},
				{"GET", "/panic", "", "", true},
			}[i%15:][:1] {
				req, err := http.NewRequestWithContext(t.Context(), tt.method, "https://"+site+tt.path, strings.NewReader(tt.body))
				if err != nil {
					t.Error(err)
					return
				}
				resp, err := client.Do(req)
				got := reply{}
				if err == nil {
					got, err = read(resp)
				}
				if tt.fails != (err != nil) {
					t.Errorf("%s %s: %v", tt.method, tt.path, err)
				}
				if err == nil && (got.body != tt.want || got.proto != "HTTP/2.0") {
					t.Errorf("%s %s: %d %.60q, want %.60q", tt.method, tt.path, got.status, got.body, tt.want)
				}
			}
		})
	}
	all.Wait()
	p.running.Wait() // wait until they end
	if p.handled.Load() == 0 || p.requests.Load() == 0 {
		t.Error("requests went one way alone")
	}
}

// Ambiguous requests, and those that concern the connection itself, are left to net/http.
func TestPassHTTP2Refuses(t *testing.T) {
	t.Parallel()
	p := startPassing(t)
	type block struct {
		fields []string
		end    bool
	}
	with := func(more ...string) []string { return fieldsOf("GET", "/", more...) }
	for i, tt := range []block{
		{[]string{":method", "GET", ":scheme", "http", ":authority", site, ":path", "/"}, true},
		{[]string{":method", "GET", ":scheme", "https", ":authority", "other.test", ":path", "/"}, true},
		{[]string{":method", "GET", ":scheme", "https", ":path", "/"}, true},
		{[]string{":method", "GET", ":scheme", "https", ":authority", site}, true},
		{[]string{":method", "GET", ":method", "GET", ":scheme", "https", ":authority", site, ":path", "/"}, true},
		{[]string{":method", "GET", "a", "b", ":scheme", "https", ":authority", site, ":path", "/"}, true},
		{fieldsOf("GET", "*"), true},
		{fieldsOf("GET", "/a b"), true},
		{fieldsOf("GET", "/a#b"), true},
		{fieldsOf("GET", "/a\xff"), true},
		{fieldsOf("CONNECT", "/"), true},
		{fieldsOf("BREW", "/"), true},
		{with("host", site), true},
		{with("connection", "close"), true},
		{with("transfer-encoding", "chunked"), true},
		{with("te", "gzip"), true},
		{with("te", "trailers", "content-type", "application/grpc"), true},
		{[]string{":method", "POST", ":scheme", "https", "content-length", "5", ":authority", site, ":path", "/"}, false},
		{with("expect", "100-continue"), true},
		{with("upgrade", "websocket"), true},
		{with("Upper", "case"), true},
		{with("a", "b\r\nc: d"), true},
		{with("a b", "c"), true},
		{with("content-length", "0"), true},
		{with("content-length", "5"), true},
		{fieldsOf("POST", "/", "content-length", "5"), true},
		{fieldsOf("POST", "/", "content-length", "5", "content-length", "5"), false},
		{fieldsOf("POST", "/", "content-length", "+5"), false},
		{fieldsOf("POST", "/", "content-length", "99999"), false},
		{fieldsOf("POST", "/", "content-length", ""), false},
		{fieldsOf("POST", "/"), false},
		{fieldsOf("GET", "/", "content-length", "5"), false},
	} {
		r := dialH2(t, p.fast)
		r.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: r.block(tt.fields...), EndStream: tt.end, EndHeaders: true})
		r.WriteRSTStream(1, http2.ErrCodeCancel)
		r.WritePing(false, [8]byte{1})
		r.listen(func(h *heard) bool { return h.pings > 0 || h.goAway != nil })
		r.conn.Close()
		if p.requests.Load() != 0 {
			t.Fatalf("%d: passed on: %q", i, tt.fields)
		}
	}
	r := dialH2(t, p.fast)
	r.get(1, "/", "te", "trailers", "cookie", "a=b", "x", "y", "cookie", "c=d", "cookie", "e=f", "range", "bytes=0-1")
	r.listen(func(h *heard) bool { return h.ended[1] })
	if told := *p.told.Load(); told != "cookie: a=b; c=d; e=f\nx: y\nrange: bytes=0-1\n" {
		t.Errorf("cookies are one field behind this: %q", told)
	}
}

// Bodies are passed on as they arrive. An invalid body ends only its own stream.
func TestPassHTTP2Bodies(t *testing.T) {
	t.Parallel()
	p := startPassing(t, func(c *Config) { c.WriteTime = 500 * time.Millisecond })
	r := dialH2(t, p.fast)
	id := uint32(1)
	post := func(path, length string, more ...string) uint32 {
		defer func() { id += 2 }()
		r.WriteHeaders(http2.HeadersFrameParam{
			StreamID:      id,
			BlockFragment: r.block(fieldsOf("POST", path, append([]string{"content-length", length}, more...)...)...),
			EndHeaders:    true,
		})
		return id
	}
	said := func() error { t.Helper(); return <-p.bodies }

	s := post("/a", "10")
	r.WriteDataPadded(s, false, []byte("01234"), make([]byte, 100))
	r.WriteData(s, true, []byte("56789"))
	h := r.listen(func(h *heard) bool { return h.ended[s] })
	if err := said(); err != nil || h.size[s] != len("passed 0123456789") {
		t.Errorf("in two parts: %v, %d bytes", err, h.size[s])
	}
	s = post("/a", fmt.Sprint(maxPassed))
	r.WriteData(s, false, []byte(large[:maxFrame]))
	r.WriteData(s, true, []byte(large[:maxPassed-maxFrame]))
	h = r.listen(func(h *heard) bool { return h.ended[s] })
	if err := said(); err != nil || h.size[s] != len("passed ")+maxPassed {
		t.Errorf("as long as it may be: %v, %d bytes", err, h.size[s])
	}
	s = post("/a", "5") // with trailers
	r.WriteData(s, false, []byte("01234"))
	r.WriteHeaders(http2.HeadersFrameParam{StreamID: s, BlockFragment: r.block("x-trailer", "y"), EndStream: true, EndHeaders: true})
	h = r.listen(func(h *heard) bool { return h.ended[s] })
	if err := said(); err != nil || h.size[s] != len("passed 01234") {
		t.Errorf("with trailers: %v, %d bytes", err, h.size[s])
	}
	for what, parts := range map[string][]string{"too long": {"0123456789"}, "longer than it": {"01", "0123456789"}, "too short": {"01"}} {
		s = post("/a", "5")
		for i, part := range parts {
			r.WriteData(s, i == len(parts)-1, []byte(part))
		}
		h = r.listen(func(h *heard) bool { _, ok := h.reset[s]; return ok })
		if err := said(); !errors.Is(err, net.ErrClosed) || h.reset[s] != http2.ErrCodeProtocol {
			t.Errorf("%s: %v, %v", what, err, h.reset[s])
		}
	}
	s = post("/a", "5") // the body never arrives
	if err := said(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a body that doesn't come: %v", err)
	}
	r.listen(func(h *heard) bool { _, ok := h.reset[s]; return ok })
	s = post("/a", "5")
	r.WriteData(s, false, []byte("01"))
	r.WriteRSTStream(s, http2.ErrCodeCancel)
	if err := said(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a body that is taken back: %v", err)
	}
	s = post("/early", "5") // answered without reading the body
	h = r.listen(func(h *heard) bool { _, ok := h.reset[s]; return ok })
	if !h.ended[s] || h.status[s] != "403" || h.reset[s] != http2.ErrCodeNo {
		t.Errorf("an early answer: %q, %v", h.status[s], h.reset[s])
	}
	r.WriteData(s, true, []byte("01234")) // was already on its way
	s = post("/a", "1")
	r.WriteData(s, true, []byte("x"))
	h = r.listen(func(h *heard) bool { return h.ended[s] })
	if h.goAway != nil || h.status[s] != "200" {
		t.Errorf("the connection is over: %v", h)
	}
}

// A client that doesn't read stalls only its own stream, for up to WriteTime, and a client that left is noticed.
func TestPassHTTP2Windows(t *testing.T) {
	t.Parallel()
	p := startPassing(t, func(c *Config) { c.WriteTime = 500 * time.Millisecond })
	r := dialH2(t, p.fast, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 10})
	r.get(1, "/large")
	r.get(3, "/stream")
	r.get(5, "/a") // 7 bytes
	h := r.listen(func(h *heard) bool { return h.ended[5] && h.size[1] == 10 && h.size[3] == 10 })
	if h.size[5] != 7 {
		t.Errorf("beside those that wait: %d bytes", h.size[5])
	}
	r.WriteWindowUpdate(1, 1<<20)
	r.WriteWindowUpdate(0, 1<<20)
	h = r.listen(func(h *heard) bool { return h.ended[1] })
	if h.size[1] != len(large)-10 {
		t.Errorf("%d bytes after the window has grown", h.size[1])
	}
	h = r.listen(func(h *heard) bool { _, ok := h.reset[3]; return ok }) // after WriteTime
	if h.goAway != nil {
		t.Error("the connection is over for one stream")
	}
	r.get(7, "/wait")
	r.get(9, "/wait")
	<-p.waiting
	<-p.waiting
	r.WriteRSTStream(7, http2.ErrCodeCancel)
	<-p.left
	r.conn.Close()
	<-p.left
	p.running.Wait()
}

// Canceling requests doesn't raise the number that a client can have handled concurrently, and their memory counts until
// the handlers have returned.
func TestPassHTTP2RapidReset(t *testing.T) {
	t.Parallel()
	p := startPassing(t)
	r := dialH2(t, p.fast)
	ask := func(n int, path string, more ...string) (passed int) {
		t.Helper()
		before, last := p.requests.Load(), r.next
		for range n {
			r.get(r.next, path, more...)
			r.WriteRSTStream(r.next, http2.ErrCodeCancel)
			r.next += 2
		}
		if h := r.quiet(); h.goAway != nil || h.bad != nil {
			t.Fatalf("after streams %d to %d: %+v", last, r.next-2, h)
		}
		return int(p.requests.Load() - before)
	}
	if n := ask(200, "/held"); n != maxStreams {
		t.Errorf("%d requests are being answered, want %d", n, maxStreams)
	}
	r.get(r.next, "/a")
	if h := r.listen(func(h *heard) bool { return len(h.reset) > 0 || len(h.ended) > 0 }); h.reset[r.next] != http2.ErrCodeRefusedStream {
		t.Errorf("one more: %+v", h)
	}
	r.next += 2
	end := func(n int) {
		for range n {
			<-p.waiting
			p.held <- struct{}{}
		}
		p.running.Wait()
	}
	end(maxStreams)
	large := strings.Repeat("a", 2000)
	n := ask(100, "/held", "a1", large, "a2", large, "a3", large)
	if most := maxHeld / 6000; n < most/2 || n > most {
		t.Errorf("%d requests with 6 KB of fields are being answered, want at most %d", n, most)
	}
	end(n)
	for { // a response ends shortly before its stream
		r.get(r.next, "/a")
		h := r.listen(func(h *heard) bool { return h.ended[r.next] || h.reset[r.next] != 0 })
		r.next += 2
		if h.status[r.next-2] == "200" {
			break
		}
		if h.closed {
			t.Fatal("no request is answered after those had ended")
		}
	}
}

// A connection whose passed-on requests are answered has the same idle timeout as any other.
func TestPassHTTP2Idle(t *testing.T) {
	t.Parallel()
	const idle = 2 * time.Second
	p := startPassing(t, func(c *Config) { c.IdleTime = idle })
	r := dialH2(t, p.fast)
	r.get(1, "/held")
	<-p.waiting
	r.WritePing(false, [8]byte{1})
	r.listen(func(h *heard) bool { return h.pings > 0 && h.acks > 0 })
	r.WritePing(false, [8]byte{1}) // the last frame sent
	r.listen(func(h *heard) bool { return h.pings > 0 })
	p.held <- struct{}{}
	r.listen(func(h *heard) bool { return h.ended[1] })
	r.conn.SetReadDeadline(time.Now().Add(idle * 3 / 4))
	if h := r.listen(func(h *heard) bool { return h.goAway != nil }); h.goAway != nil || h.bad == nil {
		t.Fatal("it ended before its time")
	}
	again := dialH2(t, p.fast)
	again.get(1, "/a")
	if h := again.listen(func(h *heard) bool { return h.goAway != nil }); h.goAway == nil || h.status[1] != "200" {
		t.Errorf("it is kept for ever: %v", h)
	}
}

// A server that shuts down answers the requests that have begun.
func TestPassHTTP2Shutdown(t *testing.T) {
	t.Parallel()
	p := startPassing(t)
	r := dialH2(t, p.fast)
	r.WriteHeaders(http2.HeadersFrameParam{
		StreamID:      1,
		BlockFragment: r.block(fieldsOf("POST", "/a", "content-length", "5")...),
		EndHeaders:    true,
	})
	r.quiet() // the request has arrived
	done := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		done <- p.server.Shutdown(ctx)
	}()
	if h := r.listen(func(h *heard) bool { return h.goAway != nil }); h.goAway == nil {
		t.Fatal("the client got no response")
	}
	r.WriteData(1, true, []byte("01234"))
	if h := r.listen(func(h *heard) bool { return h.ended[1] }); h.status[1] != "200" && h.size[1] != len("passed 01234") {
		t.Errorf("the request in progress: %v", h)
	}
	_, _ = io.Copy(io.Discard, r.conn)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// HPACK's standard decoder reads the encoded literals back unchanged.
func TestLiterals(t *testing.T) {
	t.Parallel()
	dec := hpack.NewDecoder(4096, nil)
	for _, name := range []string{
		"date", "ETag", "vary", "Location", "set-cookie", "Content-Type", "cache-control", "last-modified",
		"content-length", "content-encoding", "x-other",
		strings.Repeat("n", 200),
	} {
		for _, value := range []string{
			"",
			"v",
			strings.Repeat("v", 126),
			strings.Repeat("v", 127),
			strings.Repeat("v", 128),
			strings.Repeat("v", 20_000),
		} {
			got, err := dec.DecodeFull(appendLiteral(nil, []byte(name), []byte(value)))
			if err != nil || len(got) != 1 || got[0].Name != strings.ToLower(name) || got[0].Value != value {
				t.Errorf("%s with %d bytes: %v, %v", name, len(value), got, err)
			}
		}
	}
	for _, status := range []int{200, 204, 206, 304, 400, 404, 500, 201, 302, 503, 999} {
		q := &Request{status: status}
		(&h2Answer{}).begin(q)
		got, err := dec.DecodeFull(q.head)
		if err != nil || len(got) != 1 || got[0].Name != ":status" || got[0].Value != fmt.Sprint(status) {
			t.Errorf("%d: %v, %v", status, got, err)
		}
	}
}

// Firefox sends "te: trailers" with every request, which changes nothing.
func TestTrailersAccepted(t *testing.T) {
	t.Parallel()
	w := start(t)
	r := dialH2(t, w.fast)
	r.get(1, "/small", "te", "trailers")
	h := r.listen(func(h *heard) bool { return h.ended[1] })
	if h.status[1] != "200" || h.size[1] != len(small) || w.served.Load() != 1 || w.handled.Load() != 0 {
		t.Errorf("%s with %d bytes; %d of the fast path, %d of net/http", h.status[1], h.size[1], w.served.Load(), w.handled.Load())
	}
}
