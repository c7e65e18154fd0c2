//lint:file-ignore SA1019 the client under the test is x/net/http2 itself, with its own settings

package fastpath

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// raw is an HTTP/2 client that sends exactly the frames that a test writes.
type raw struct {
	t    testing.TB
	conn *tls.Conn
	mute bool // listen acknowledges nothing, because another goroutine writes
	out  *bufio.Writer
	many bool // frames are buffered and written together
	*http2.Framer
	buf bytes.Buffer
	enc *hpack.Encoder
	dec *hpack.Decoder

	next uint32 // the next stream ID, for tests that number streams by it
}

func dialH2(t testing.TB, addr string, settings ...http2.Setting) *raw {
	t.Helper()
	r := dialBare(t, addr)
	io.WriteString(r.conn, http2.ClientPreface)
	r.WriteSettings(settings...)
	return r
}

func dialBare(t testing.TB, addr string) *raw {
	r := &raw{t: t, conn: dial(t, addr, "h2")}
	r.setUp()
	return r
}

func (r *raw) setUp() {
	r.out = bufio.NewWriterSize(r.conn, 16<<10)
	r.Framer = http2.NewFramer(r, r.conn)
	r.AllowIllegalWrites = true
	r.enc = hpack.NewEncoder(&r.buf)
	r.dec = hpack.NewDecoder(4096, nil)
	r.next = 1
}

// Write writes a frame, or buffers it if many is set.
func (r *raw) Write(frame []byte) (int, error) {
	n, err := r.out.Write(frame)
	if err == nil && !r.many {
		err = r.out.Flush()
	}
	return n, err
}

// block encodes header fields given as name, value, name, value.
func (r *raw) block(fields ...string) []byte {
	r.buf.Reset()
	for i := 0; i < len(fields); i += 2 {
		r.enc.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
	}
	return bytes.Clone(r.buf.Bytes())
}

func fieldsOf(method, path string, more ...string) []string {
	return append([]string{":method", method, ":scheme", "https", ":authority", site, ":path", path}, more...)
}

func (r *raw) get(id uint32, path string, more ...string) {
	r.WriteHeaders(http2.HeadersFrameParam{
		StreamID:      id,
		BlockFragment: r.block(fieldsOf("GET", path, more...)...),
		EndStream:     true,
		EndHeaders:    true,
	})
}

// heard holds what the server sent until the connection was quiet or closed.
type heard struct {
	status map[uint32]string // by stream
	size   map[uint32]int    // body bytes
	ended  map[uint32]bool
	reset  map[uint32]http2.ErrCode
	goAway *http2.ErrCode
	pings  int
	acks   int
	closed bool
	bad    error // error of the server's own frames
}

// listen reads frames until the connection closes or done returns true.
func (r *raw) listen(done func(*heard) bool) *heard {
	h := &heard{status: map[uint32]string{}, size: map[uint32]int{}, ended: map[uint32]bool{}, reset: map[uint32]http2.ErrCode{}}
	for !done(h) {
		f, err := r.ReadFrame()
		if err != nil {
			if ne, ok := err.(net.Error); ok && ne.Timeout() {
				h.bad = fmt.Errorf("nothing more is heard: %w", err)
			}
			h.closed = true
			return h
		}
		switch f := f.(type) {
		case *http2.HeadersFrame:
			block := bytes.Clone(f.HeaderBlockFragment())
			for !f.HeadersEnded() {
				next, err := r.ReadFrame()
				c, ok := next.(*http2.ContinuationFrame)
				if err != nil || !ok {
					h.bad = fmt.Errorf("after unfinished HEADERS: %v, %v", next, err)
					return h
				}
				block = append(block, c.HeaderBlockFragment()...)
				if c.HeadersEnded() {
					break
				}
			}
			fields, err := r.dec.DecodeFull(block)
			if err != nil {
				h.bad = err
				return h
			}
			for _, field := range fields {
				if field.Name == ":status" {
					h.status[f.StreamID] += field.Value
				}
			}
			h.ended[f.StreamID] = h.ended[f.StreamID] || f.StreamEnded()
		case *http2.DataFrame:
			h.size[f.StreamID] += len(f.Data())
			h.ended[f.StreamID] = h.ended[f.StreamID] || f.StreamEnded()
		case *http2.RSTStreamFrame:
			h.reset[f.StreamID] = f.ErrCode
		case *http2.GoAwayFrame:
			if h.goAway == nil || f.ErrCode != http2.ErrCodeNo {
				code := f.ErrCode
				h.goAway = &code
			}
		case *http2.PingFrame:
			if f.IsAck() {
				if f.Data[0] == 1 { // the response to the last frame sent
					h.pings++
				}
			} else if !r.mute {
				r.WritePing(true, f.Data)
			}
		case *http2.SettingsFrame:
			if f.IsAck() {
				h.acks++
			} else if !r.mute {
				r.WriteSettingsAck()
			}
		}
	}
	return h
}

