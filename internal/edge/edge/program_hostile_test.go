package edge

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"slipway/internal/edge/response"
	"slipway/internal/edge/upstream"
	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
)

// An upgrade request whose target names another host never reaches a program, which might connect to it (the class of
// CVE-2026-44578). A request for another tenant's host on the same connection doesn't either.
func TestProgramUpgradeTargets(t *testing.T) {
	t.Parallel()
	for way := range 3 {
		p := startProgramBy(t, way, func(_ http.ResponseWriter, r *http.Request) {
			t.Errorf("way %d: the program was asked for %s", way, r.RequestURI)
		})
		for _, tt := range []struct {
			line, host string
			status     int
		}{
			{"GET http://169.254.169.254/latest/meta-data/", "app.sites.test", 400},
			{"GET https://app.sites.test/chat", "app.sites.test", 400},
			{"GET ws://127.0.0.1:6379/", "app.sites.test", 400},
			{"GET http:///etc/passwd", "app.sites.test", 400},
			{"GET http:127.0.0.1/", "app.sites.test", 400},
			{"GET 169.254.169.254:80", "app.sites.test", 400},
			{"CONNECT 169.254.169.254:80", "app.sites.test", 400},
			{"GET /chat", "169.254.169.254", 421},
			{"GET /chat", "other.sites.test", 421},
			{"GET /chat", "app.sites.test\r\nHost: 169.254.169.254", 400},
			{"GET http://169.254.169.254/", "169.254.169.254", 400},
		} {
			c, err := tls.Dial("tcp", p.https, &tls.Config{
				RootCAs:    p.roots,
				ServerName: "app.sites.test",
				NextProtos: []string{"http/1.1"},
			})
			if err != nil {
				t.Fatal(err)
			}
			c.SetDeadline(time.Now().Add(time.Minute))
			fmt.Fprintf(c,
				"%s HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n",
				tt.line, tt.host)
			resp, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil || resp.StatusCode != tt.status {
				t.Errorf("way %d: %s for %s: %v, %v; want %d", way, tt.line, tt.host, resp, err, tt.status)
			}
			c.Close()
		}
	}
}

// A method that isn't a token, or a port that isn't a number, is refused before a program could misread the request
// line.
func TestProgramRequestLines(t *testing.T) {
	t.Parallel()
	for way := range 3 {
		p := startProgramBy(t, way, func(_ http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/asked" || r.Host != "app.sites.test" && r.Host != "app.sites.test:8443" {
				t.Errorf("way %d: the program was asked for %s of %s", way, r.RequestURI, r.Host)
			}
		})
		for _, tt := range []struct {
			method, host string
			status       string
		}{
			{"GET", "app.sites.test", "200"},
			{"PROPFIND", "app.sites.test:8443", "200"},
			{"GET /smug HTTP/1.1 ", "app.sites.test", "400"},
			{"GET\r\nX: y", "app.sites.test", "400"},
			{"GET\x00", "app.sites.test", "400"},
			{"GET", "app.sites.test:8443/..//evil.test", "400"},
			{"GET", "app.sites.test:80 x", "400"},
		} {
			c, err := tls.Dial("tcp", p.https, &tls.Config{RootCAs: p.roots, ServerName: "app.sites.test", NextProtos: []string{"h2"}})
			if err != nil {
				t.Fatal(err)
			}
			c.SetDeadline(time.Now().Add(time.Minute))
			if got := status2(c, tt.method, tt.host, "/asked"); got != tt.status && !(tt.status == "400" && got == "reset") {
				t.Errorf("way %d: %q to %q: %s, want %s", way, tt.method, tt.host, got, tt.status)
			}
			c.Close()
		}
	}
}

// status2 sends a hand-made HTTP/2 request and returns its status, or that the stream was reset.
func status2(c *tls.Conn, method, host, path string) string {
	io.WriteString(c, http2.ClientPreface)
	f := http2.NewFramer(c, c)
	f.WriteSettings()
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	for _, field := range [][2]string{{":method", method}, {":scheme", "https"}, {":authority", host}, {":path", path}} {
		enc.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]})
	}
	f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndHeaders: true, EndStream: true})
	f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	for {
		frame, err := f.ReadFrame()
		switch frame := frame.(type) {
		case *http2.MetaHeadersFrame:
			return frame.PseudoValue("status")
		case *http2.RSTStreamFrame:
			return "reset"
		}
		if err != nil {
			return err.Error()
		}
	}
}

