package edge

import (
	"bufio"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"slipway/internal/platform/id"

	"slipway/internal/edge/endpoint"
	"slipway/internal/edge/upstream"
	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
)

// programs is an edge whose site "app" is a program, run by the given handler. Requests reach it as in production.
type programs struct {
	*world
	way       int
	transport http.RoundTripper
	pool      *upstream.Pool

	held   atomic.Int64 // requests that hold the program
	passed atomic.Int64 // requests that took the fast path
	refuse atomic.Pointer[error]

	heard     atomic.Int64 // bytes counted
	maxBody   atomic.Int64
	firstByte atomic.Int64

	mu     sync.Mutex // guards failed
	failed []string   // lines of the site's log
}

// Acquire implements endpoint.Source.
func (p *programs) Acquire(context.Context, id.Deployment) (*endpoint.Endpoint, error) {
	if err := p.refuse.Load(); err != nil {
		return nil, *err
	}
	e := p.endpoint()
	e.MaxBody = p.maxBody.Load()
	return e, nil
}

// Awake implements endpoint.Source.
func (p *programs) Awake(id.Deployment) (*endpoint.Endpoint, bool) {
	if p.way != byAll || p.refuse.Load() != nil {
		return nil, false
	}
	p.passed.Add(1)
	return p.endpoint(), true
}

func (p *programs) endpoint() *endpoint.Endpoint {
	p.held.Add(1)
	return &endpoint.Endpoint{
		Transport: p.transport,
		Upstream:  p.pool,
		FirstByte: time.Duration(p.firstByte.Load()),
		Answered:  func(_ int, n int64, _ time.Duration) { p.heard.Add(n) },
		Failed:    p.fail,
		Release:   func() { p.held.Add(-1) },
	}
}

func (p *programs) fail(why string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failed = append(p.failed, why)
}

// Ways to a program: every request through ReverseProxy, every request through net/http's server, or all ways as in
// production.
const (
	byReverseProxy = iota
	byServer
	byAll
)

func startProgram(t testing.TB, h http.HandlerFunc, change ...func(*Config)) *programs {
	return startProgramBy(t, byAll, h, change...)
}

func startProgramBy(t testing.TB, way int, h http.HandlerFunc, change ...func(*Config)) *programs {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	return startProgramAt(t, way, srv.Listener.Addr().String(), change...)
}