// quiet sends a PING and listens until it is answered, so that the server has handled all earlier frames, or until the
// connection closes.
func (r *raw) quiet() *heard {
	r.WritePing(false, [8]byte{1})
	return r.listen(func(h *heard) bool { return h.pings > 0 })
}

// client returns a standard HTTP/2 client.
func client(addr string, settings ...func(*http2.Transport)) *http.Client {
	tr := &http2.Transport{
		DisableCompression: true,
		DialTLSContext: func(ctx context.Context, _, _ string, _ *tls.Config) (net.Conn, error) {
			return (&tls.Dialer{Config: &tls.Config{ServerName: site, InsecureSkipVerify: true, NextProtos: []string{"h2"}}}).DialContext(
				ctx,
				"tcp",
				addr,
			)
		},
	}
	for _, f := range settings {
		f(tr)
	}
	return &http.Client{Transport: tr, Timeout: patience}
}

// The same requests get the same responses with and without the fast path, one by one and concurrently on one
// connection, with any window sizes.
func TestSameAnswersH2(t *testing.T) {
	t.Parallel()
	w := start(t)
	requests := []func() *http.Request{}
	add := func(method, path, body string, fields ...string) {
		requests = append(requests, func() *http.Request {
			var b io.Reader
			if body != "" {
				b = struct{ io.Reader }{strings.NewReader(body)}
			}
			r, err := http.NewRequest(method, "https://"+site+path, b)
			if err != nil {
				t.Fatal(err)
			}
			for i := 0; i < len(fields); i += 2 {
				r.Header.Add(fields[i], fields[i+1])
			}
			if body != "" {
				r.Trailer = http.Header{"X-Trailer": {"t"}}
			}
			return r
		})
	}
	for _, path := range []string{"/", "/small", "/large", "/empty", "/a%20b", "/nothing", "/?q=1", "/large?q", "/%2e%2e/x"} {
		add("GET", path, "")
		add("HEAD", path, "")
		add("GET", path, "", "Accept-Encoding", "gzip, deflate, br")
	}
	add("GET", "/large", "", "Range", "bytes=0-5")
	add("GET", "/", "", "If-None-Match", `"x"`)
	add("GET", "/", "", "Accept-Encoding", "gzip;q=0.1")
	add("GET", "/", "", "Cookie", "a=b", "X-Long", strings.Repeat("x", 9000))
	add("GET", "/", "", "X-Longer", strings.Repeat("x", 20_000))
	add("POST", "/x", "hello")
	add("POST", "/x", strings.Repeat("body", 1<<20))
	add("PUT", "/x", "put")
	add("OPTIONS", "/", "")
	add("DELETE", "/large", "")

	do := func(c *http.Client, r *http.Request) (reply, error) {
		resp, err := c.Do(r)
		if err != nil {
			return reply{}, err
		}
		return read(resp)
	}
	want := make([]reply, len(requests))
	oracle := client(w.slow)
	for i, r := range requests {
		var err error
		if want[i], err = do(oracle, r()); err != nil {
			t.Fatal(i, err)
		}
	}
	for name, c := range map[string]*http.Client{"usual": client(w.fast)} {
		for round := range 3 {
			var wg sync.WaitGroup
			for i, r := range requests {
				ask := func() {
					got, err := do(c, r())
					if err != nil || !reflect.DeepEqual(got, want[i]) {
						t.Errorf("%s, %s %s: with the fast path %.300v, %v; without %.300v", name, r().Method, r().URL, got, err, want[i])
					}
				}
				if round == 0 {
					ask()
				} else {
					wg.Go(ask)
				}
			}
			wg.Wait()
		}
	}
	if w.served.Load() == 0 || w.handled.Load() == 0 {
		t.Errorf("fast path %d, net/http %d", w.served.Load(), w.handled.Load())
	}
}