// An upgrade to another HTTP version, in which a visitor could forge its address, isn't forwarded. An upgrade to
// another protocol is.
func TestProgramUpgradeToHTTP(t *testing.T) {
	t.Parallel()
	for way := range 3 {
		p := startProgramBy(t, way, func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Upgrade") == "" && r.Header.Get("Http2-Settings") == "" &&
				!strings.Contains(strings.ToLower(r.Header.Get("Connection")), "upgrade") {
				io.WriteString(w, "no upgrade")
				return
			}
			c, buf, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			fmt.Fprintf(buf, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", r.Header.Get("Upgrade"))
			buf.Flush()
		})
		for fields, status := range map[string]int{
			"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA": 200,
			"Connection: Upgrade\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA":                 200,
			"Connection: upgrade\r\nUpgrade: H2C":                                                             200,
			"Connection: Upgrade\r\nUpgrade: websocket, h2c":                                                  200,
			"Connection: Upgrade\r\nUpgrade: x\r\nUpgrade: h2c":                                               101, // upgrades to x
			"Connection: Upgrade\r\nUpgrade: HTTP/2.0":                                                        200,
			"Connection: Upgrade\r\nUpgrade: TLS/1.0, HTTP/1.1":                                               200,
			"Connection: Upgrade\r\nUpgrade:\th2c ":                                                           200,
			"Connection: keep-alive\r\nUpgrade: h2c":                                                          200,
			"Connection: HTTP2-Settings\r\nHTTP2-Settings: AAMAAABkAARAAAAAAA":                                200,
			"Connection: Upgrade\r\nUpgrade: websocket":                                                       101,
			"Connection: keep-alive, Upgrade\r\nUpgrade: chat/2":                                              101,
		} {
			c, err := tls.Dial("tcp", p.https, &tls.Config{
				RootCAs:    p.roots,
				ServerName: "app.sites.test",
				NextProtos: []string{"http/1.1"},
			})
			if err != nil {
				t.Fatal(err)
			}
			c.SetDeadline(time.Now().Add(time.Minute))
			fmt.Fprintf(c, "GET /chat HTTP/1.1\r\nHost: app.sites.test\r\n%s\r\n\r\n", fields)
			resp, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil || resp.StatusCode != status {
				t.Errorf("way %d: %q: %v, %v; want %d", way, fields, resp, err, status)
			}
			c.Close()
		}
	}
}