func startProgramAt(t testing.TB, way int, addr string, change ...func(*Config)) *programs {
	t.Helper()
	p := &programs{way: way}
	dial := func(ctx context.Context) (net.Conn, error) { return new(net.Dialer).DialContext(ctx, "tcp", addr) }
	transport := &http.Transport{
		DisableCompression:     true,
		MaxResponseHeaderBytes: 32 << 10,
		DialContext:            func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) },
	}
	p.transport = transport
	if way != byReverseProxy {
		p.pool = upstream.New(upstream.Config{Dial: dial})
		t.Cleanup(p.pool.CloseIdle)
	}
	t.Cleanup(transport.CloseIdleConnections)
	p.world = start(t, func(c *Config) {
		c.Programs = map[string]endpoint.Source{"node": p}
		for _, f := range change {
			f(c)
		}
		c.FirstByte = 2 * time.Second
	})
	err := p.DB.Write(t.Context(), func(tx *db.Tx) error {
		tx.Notify("live")
		_, err := tx.Exec(t.Context(), `
			INSERT INTO live (host_label, site_id, release, deployment_id, state, version, backend, runtime) VALUES ('app', 's1', 'r', 'dep_1', 'live', $1, 'program', 'node')`, p.version.Add(1))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	p.until("the row is in force", func() bool { f := p.table.hosts().find("app"); return f != nil && f.backend == "program" })
	return p
}

func TestProgramSeesWhoAsks(t *testing.T) {
	t.Parallel()
	p := startProgram(t, func(w http.ResponseWriter, r *http.Request) {
		json.NewEncoder(w).Encode(map[string]any{"host": r.Host, "uri": r.RequestURI, "header": r.Header})
	})
	// Requests are written by hand because a client wouldn't send some of them.
	c, err := tls.Dial("tcp", p.https, &tls.Config{RootCAs: p.roots, ServerName: "app.sites.test", NextProtos: []string{"http/1.1"}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	io.WriteString(c, "GET //a/%2e%2e/b?x=1;y=2 HTTP/1.1\r\nHost: app.sites.test\r\n"+
		"X-Forwarded-For: 6.6.6.6\r\nX-Forwarded-Host: evil.test\r\nX-Forwarded-Proto: gopher\r\nX-Forwarded-Prefix: /evil\r\nX-Forwarded: 6.6.6.6\r\nx_forwarded_for: 6.6.6.6\r\nX.Forwarded.For: 6.6.6.6\r\nX-Forwarded.Host: evil.test\r\nx.real-ip: 6.6.6.6\r\n"+
		"X-Real-IP: 6.6.6.6\r\nX_Real_Ip: 6.6.6.6\r\nForwarded: for=6.6.6.6\r\nProxy: http://6.6.6.6\r\nConnection: X-Forwarded-For, close\r\nCookie: __Host-slipway_access=x; a=b; __Host-slipway_member=y\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var seen struct {
		Host, URI string
		Header    http.Header
	}
	text, _ := io.ReadAll(resp.Body)
	if err := json.Unmarshal(text, &seen); err != nil {
		t.Fatalf("%d %s", resp.StatusCode, text)
	}
	if strings.Contains(string(text), "6.6.6.6") || strings.Contains(string(text), "evil") || strings.Contains(string(text), "gopher") {
		t.Errorf("what the visitor forged came through: %s", text)
	}
	for name, want := range map[string]string{
		"X-Forwarded-For":   "127.0.0.1",
		"X-Real-Ip":         "127.0.0.1",
		"X-Forwarded-Proto": "https",
		"X-Forwarded-Host":  "app.sites.test",
		"Forwarded":         `for=127.0.0.1;host="app.sites.test";proto=https`,
		"Cookie":            "a=b",
	} {
		if got := seen.Header.Values(name); len(got) != 1 || got[0] != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if seen.Host != "app.sites.test" {
		t.Errorf("host %q", seen.Host)
	}
}

func TestProgramAbsoluteFormRefused(t *testing.T) {
	t.Parallel()
	p := startProgram(t, func(http.ResponseWriter, *http.Request) { t.Error("the program was asked") })
	for _, target := range []string{"http://169.254.169.254/latest", "https://app.sites.test/", "ftp://app.sites.test/"} {
		c, err := tls.Dial("tcp", p.https, &tls.Config{RootCAs: p.roots, ServerName: "app.sites.test", NextProtos: []string{"http/1.1"}})
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: app.sites.test\r\nConnection: close\r\n\r\n", target)
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil || resp.StatusCode != 400 {
			t.Errorf("%s: %v, %v", target, resp, err)
		}
		c.Close()
	}
}

func TestProgramUpgrade(t *testing.T) {
	t.Parallel()
	p := startProgram(t, func(w http.ResponseWriter, r *http.Request) {
		conn, buf, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		io.WriteString(buf, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		buf.Flush()
		for {
			line, err := buf.ReadString('\n')
			if err != nil {
				return
			}
			io.WriteString(buf, "echo "+line)
			buf.Flush()
		}
	})
	c, err := tls.Dial("tcp", p.https, &tls.Config{RootCAs: p.roots, ServerName: "app.sites.test", NextProtos: []string{"http/1.1"}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	io.WriteString(c, "GET /chat HTTP/1.1\r\nHost: app.sites.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	r := bufio.NewReader(c)
	resp, err := http.ReadResponse(r, nil)
	if err != nil || resp.StatusCode != 101 || resp.Header.Get("Upgrade") != "websocket" {
		t.Fatal(resp, err)
	}
	for i := range 100 {
		fmt.Fprintf(c, "%d\n", i)
		if line, err := r.ReadString('\n'); line != fmt.Sprintf("echo %d\n", i) {
			t.Fatalf("%q, %v", line, err)
		}
	}
	if p.held.Load() != 1 {
		t.Errorf("%d hold the program while the connection is open, want 1", p.held.Load())
	}
	c.Close()
	p.until("the program is let go", func() bool { return p.held.Load() == 0 })
}

// When one side of an upgraded connection closes, the other is closed too, even if it doesn't react. A vanished visitor
// or a hanging program holds nothing forever.
func TestUpgradeEnds(t *testing.T) {
	t.Parallel()
	for way, by := range map[string]int{"ReverseProxy": byReverseProxy, "server": byServer, "all": byAll} {
		for what, programEnds := range map[string]bool{"the visitor ends": false, "the program ends": true} {
			t.Run(way+", "+what, func(t *testing.T) {
				t.Parallel()
				over := make(chan struct{})
				p := startProgramBy(t, by, func(w http.ResponseWriter, r *http.Request) {
					conn, buf, err := http.NewResponseController(w).Hijack()
					if err != nil {
						t.Error(err)
						return
					}
					defer conn.Close()
					io.WriteString(buf, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nhello\n")
					buf.Flush()
					if programEnds {
						conn.(interface{ CloseWrite() error }).CloseWrite()
					}
					<-over // like Node, it sees the end but keeps its own side open
				})
				t.Cleanup(func() { close(over) })
				c, err := tls.Dial("tcp", p.https, &tls.Config{
					RootCAs:    p.roots,
					ServerName: "app.sites.test",
					NextProtos: []string{"http/1.1"},
				})
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				io.WriteString(c, "GET /chat HTTP/1.1\r\nHost: app.sites.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
				r := bufio.NewReader(c)
				if resp, err := http.ReadResponse(r, nil); err != nil || resp.StatusCode != 101 {
					t.Fatal(resp, err)
				}
				if line, err := r.ReadString('\n'); line != "hello\n" {
					t.Fatalf("%q, %v", line, err)
				}
				if n := p.held.Load(); n != 1 {
					t.Errorf("%d hold the program while the connection is open, want 1", n)
				}
				if !programEnds {
					c.Close()
				}
				p.until("the program is let go", func() bool { return p.held.Load() == 0 })
				if programEnds {
					_ = c.SetReadDeadline(time.Now().Add(time.Minute))
					if _, err := io.ReadAll(r); errors.Is(err, os.ErrDeadlineExceeded) {
						t.Error("the visitor's connection stays")
					}
				}
			})
		}
	}
}

// Over HTTP/2, a program can answer before it has the whole request, while its visitor sends on or leaves.
func TestEarlyAnswerOverHTTP2(t *testing.T) {
	t.Parallel()
	for way, by := range map[string]int{"ReverseProxy": byReverseProxy, "server": byServer, "all": byAll} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			p := startProgramBy(t, by, func(w http.ResponseWriter, _ *http.Request) {
				_ = http.NewResponseController(w).EnableFullDuplex() // otherwise net/http reads the request first
				w.Header().Set("Content-Length", "5")
				io.WriteString(w, "early")
				w.(http.Flusher).Flush()
			})
			for range 20 {
				client := &http.Client{
					Transport: &http.Transport{
						TLSClientConfig:   &tls.Config{RootCAs: p.roots, ServerName: "app.sites.test"},
						ForceAttemptHTTP2: true,
					},
				}
				body, more := io.Pipe()
				req, err := http.NewRequestWithContext(t.Context(), "POST", "https://"+p.https+"/", body)
				if err != nil {
					t.Fatal(err)
				}
				req.Host = "app.sites.test"
				go more.Write([]byte("a part"))
				resp, err := client.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				if text, err := io.ReadAll(resp.Body); string(text) != "early" {
					t.Fatalf("%d %q %v", resp.StatusCode, text, err)
				}
				resp.Body.Close()
				more.Close()
				client.CloseIdleConnections()
			}
			p.until("the program is let go", func() bool { return p.held.Load() == 0 })
		})
	}
}

// Server-sent events reach the visitor as the program sends them, before the response ends.
func TestProgramStreams(t *testing.T) {
	t.Parallel()
	next := make(chan string)
	p := startProgram(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for text := range next {
			fmt.Fprintf(w, "data: %s\n\n", text)
			http.NewResponseController(w).Flush()
		}
		<-r.Context().Done()
	})
	client := p.client()
	client.Timeout = 0
	ctx, cancel := context.WithCancel(t.Context())
	req, _ := http.NewRequestWithContext(ctx, "GET", "https://app.sites.test/events", nil)
	go func() { next <- "0" }()
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	r := bufio.NewReader(resp.Body)
	for i := range 50 {
		if line, err := r.ReadString('\n'); line != fmt.Sprintf("data: %d\n", i) {
			t.Fatalf("%q, %v", line, err)
		}
		r.ReadString('\n')
		if i < 49 {
			next <- fmt.Sprint(i + 1)
		}
	}
	close(next)
	cancel() // the visitor leaves, which cancels the program's request
	p.until("the program is let go", func() bool { return p.held.Load() == 0 })
}

// An upload reaches the program unchanged and is never held in memory. The test isn't parallel because it measures the
// heap.
func TestProgramLargeUpload(t *testing.T) {
	p := startProgram(t, func(w http.ResponseWriter, r *http.Request) {
		h := sha256.New()
		n, err := io.Copy(h, r.Body)
		fmt.Fprintf(w, "%d %x %v", n, h.Sum(nil), err)
	})
	const size = 256 << 20
	var before, now runtime.MemStats
	runtime.ReadMemStats(&before)
	h := sha256.New()
	client := p.client()
	client.Timeout = 0
	resp, err := client.Post("https://app.sites.test/", "application/octet-stream", io.TeeReader(io.LimitReader(zeros{}, size), h))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if b, _ := io.ReadAll(resp.Body); string(b) != fmt.Sprintf("%d %x <nil>", size, h.Sum(nil)) {
		t.Errorf("%d %s", resp.StatusCode, b)
	}
	runtime.ReadMemStats(&now)
	if grown := int64(now.HeapSys) - int64(before.HeapSys); grown > size/4 {
		t.Errorf("the heap has grown by %d MiB for an upload of %d MiB", grown>>20, size>>20)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestProgramTakesTooLong(t *testing.T) {
	t.Parallel()
	p := startProgram(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/silent":
			<-r.Context().Done()
		case "/upload": // the timeout counts from the last byte received
			io.Copy(io.Discard, r.Body)
			io.WriteString(w, "got it")
		}
	})
	p.get("https://app.sites.test/silent").want(t, 504, "took too long")
	p.until("the program is let go", func() bool { return p.held.Load() == 0 })

	r, w := io.Pipe()
	go func() {
		for range 8 { // longer in total than the program's timeout
			w.Write([]byte("some"))
			time.Sleep(500 * time.Millisecond)
		}
		w.Close()
	}()
	resp, err := p.client().Post("https://app.sites.test/upload", "text/plain", r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if b, _ := io.ReadAll(resp.Body); resp.StatusCode != 200 || string(b) != "got it" {
		t.Errorf("a slow upload: %d %s", resp.StatusCode, b)
	}
}

func TestProgramCrashesWhileAnswering(t *testing.T) {
	t.Parallel()
	p := startProgram(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/hints":
			w.WriteHeader(http.StatusEarlyHints)
		case "/half":
			w.Header().Set("Content-Length", "100")
			io.WriteString(w, "half of it")
			http.NewResponseController(w).Flush()
		}
		panic(http.ErrAbortHandler)
	})
	p.get("https://app.sites.test/").want(t, 502, "didn&#39;t answer")
	p.get("https://app.sites.test/hints").want(t, 502, "didn&#39;t answer")
	p.do("POST", "https://app.sites.test/").want(t, 502, "didn&#39;t answer")
	resp, err := p.client().Get("https://app.sites.test/half")
	if err == nil {
		defer resp.Body.Close()
		if b, err := io.ReadAll(resp.Body); err == nil {
			t.Errorf("half an answer passed for a whole one: %q", b)
		}
	}
	p.until("the program is let go", func() bool { return p.held.Load() == 0 })
}

func TestProgramNotWoken(t *testing.T) {
	t.Parallel()
	p := startProgram(t, func(http.ResponseWriter, *http.Request) { t.Error("the program was asked") })
	for after, want := range map[time.Duration]string{0: "5", 2500 * time.Millisecond: "3", time.Minute: "60"} {
		var err error = &fault.Error{
			Kind:       fault.Unavailable,
			Message:    "crashed",
			Details:    "secret path /srv",
			Code:       "application_crashed",
			RetryAfter: after,
		}
		p.refuse.Store(&err)
		a := p.get("https://app.sites.test/")
		a.want(t, 503, "can&#39;t be reached")
		if got := a.header.Get("Retry-After"); got != want {
			t.Errorf("Retry-After %q, want %q", got, want)
		}
		if strings.Contains(a.body, "secret path") {
			t.Error("the page shows visitors details that are only for the owner")
		}
	}
	if p.held.Load() != 0 {
		t.Error("a refused request holds the program")
	}
}

// A site can't set a cookie that other sites receive.
func TestProgramCookies(t *testing.T) {
	t.Parallel()
	p := startProgram(t, func(w http.ResponseWriter, r *http.Request) {
		for _, c := range []string{
			"own=1", "host=1; Domain=app.sites.test", "shared=1; Domain=sites.test", "dotted=1; domain=.SITES.test",
			"top=1; Domain=test", "odd=1; ;domain = sites.test",
		} {
			w.Header().Add("Set-Cookie", c)
		}
	})
	got := strings.Join(p.get("https://app.sites.test/").header.Values("Set-Cookie"), "\n")
	for _, name := range []string{"own", "host"} {
		if !strings.Contains(got, name+"=1") {
			t.Errorf("%s was dropped", name)
		}
	}
	for _, name := range []string{"shared", "dotted", "top", "odd"} {
		if strings.Contains(got, name+"=1") {
			t.Errorf("%s came through: %s", name, got)
		}
	}
}

// A slow reader gets the whole response, and when a visitor leaves the program's request ends.
func TestProgramSlowReader(t *testing.T) {
	t.Parallel()
	block := strings.Repeat("x", 1<<20)
	p := startProgram(t, func(w http.ResponseWriter, r *http.Request) {
		for range 64 {
			if _, err := io.WriteString(w, block); err != nil {
				return
			}
		}
	})
	client := p.client()
	client.Timeout = 0
	resp, err := client.Get("https://app.sites.test/")
	if err != nil {
		t.Fatal(err)
	}
	total := 0
	buf := make([]byte, 1<<20)
	for i := 0; ; i++ {
		n, err := resp.Body.Read(buf)
		total += n
		if i%200 == 0 {
			runtime.Gosched()
		}
		if err != nil {
			break
		}
	}
	resp.Body.Close()
	if total != 64<<20 {
		t.Errorf("%d bytes came, want %d", total, 64<<20)
	}
	resp, err = client.Get("https://app.sites.test/")
	if err != nil {
		t.Fatal(err)
	}
	io.ReadFull(resp.Body, buf)
	resp.Body.Close() // leaves in the middle of the response
	p.until("the program is let go", func() bool { return p.held.Load() == 0 })
}

// The edge doesn't compress a program's responses: the length of a compressed page with both a secret and the visitor's
// input would reveal the secret (BREACH). Compression by the program is kept.
func TestProgramNotCompressed(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a page of many equal words ", 1000)
	for way := range 3 {
		p := startProgramBy(t, way, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			w.Header().Set("X-Asked", r.Header.Get("Accept-Encoding"))
			if r.URL.Path == "/own" {
				w.Header().Set("Content-Encoding", "gzip")
				w.Header().Set("Vary", "Accept-Encoding")
				io.WriteString(w, "as it is")
				return
			}
			io.WriteString(w, long)
		})
		const asks = "gzip, br, zstd"
		p.get("https://app.sites.test/", "Accept-Encoding: "+asks).want(t, 200, long).head(t, "Content-Encoding", "").head(
			t,
			"X-Asked",
			asks,
		)
		p.get("https://app.sites.test/own", "Accept-Encoding: "+asks).want(t, 200, "as it is").head(t, "Content-Encoding", "gzip").head(
			t,
			"Vary",
			"Accept-Encoding",
		)
	}
}