// Small windows delay responses of the fast path and of net/http without losing bytes.
func TestWindows(t *testing.T) {
	t.Parallel()
	w := start(t)
	r := dialH2(t, w.fast, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 100})
	r.get(1, "/large")
	r.get(3, "/large?x")
	r.get(5, "/small")
	h := r.quiet()
	if h.size[1] != 100 || h.ended[1] || h.size[5] != len(small) || !h.ended[5] {
		t.Fatalf("with a window of 100: %+v", h)
	}
	// SETTINGS and both kinds of WINDOW_UPDATE enlarge the windows.
	r.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1000})
	got := map[uint32]int{1: h.size[1], 3: h.size[3]}
	for range 10_000 {
		h = r.quiet()
		if h.bad != nil || h.closed {
			t.Fatalf("%+v", h)
		}
		for _, id := range []uint32{1, 3} {
			got[id] += h.size[id]
			if h.size[id] > 0 && got[id] < len(large) {
				r.WriteWindowUpdate(id, uint32(h.size[id]))
				r.WriteWindowUpdate(0, uint32(h.size[id]))
			}
		}
		if got[1] == len(large) && got[3] == len(large) {
			return
		}
	}
	t.Errorf("%v of %d", got, len(large))
}

// A window made negative by SETTINGS stays closed until it is positive (RFC 9113, section 6.9.2).
func TestNegativeWindow(t *testing.T) {
	t.Parallel()
	w := start(t)
	r := dialH2(t, w.fast, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1000})
	r.get(1, "/large")
	if h := r.quiet(); h.size[1] != 1000 {
		t.Fatalf("%+v", h)
	}
	r.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
	r.WriteWindowUpdate(1, 999)
	if h := r.quiet(); h.size[1] != 0 {
		t.Errorf("%d bytes into a window of -1", h.size[1])
	}
	r.WriteWindowUpdate(1, 2)
	if h := r.quiet(); h.size[1] != 1 {
		t.Errorf("%d bytes into a window of 1", h.size[1])
	}
}

// When a client shrinks its header table, the next header block announces the new size.
func TestTableSize(t *testing.T) {
	t.Parallel()
	w := start(t)
	for _, path := range []string{"/", "/?x"} {
		r := dialH2(t, w.fast, http2.Setting{ID: http2.SettingHeaderTableSize, Val: 0})
		r.get(1, path)
		for {
			f, err := r.ReadFrame()
			if err != nil {
				t.Fatal(err)
			}
			if f, ok := f.(*http2.HeadersFrame); ok {
				if b := f.HeaderBlockFragment(); b[0] != 0x20 {
					t.Errorf("%s: the block begins with %x, want 20", path, b[:4])
				}
				break
			}
		}
	}
}