// When a limit is reached, a program's site serves an error page and its public static files, and never the program's
// own files.
func TestProgramLimitsFailClosed(t *testing.T) {
	t.Parallel()
	p := startProgram(t, func(http.ResponseWriter, *http.Request) { t.Error("the program was asked") })
	for _, q := range []string{`DROP VIEW paused_sites`, `CREATE TABLE paused_sites (site_id TEXT, month BIGINT, begins BIGINT DEFAULT 0, ends BIGINT DEFAULT 0)`} {
		if err := p.DB.Admin(t.Context(), q); err != nil {
			t.Fatal(err)
		}
	}
	p.switchTo(p.publish(map[string]string{"robots.txt": "for everybody"}))
	private := []string{
		"/", "/server/index.js", "/.env", "/.git/config", "/package.json", "/node_modules/x/index.js",
		"/.next/server/app.js", "/slipway.toml", "/..%2f.env", "/robots.txt/../.env", "/%2e%2e/server.js",
	}
	check := func(state string, status int, files int) {
		t.Helper()
		for range 2 {
			for _, path := range private {
				for _, method := range []string{"GET", "HEAD", "POST"} {
					if a := p.do(method,
						"https://app.sites.test"+path); a.status != status && a.status != 404 ||
						strings.Contains(a.body, "everybody") {
						t.Errorf("%s, %s %s: %d %.100q", state, method, path, a.status, a.body)
					}
				}
			}
			if a := p.get("https://app.sites.test/robots.txt"); a.status != files {
				t.Errorf("%s, a public file: %d, want %d", state, a.status, files)
			}
		}
	}
	for _, f := range []*fault.Error{
		{Kind: fault.Unavailable, Message: "100 programs of this account are running already", Code: "too_many_programs"},
		{Kind: fault.Payment, Message: "Limit reached: running programs", Code: "limit_reached"},
		{Kind: fault.Limited, Message: "Too many requests"},
	} {
		var err error = f
		p.refuse.Store(&err)
		check(f.Message, 503, 200)
	}
	err := io.ErrUnexpectedEOF // the limit can't be read
	p.refuse.Store(&err)
	check("a failure of ours", 503, 200)
	if err := p.DB.Write(t.Context(), func(tx *db.Tx) error {
		tx.Notify("paused")
		now := time.Now().UTC()
		_, err := tx.Exec(t.Context(), `INSERT INTO paused_sites (site_id, month) VALUES ('s1', $1)`, now.Year()*100+int(now.Month()))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	p.until("the site is paused", func() bool { return p.get("https://app.sites.test/robots.txt").status == 503 })
	check("bandwidth used up", 503, 503)
	if p.held.Load() != 0 {
		t.Error("a refused request holds the program")
	}
}

// Extra or unexpected bytes in a program's response never reach this visitor or the next one.
func TestProgramOddAnswers(t *testing.T) {
	t.Parallel()
	const kind = "Content-Type: text/plain\r\n"
	addr, _ := rawProgram(t, map[string]string{
		"/":          "HTTP/1.1 200 OK\r\n" + kind + "Content-Length: 2\r\n\r\nok",
		"/unchanged": "HTTP/1.1 304 Not Modified\r\nEtag: \"x\"\r\nContent-Length: 4\r\n\r\nevil",
		"/none":      "HTTP/1.1 204 No Content\r\n\r\nevil",
		"/reset":     "HTTP/1.1 205 Reset Content\r\nContent-Length: 0\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil",
		"/trailers":  "HTTP/1.1 200 OK\r\n" + kind + "Trailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX-Sum: 1\r\nContent-Length: 99\r\n\r\n",
		"/huge":      "HTTP/1.1 200 OK\r\n" + kind + "X-Large: " + strings.Repeat("x", 64<<10) + "\r\nContent-Length: 2\r\n\r\nok",
		"/many":      "HTTP/1.1 200 OK\r\n" + kind + strings.Repeat("X-Many: 1\r\n", 5000) + "Content-Length: 2\r\n\r\nok",
		"/switch":    "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: other\r\n\r\nevil<close>",
	})
	for way := range 3 {
		p := startProgramAt(t, way, addr)
		for _, tt := range []struct {
			request string // request line and fields
			status  int
			body    string // prefix; the edge's own pages aren't compared
		}{
			{
				"GET /unchanged",
				304,
				"",
			},
			{
				"GET /none",
				204,
				"",
			},
			{"GET /reset", 205, ""},
			{"HEAD /", 200, ""},
			{"GET /trailers", 200, "ok"},
			{"HEAD /trailers", 200, ""},
			{"GET /huge", 502, "<"},
			{"GET /many", 502, "<"},
			{"GET /switch", 502, "<"},
			{"POST /switch", 502, "<"},
			{"GET /\r\nConnection: Upgrade\r\nUpgrade: websocket", 200, "ok"}, // the program refuses the upgrade
			{"GET /switch\r\nConnection: Upgrade\r\nUpgrade: websocket", 502, "<"},
			{
				"GET /\r\nTE: trailers, gzip\r\nConnection: TE",
				200,
				"ok",
			},
			{"GET /\r\nConnection: Host, Content-Length, close-not", 200, "ok"},
			{
				"POST /\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\nhello",
				200,
				"ok",
			},
			{"POST /\r\nExpect: something\r\nContent-Length: 5\r\n\r\nhello", 417, ""},
			{
				"POST /\r\nTransfer-Encoding: chunked\r\nTrailer: X-Forwarded-For\r\n\r\n5\r\nhello\r\n0\r\nX-Forwarded-For: 6.6.6.6\r\n\r\n",
				200,
				"ok",
			},
		} {
			c, err := tls.Dial("tcp", p.https, &tls.Config{
				RootCAs:    p.roots,
				ServerName: "app.sites.test",
				NextProtos: []string{"http/1.1"},
			})
			if err != nil {
				t.Fatal(err)
			}
			c.SetDeadline(time.Now().Add(time.Minute))
			line, rest, _ := strings.Cut(tt.request, "\r\n")
			if rest != "" && !strings.Contains(rest, "\r\n\r\n") {
				rest += "\r\n\r\n"
			} else if rest == "" {
				rest = "\r\n"
			}
			fmt.Fprintf(c, "%s HTTP/1.1\r\nHost: app.sites.test\r\n%s", line, rest)
			method, _, _ := strings.Cut(line, " ")
			r := bufio.NewReader(c)
			resp, err := http.ReadResponse(r, &http.Request{Method: method})
			if err == nil && resp.StatusCode == 100 {
				resp, err = http.ReadResponse(r, &http.Request{Method: method})
			}
			if err != nil {
				t.Errorf("way %d, %q: %v", way, tt.request, err)
				c.Close()
				continue
			}
			text, err := io.ReadAll(resp.Body)
			if resp.StatusCode != tt.status || err != nil || !strings.HasPrefix(string(text), tt.body) ||
				strings.Contains(string(text), "evil") || resp.Header.Get("Content-Length") == "99" {
				t.Errorf("way %d, %q: %d %.100q %v; want %d %q", way, tt.request, resp.StatusCode, text, err, tt.status, tt.body)
			}
			if !resp.Close { // the next response belongs to the next request
				fmt.Fprint(c, "GET / HTTP/1.1\r\nHost: app.sites.test\r\n\r\n")
				if next, err := http.ReadResponse(r, nil); err == nil {
					if text, _ := io.ReadAll(next.Body); next.StatusCode != 200 || string(text) != "ok" {
						t.Errorf("way %d, after %q: %d %.100q", way, tt.request, next.StatusCode, text)
					}
				}
			}
			c.Close()
		}
		p.until("the program is let go", func() bool { return p.held.Load() == 0 })
	}
}

// Visitors see that the program didn't answer. The site's log says why.
func TestProgramFailuresAreLogged(t *testing.T) {
	t.Parallel()
	addr, _ := rawProgram(t, map[string]string{
		"/huge":  "HTTP/1.1 200 OK\r\nX-Large: " + strings.Repeat("x", 64<<10) + "\r\nContent-Length: 2\r\n\r\nok",
		"/ends":  "<close>",
		"/other": "SSH-2.0-\x1b[2J" + strings.Repeat("x", 1000) + "\r\n\r\n<close>",
	})
	for way := range 3 {
		p := startProgramAt(t, way, addr)
		c := p.client()
		c.Transport.(*http.Transport).ForceAttemptHTTP2 = false // the fast path speaks HTTP/1.1 to programs
		for _, tt := range []struct{ path, want string }{
			{"/ends?token=s3cret", "GET /ends was answered with 502: the application closed the connection before it answered"},
			{"/huge", "GET /huge was answered with 502: "},
			{"/other", "GET /other was answered with 502: "},
		} {
			resp, err := c.Get("https://app.sites.test" + tt.path)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			var line string
			p.until("the log has a line", func() bool {
				p.mu.Lock()
				defer p.mu.Unlock()
				if len(p.failed) > 0 {
					line, p.failed = p.failed[0], nil
				}
				return line != ""
			})
			if resp.StatusCode != 502 || !strings.HasPrefix(line, tt.want) ||
				!strings.Contains(line, "(request "+resp.Header.Get(response.RequestField)+")") ||
				len(line) > len(tt.want)+250 || strings.ContainsAny(line, "\x1b\r\n") {
				t.Errorf("way %d, %s: %d, the log has %q", way, tt.path, resp.StatusCode, line)
			}
		}
		if (p.passed.Load() > 0) != (way == byAll) {
			t.Errorf("way %d: the fast path had %d requests", way, p.passed.Load())
		}
	}
}

// An HTTP/1.0 client gets the final response without informational ones.
func TestProgramOldClient(t *testing.T) {
	t.Parallel()
	for way := range 3 {
		p := startProgramBy(t, way, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Link", "</a.css>; rel=preload")
			w.WriteHeader(http.StatusEarlyHints)
			io.WriteString(w, "ok")
		})
		for version, first := range map[string]string{"1.0": "HTTP/1.0 200 OK", "1.1": "HTTP/1.1 103 Early Hints"} {
			c, err := tls.Dial("tcp", p.https, &tls.Config{
				RootCAs:    p.roots,
				ServerName: "app.sites.test",
				NextProtos: []string{"http/1.1"},
			})
			if err != nil {
				t.Fatal(err)
			}
			c.SetDeadline(time.Now().Add(time.Minute))
			fmt.Fprintf(c, "GET / HTTP/%s\r\nHost: app.sites.test\r\nConnection: close\r\n\r\n", version)
			text, err := io.ReadAll(c)
			if err != nil || !strings.HasPrefix(string(text), first+"\r\n") ||
				!strings.HasSuffix(string(text), "\r\nok") && version == "1.0" {
				t.Errorf("way %d, HTTP/%s: %q, %v; want %s first", way, version, text, err, first)
			}
			c.Close()
		}
	}
}

// A site's limit on request sizes applies with and without a Content-Length, and visitors get a 413.
func TestProgramRequestLimit(t *testing.T) {
	t.Parallel()
	var most atomic.Int64
	for way := range 3 {
		p := startProgramBy(t, way, func(w http.ResponseWriter, r *http.Request) {
			n, err := io.Copy(io.Discard, r.Body)
			if n > 1<<20 {
				most.Store(n)
			}
			fmt.Fprintf(w, "%d %v", n, err)
		})
		p.maxBody.Store(1 << 20)
		for _, tt := range []struct {
			size    int64
			chunked bool
			status  int
		}{
			{0, false, 200},
			{1 << 20, false, 200},
			{1<<20 + 1, false, 413},
			{64 << 20, false, 413},
			{1 << 20, true, 200},
			{1<<20 + 1, true, 413},
			{8 << 20, true, 413},
		} {
			var body io.Reader = io.LimitReader(zeros{}, tt.size)
			req, err := http.NewRequestWithContext(t.Context(), "POST", "https://app.sites.test/", body)
			if err != nil {
				t.Fatal(err)
			}
			req.ContentLength = tt.size
			if tt.chunked {
				req.ContentLength = -1
			}
			client := p.client()
			resp, err := client.Do(req)
			if err != nil {
				if tt.status == 413 { // the connection may close while the rest is sent
					continue
				}
				t.Fatal(err)
			}
			if resp.StatusCode != tt.status {
				t.Errorf("way %d, %d bytes, chunked %v: %d, want %d", way, tt.size, tt.chunked, resp.StatusCode, tt.status)
			}
			resp.Body.Close()
		}
	}
	if n := most.Load(); n > 1<<20 {
		t.Errorf("the program got %d bytes", n)
	}
}

// A site can set how long its program may take until the first byte of a response.
func TestProgramResponseTime(t *testing.T) {
	t.Parallel()
	for way := range 3 {
		p := startProgramBy(t, way, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
		p.proxy.FirstByte = time.Hour
		p.firstByte.Store(int64(50 * time.Millisecond))
		p.get("https://app.sites.test/").want(t, 504, "took too long")
		p.do("POST", "https://app.sites.test/").want(t, 504, "took too long")
	}
}

// A program that doesn't read its request times out like one that doesn't answer.
func TestProgramReadsNothing(t *testing.T) {
	t.Parallel()
	for _, way := range []int{byServer, byAll} {
		p := startProgramBy(t, way, nil)
		p.pool = upstream.New(upstream.Config{Dial: func(context.Context) (net.Conn, error) {
			ours, theirs := net.Pipe() // writes block until they are read
			t.Cleanup(func() { theirs.Close() })
			return ours, nil
		}})
		p.firstByte.Store(int64(50 * time.Millisecond))
		p.get("https://app.sites.test/").want(t, 504, "took too long")
		p.do("POST", "https://app.sites.test/").want(t, 504, "took too long")
	}
}

// Response bytes are counted on each way to a program.
func TestProgramCountsBytes(t *testing.T) {
	t.Parallel()
	for way := range 3 {
		p := startProgramBy(t, way, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, strings.Repeat("x", 1000)) })
		p.get("https://app.sites.test/").want(t, 200, "x")
		p.do("POST", "https://app.sites.test/").want(t, 200, "x")
		p.do("HEAD", "https://app.sites.test/").want(t, 200, "")
		p.until("2000 bytes are counted", func() bool { return p.heard.Load() == 2000 })
	}
}