// Broken frames as in h2spec get one of the error codes that RFC 9113 asks for: a GOAWAY and the connection's end, or
// an RST_STREAM if stream is set.
func TestConformance(t *testing.T) {
	t.Parallel()
	const proto, size, flow, closed, calm, compression = http2.ErrCodeProtocol, http2.ErrCodeFrameSize, http2.ErrCodeFlowControl, http2.ErrCodeStreamClosed, http2.ErrCodeEnhanceYourCalm, http2.ErrCodeCompression
	open := func(r *raw, id uint32, more ...string) { // a request whose body is still to come
		r.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: r.block(fieldsOf("POST", "/x", more...)...), EndHeaders: true})
	}
	headers := func(r *raw, fields ...string) {
		r.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: r.block(fields...), EndStream: true, EndHeaders: true})
	}
	for name, tt := range map[string]struct {
		send   func(r *raw)
		stream uint32 // 0: the connection must end
		codes  []http2.ErrCode
	}{
		"3.4 preface":        {nil, 0, []http2.ErrCode{proto}},
		"4.2 frame too long": {func(r *raw) { r.WriteData(1, true, make([]byte, 16385)) }, 0, []http2.ErrCode{size, proto}},
		"4.3 broken block": {
			func(r *raw) { r.WriteRawFrame(http2.FrameHeaders, 5, 1, []byte{0x40, 0xff, 0xff, 0xff}) },
			0,
			[]http2.ErrCode{compression},
		},
		"4.3 index out of the table": {
			func(r *raw) { r.WriteRawFrame(http2.FrameHeaders, 5, 1, []byte{0xff, 0x50}) },
			0,
			[]http2.ErrCode{compression},
		},
		"4.3 table too large": {
			func(r *raw) { r.WriteRawFrame(http2.FrameHeaders, 5, 1, []byte{0x3f, 0xe2, 0x3f, 0x82}) },
			0,
			[]http2.ErrCode{compression},
		},
		"5.1 DATA when idle":          {func(r *raw) { r.WriteData(1, true, []byte("x")) }, 0, []http2.ErrCode{proto, closed}},
		"5.1 RST_STREAM when idle":    {func(r *raw) { r.WriteRSTStream(1, http2.ErrCodeCancel) }, 0, []http2.ErrCode{proto}},
		"5.1 WINDOW_UPDATE when idle": {func(r *raw) { r.WriteWindowUpdate(1, 1) }, 0, []http2.ErrCode{proto}},
		"5.1 CONTINUATION when idle":  {func(r *raw) { r.WriteContinuation(1, true, nil) }, 0, []http2.ErrCode{proto}},
		"5.1 DATA when closed":        {func(r *raw) { r.get(1, "/"); r.WriteData(1, true, []byte("x")) }, 1, []http2.ErrCode{closed}},
		"5.1 HEADERS when closed":     {func(r *raw) { r.get(1, "/"); r.get(1, "/") }, 0, []http2.ErrCode{closed, proto}},
		"5.1 DATA when half closed": {
			func(r *raw) { r.get(1, "/large?x"); r.WriteData(1, true, []byte("x")) },
			1,
			[]http2.ErrCode{closed},
		},
		"5.1.1 even stream": {func(r *raw) { r.get(2, "/") }, 0, []http2.ErrCode{proto}},
		"5.1.1 decreasing":  {func(r *raw) { r.get(5, "/"); r.get(3, "/") }, 0, []http2.ErrCode{proto, closed}},
		"5.3.1 depends on itself": {func(r *raw) {
			r.WriteHeaders(http2.HeadersFrameParam{
				StreamID:      1,
				BlockFragment: r.block(fieldsOf("GET", "/")...),
				EndStream:     true,
				EndHeaders:    true,
				Priority:      http2.PriorityParam{StreamDep: 1},
			})
		}, 0, []http2.ErrCode{proto}},
		"5.5 frame within a block": {func(r *raw) {
			r.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: r.block(fieldsOf("GET", "/")...), EndStream: true})
			r.WriteRawFrame(0xbb, 0, 0, nil)
		}, 0, []http2.ErrCode{proto}},
		"6.1 DATA on 0": {func(r *raw) { r.WriteRawFrame(http2.FrameData, 0, 0, []byte("x")) }, 0, []http2.ErrCode{proto}},
		"6.1 too much padding": {
			func(r *raw) { open(r, 1); r.WriteRawFrame(http2.FrameData, 8, 1, []byte{9, 'x'}) },
			0,
			[]http2.ErrCode{proto},
		},
		"6.2 HEADERS on 0": {
			func(r *raw) { r.WriteRawFrame(http2.FrameHeaders, 4, 0, r.block(fieldsOf("GET", "/")...)) },
			0,
			[]http2.ErrCode{proto},
		},
		"6.2 too much padding": {
			func(r *raw) { r.WriteRawFrame(http2.FrameHeaders, 4|8, 1, []byte{200, 0x82}) },
			0,
			[]http2.ErrCode{proto},
		},
		"6.2 short priority": {
			func(r *raw) { r.WriteRawFrame(http2.FrameHeaders, 4|32, 1, []byte{1, 2}) },
			0,
			[]http2.ErrCode{proto, size},
		},
		"6.3 PRIORITY on 0": {
			func(r *raw) { r.WriteRawFrame(http2.FramePriority, 0, 0, make([]byte, 5)) },
			0,
			[]http2.ErrCode{proto},
		},
		"6.3 PRIORITY of 4 bytes": {
			func(r *raw) { r.get(1, "/large?x"); r.WriteRawFrame(http2.FramePriority, 0, 1, make([]byte, 4)) },
			1,
			[]http2.ErrCode{size},
		},
		"6.4 RST_STREAM on 0": {
			func(r *raw) { r.WriteRawFrame(http2.FrameRSTStream, 0, 0, make([]byte, 4)) },
			0,
			[]http2.ErrCode{proto},
		},
		"6.4 RST_STREAM of 3 bytes": {
			func(r *raw) { r.get(1, "/"); r.WriteRawFrame(http2.FrameRSTStream, 0, 1, make([]byte, 3)) },
			0,
			[]http2.ErrCode{size},
		},
		"6.5 ack with payload": {
			func(r *raw) { r.WriteRawFrame(http2.FrameSettings, 1, 0, make([]byte, 6)) },
			0,
			[]http2.ErrCode{size},
		},
		"6.5 SETTINGS on 1": {func(r *raw) { r.WriteRawFrame(http2.FrameSettings, 0, 1, nil) }, 0, []http2.ErrCode{proto}},
		"6.5 SETTINGS of 5 bytes": {
			func(r *raw) { r.WriteRawFrame(http2.FrameSettings, 0, 0, make([]byte, 5)) },
			0,
			[]http2.ErrCode{size},
		},
		"6.5.2 ENABLE_PUSH 2": {
			func(r *raw) { r.WriteSettings(http2.Setting{ID: http2.SettingEnablePush, Val: 2}) },
			0,
			[]http2.ErrCode{proto},
		},
		"6.5.2 window too large": {
			func(r *raw) { r.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 31}) },
			0,
			[]http2.ErrCode{flow},
		},
		"6.5.2 small MAX_FRAME_SIZE": {
			func(r *raw) { r.WriteSettings(http2.Setting{ID: http2.SettingMaxFrameSize, Val: 100}) },
			0,
			[]http2.ErrCode{proto},
		},
		"6.5.2 large MAX_FRAME_SIZE": {
			func(r *raw) { r.WriteSettings(http2.Setting{ID: http2.SettingMaxFrameSize, Val: 1 << 24}) },
			0,
			[]http2.ErrCode{proto},
		},
		"6.6 PUSH_PROMISE": {
			func(r *raw) { r.WriteRawFrame(http2.FramePushPromise, 4, 1, make([]byte, 4)) },
			0,
			[]http2.ErrCode{proto},
		},
		"6.7 PING on 1":       {func(r *raw) { r.WriteRawFrame(http2.FramePing, 0, 1, make([]byte, 8)) }, 0, []http2.ErrCode{proto}},
		"6.7 PING of 7 bytes": {func(r *raw) { r.WriteRawFrame(http2.FramePing, 0, 0, make([]byte, 7)) }, 0, []http2.ErrCode{size}},
		"6.8 GOAWAY on 1": {
			func(r *raw) { r.WriteRawFrame(http2.FrameGoAway, 0, 1, make([]byte, 8)) },
			0,
			[]http2.ErrCode{proto},
		},
		"6.9 increment 0": {
			func(r *raw) { r.WriteRawFrame(http2.FrameWindowUpdate, 0, 0, make([]byte, 4)) },
			0,
			[]http2.ErrCode{proto},
		},
		"6.9 increment 0, stream": {
			func(r *raw) { r.get(1, "/large?x"); r.WriteRawFrame(http2.FrameWindowUpdate, 0, 1, make([]byte, 4)) },
			1,
			[]http2.ErrCode{proto},
		},
		"6.9 of 3 bytes": {
			func(r *raw) { r.WriteRawFrame(http2.FrameWindowUpdate, 0, 0, make([]byte, 3)) },
			0,
			[]http2.ErrCode{size},
		},
		"6.9.1 overflow": {func(r *raw) { r.WriteWindowUpdate(0, maxWindow) }, 0, []http2.ErrCode{flow}},
		"6.9.1 overflow, stream": {
			func(r *raw) { r.get(1, "/large"); r.WriteWindowUpdate(1, maxWindow); r.WriteWindowUpdate(1, maxWindow) },
			1,
			[]http2.ErrCode{flow},
		},
		"6.9.1 overflow, lane": {func(r *raw) { open(r, 1); r.WriteWindowUpdate(1, maxWindow) }, 1, []http2.ErrCode{flow}},
		"6.10 CONTINUATION, other": {func(r *raw) {
			r.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: r.block(fieldsOf("GET", "/")...)})
			r.WriteContinuation(3, true, nil)
		}, 0, []http2.ErrCode{proto}},
		"8.1.1 capitals":          {func(r *raw) { headers(r, fieldsOf("GET", "/", "X-Test", "ok")...) }, 1, []http2.ErrCode{proto}},
		"8.1.2.1 unknown pseudo":  {func(r *raw) { headers(r, fieldsOf("GET", "/", ":test", "ok")...) }, 1, []http2.ErrCode{proto}},
		"8.1.2.1 response pseudo": {func(r *raw) { headers(r, fieldsOf("GET", "/", ":status", "200")...) }, 1, []http2.ErrCode{proto}},
		"8.1.2.1 pseudo after a field": {func(r *raw) {
			headers(r, ":method", "GET", ":scheme", "https", ":path", "/", "x", "y", ":authority", site)
		}, 1, []http2.ErrCode{proto}},
		"8.1.2.2 connection": {
			func(r *raw) { headers(r, fieldsOf("GET", "/", "connection", "keep-alive")...) },
			1,
			[]http2.ErrCode{proto},
		},
		"8.1.2.2 te": {func(r *raw) { headers(r, fieldsOf("GET", "/", "te", "x")...) }, 1, []http2.ErrCode{proto}},
		"8.1.2.3 empty path": {
			func(r *raw) { headers(r, ":method", "GET", ":scheme", "https", ":path", "", ":authority", site) },
			1,
			[]http2.ErrCode{proto},
		},
		"8.1.2.3 no method": {
			func(r *raw) { headers(r, ":scheme", "https", ":path", "/", ":authority", site) },
			1,
			[]http2.ErrCode{proto},
		},
		"8.1.2.3 no scheme": {
			func(r *raw) { headers(r, ":method", "GET", ":path", "/", ":authority", site) },
			1,
			[]http2.ErrCode{proto},
		},
		"8.1.2.3 no path": {
			func(r *raw) { headers(r, ":method", "GET", ":scheme", "https", ":authority", site) },
			1,
			[]http2.ErrCode{proto},
		},
		"8.1.2.3 two methods": {
			func(r *raw) { headers(r, fieldsOf("GET", "/", ":method", "GET")...) },
			1,
			[]http2.ErrCode{proto},
		},
		"8.1.2.6 content-length differs": {
			func(r *raw) { open(r, 1, "content-length", "1"); r.WriteData(1, true, []byte("test")) },
			1,
			[]http2.ErrCode{proto},
		},
		"pseudo in trailers": {func(r *raw) { open(r, 1); headers(r, ":method", "GET") }, 1, []http2.ErrCode{proto}},
		"line break in a value": {
			func(r *raw) { headers(r, fieldsOf("GET", "/", "x", "a\r\nhost: evil")...) },
			1,
			[]http2.ErrCode{proto},
		},
		"NUL in a value": {func(r *raw) { headers(r, fieldsOf("GET", "/", "x", "a\x00b")...) }, 1, []http2.ErrCode{proto}},
		"CONTINUATION flood": {func(r *raw) {
			r.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: r.block(fieldsOf("GET", "/")...), EndStream: true})
			for range 100_000 {
				if r.WriteContinuation(1, false, nil) != nil {
					break
				}
			}
		}, 0, []http2.ErrCode{calm}},
		"header bomb": {func(r *raw) {
			r.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: r.block(fieldsOf("GET", "/")...), EndStream: true})
			for range 100 {
				if r.WriteContinuation(1, false, bytes.Repeat([]byte{0x10, 1, 'x', 1, 'y'}, 3000)) != nil {
					break
				}
			}
		}, 0, []http2.ErrCode{calm}},
		"PING flood": {func(r *raw) {
			go io.Copy(io.Discard, struct{ io.Reader }{strings.NewReader("")})
			flood(r, func() error { return r.WritePing(false, [8]byte{}) })
		}, 0, []http2.ErrCode{calm}},
		"SETTINGS flood": {func(r *raw) { flood(r, func() error { return r.WriteSettings() }) }, 0, []http2.ErrCode{calm}},
		"PRIORITY flood": {func(r *raw) {
			flood(r, func() error { return r.WritePriority(9, http2.PriorityParam{StreamDep: 3}) })
		}, 0, []http2.ErrCode{calm}},
		"unknown flood": {
			func(r *raw) { flood(r, func() error { return r.WriteRawFrame(0xbb, 0, 0, nil) }) },
			0,
			[]http2.ErrCode{calm},
		},
		"WINDOW_UPDATE flood": {
			func(r *raw) { r.get(1, "/large?x"); flood(r, func() error { return r.WriteWindowUpdate(1, 1) }) },
			0,
			[]http2.ErrCode{calm, flow},
		},
		"empty DATA flood": {
			func(r *raw) { open(r, 1); flood(r, func() error { return r.WriteData(1, false, nil) }) },
			0,
			[]http2.ErrCode{calm},
		},
		"rapid reset": {func(r *raw) {
			id := uint32(1)
			flood(r, func() error {
				r.get(id, "/?x")
				id += 2
				return r.WriteRSTStream(id-2, http2.ErrCodeCancel)
			})
		}, 0, []http2.ErrCode{calm}},
		"rapid reset of what is ready": {func(r *raw) {
			id := uint32(1)
			flood(r, func() error {
				r.get(id, "/small")
				id += 2
				return r.WriteRSTStream(id-2, http2.ErrCodeCancel)
			})
		}, 0, []http2.ErrCode{calm}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := start(t)
			var r *raw
			if tt.send == nil {
				r = dialBare(t, w.fast)
				io.WriteString(r.conn, "INVALID CONNECTION PREFACE\r\n\r\n")
			} else {
				r = dialH2(t, w.fast)
				r.mute = true
				done := make(chan struct{})
				go func() {
					defer close(done)
					tt.send(r)
				}()
				defer func() { <-done }()
			}
			h := r.listen(func(h *heard) bool {
				if tt.stream != 0 {
					_, ok := h.reset[tt.stream]
					return ok || h.status[tt.stream] == "400" // net/http refuses some of these requests with a 400
				}
				return h.goAway != nil && *h.goAway != http2.ErrCodeNo
			})
			r.conn.SetDeadline(time.Now()) // stops a send that is still blocked
			if h.bad != nil {
				t.Fatal(h.bad)
			}
			if h.status[tt.stream] == "400" {
				return
			}
			var code http2.ErrCode
			var ok bool
			if tt.stream != 0 {
				code, ok = h.reset[tt.stream]
			}
			if h.goAway != nil && !ok {
				code, ok = *h.goAway, true
			}
			for _, want := range tt.codes {
				if ok && code == want {
					return
				}
			}
			t.Errorf("%v (%v), want %v; %+v", code, ok, tt.codes, h)
		})
	}
}

// flood calls send until the connection breaks.
func flood(r *raw, send func() error) {
	r.many = true
	for range 5_000_000 {
		if send() != nil {
			return
		}
	}
}

// Streams above the limit are refused, while the others are served and the connection stays open.
func TestTooManyStreams(t *testing.T) {
	t.Parallel()
	w := start(t)
	r := dialH2(t, w.fast, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
	for i := range uint32(maxStreams + 20) {
		r.get(2*i+1, "/small")
	}
	h := r.quiet()
	if len(h.reset) != 20 || h.reset[2*maxStreams+1] != http2.ErrCodeRefusedStream || h.closed {
		t.Errorf("%d refused: %+v", len(h.reset), h.reset)
	}
	r.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1000})
	h = r.quiet()
	if len(h.ended) != maxStreams {
		t.Errorf("%d ended, want %d", len(h.ended), maxStreams)
	}
}

// A client that doesn't read, at any level, is disconnected after WriteTime, and one that sends nothing after IdleTime.
func TestStalledH2(t *testing.T) {
	t.Parallel()
	w := start(t, func(c *Config) { c.HeaderTime, c.IdleTime, c.WriteTime = time.Second, 2*time.Second, time.Second })
	for name, send := range map[string]func(r *raw){
		"no window": func(r *raw) {
			r.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
			r.get(1, "/small")
		},
		"connection's window": func(r *raw) { r.get(1, "/large?x"); r.WriteWindowUpdate(1, 1<<20) },
		"idle":                func(*raw) {},
		"half a frame":        func(r *raw) { r.conn.Write([]byte{0, 0, 8, 6, 0}) },
		"half a block": func(r *raw) {
			r.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: r.block(fieldsOf("GET", "/")...), EndStream: true})
		},
		"idle after one": func(r *raw) { r.get(1, "/") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := dialH2(t, w.fast)
			send(r)
			// Occasional pings must not keep a connection with a stalled stream alive.
			if strings.Contains(name, "window") {
				r.mute = true
				go func() {
					for r.WritePing(false, [8]byte{}) == nil {
						time.Sleep(100 * time.Millisecond)
					}
				}()
			}
			if h := r.listen(func(*heard) bool { return false }); h.bad != nil {
				t.Error(h.bad)
			}
		})
	}
	t.Run("silent after TLS", func(t *testing.T) {
		t.Parallel()
		c := dial(t, w.fast, "h2")
		if _, err := io.Copy(io.Discard, c); err != nil && !errors.Is(err, io.EOF) {
			if ne, ok := err.(net.Error); ok && ne.Timeout() {
				t.Error("stays open")
			}
		}
	})
}

// For any sequence of frames, the server answers each request as net/http does, and both or neither close the
// connection.
func FuzzH2(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3, 4, 5, 6, 7})
	f.Add([]byte{0, 0, 9, 0, 8, 1, 1, 2})
	f.Add([]byte{7, 7, 7, 0, 20, 30, 40, 1, 12, 13, 14, 15})
	w := start(f)
	paths := []string{"/", "/small", "/empty", "/nothing", "/?x", "/a%20b", "/large"}
	// play sends the frames that script encodes, one step per byte.
	play := func(t *testing.T, addr string, script []byte) *heard {
		r := dialH2(t, addr)
		id := uint32(1)
		for _, b := range script {
			arg := int(b >> 4)
			switch b & 15 {
			case 0, 1, 2:
				r.get(id, paths[arg%len(paths)])
				id += 2
			case 3:
				r.get(id, paths[arg%len(paths)], "accept-encoding", "gzip, br")
				id += 2
			case 4:
				r.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: r.block(fieldsOf("POST", "/x")...), EndHeaders: true})
				r.WriteData(id, arg&1 == 0, []byte("data"))
				if arg&1 != 0 {
					r.WriteHeaders(http2.HeadersFrameParam{
						StreamID:      id,
						BlockFragment: r.block("x-trailer", "t"),
						EndHeaders:    true,
						EndStream:     true,
					})
				}
				id += 2
			case 5:
				r.WritePing(arg&1 == 0, [8]byte{2})
			case 6:
				r.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: uint32(arg+1) << 16})
			case 7:
				r.WritePriority(id+uint32(arg*2), http2.PriorityParam{Weight: 3})
			case 8:
				r.WriteWindowUpdate(0, uint32(arg+1))
			case 9:
				block := r.block(fieldsOf("GET", paths[arg%len(paths)], "x-split", "yes")...)
				r.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block[:arg%len(block)], EndStream: true})
				r.WriteContinuation(id, true, block[arg%len(block):])
				id += 2
			case 10:
				r.WriteHeaders(http2.HeadersFrameParam{
					StreamID:      id,
					BlockFragment: r.block(fieldsOf("GET", paths[arg%len(paths)])...),
					EndStream:     true,
					EndHeaders:    true,
					PadLength:     uint8(arg),
				})
				id += 2
			case 11:
				r.get(id, paths[arg%len(paths)], []string{"te", "X", "connection", "range", "x", "cookie"}[arg%6], "v")
				id += 2
			case 12:
				r.WriteRawFrame(http2.FrameType(200+arg), http2.Flags(arg), id, []byte("?"))
			case 13:
				r.WriteSettings(http2.Setting{ID: http2.SettingMaxHeaderListSize, Val: uint32(arg+1) << 16})
			case 14:
				r.get(id, paths[arg%len(paths)], "x-large", strings.Repeat("y", arg*700))
				id += 2
			case 15:
				r.WriteRawFrame(http2.FrameType(arg%10), http2.Flags(arg), uint32(arg%4), bytes.Repeat([]byte{byte(arg)}, arg))
			}
		}
		want := int(id / 2)
		r.WritePing(false, [8]byte{1})
		return r.listen(func(h *heard) bool {
			n := 0
			for s := uint32(1); s < id; s += 2 {
				_, reset := h.reset[s]
				if reset || h.ended[s] {
					n++
				}
			}
			return n == want && h.pings > 0 || h.goAway != nil && *h.goAway != http2.ErrCodeNo
		})
	}
	f.Fuzz(func(t *testing.T, script []byte) {
		if len(script) > 60 { // 61 large responses wouldn't fit into the windows
			return
		}
		larges := 0
		for _, b := range script {
			if int(b>>4)%len(paths) == 6 {
				larges++
			}
		}
		if larges > 0 {
			return
		}
		got, want := play(t, w.fast, script), play(t, w.slow, script)
		if got.bad != nil {
			t.Fatalf("%v: %v", script, got.bad)
		}
		if want.bad != nil {
			return // net/http's output can't be read
		}
		failed := func(h *heard) bool { return h.goAway != nil && *h.goAway != http2.ErrCodeNo || h.closed }
		if failed(got) != failed(want) {
			t.Fatalf("%v: with the fast path %+v, without %+v", script, got, want)
		}
		if !failed(got) && (!reflect.DeepEqual(got.status, want.status) || !reflect.DeepEqual(got.size, want.size)) {
			t.Fatalf("%v: with the fast path %+v, without %+v", script, got, want)
		}
	})
}
