package edge

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"slipway/internal/edge/response"
)

// rawProgram answers each request with the bytes given for its path, and closes the connection at "<close>".
func rawProgram(t *testing.T, answers map[string]string) (addr string, asked *atomic.Int64) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	asked = &atomic.Int64{}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				r := bufio.NewReader(c)
				for {
					req, err := http.ReadRequest(r)
					if err != nil {
						return
					}
					asked.Add(1)
					io.Copy(io.Discard, req.Body)
					text, end := strings.CutSuffix(answers[req.URL.Path], "<close>")
					if i := strings.Index(text,
						"\r\n\r\n"); req.Method == "HEAD" && i > 0 && req.URL.Path != "/split" && req.URL.Path != "/early" {
						text = text[:i+4]
					}
					io.WriteString(c, text)
					if end {
						return
					}
				}
			}()
		}
	}()
	return l.Addr().String(), asked
}

// withoutID removes the request ID, which differs in every answer, from h and from an error page of the edge.
func withoutID(h http.Header, body string) string {
	id := h.Get(response.RequestField)
	if id == "" {
		return body
	}
	h.Set(response.RequestField, "id")
	return strings.Replace(body, id, "id", 1)
}

// reply holds a response as the visitor reads it.
type reply struct {
	status  int
	fields  string
	body    string
	failure bool
}

func (p *programs) tell(t *testing.T, c net.Conn, r *bufio.Reader, method, path string) (v reply) {
	t.Helper()
	body := ""
	if method == "POST" {
		body = "Content-Length: 5\r\n\r\nhello"
	} else {
		body = "\r\n"
	}
	c.SetDeadline(time.Now().Add(time.Minute))
	fmt.Fprintf(c, "%s %s HTTP/1.1\r\nHost: app.sites.test\r\n%s", method, path, body)
	resp, err := http.ReadResponse(r, &http.Request{Method: method})
	for err == nil && resp.StatusCode < 200 { // informational responses are optional
		resp, err = http.ReadResponse(r, &http.Request{Method: method})
	}
	if err != nil {
		return reply{failure: true}
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	v = reply{status: resp.StatusCode, body: string(b), failure: err != nil}
	h := resp.Header.Clone()
	if h.Get("Date") == "" {
		t.Errorf("%s %s: no Date", method, path)
	}
	h.Del("Date")
	v.body = withoutID(h, v.body)
	if method != "HEAD" {
		h.Del("Content-Length") // framing is up to the server; the body was read completely above
	}
	for _, name := range slices.Sorted(maps.Keys(h)) {
		v.fields += fmt.Sprintln(name, h[name])
	}
	return v
}

// Visitors get the same response on each way to a program.
func TestProgramWaysAgree(t *testing.T) {
	t.Parallel()
	const kind = "Content-Type: text/plain\r\n"
	answers := map[string]string{
		"/plain":     "HTTP/1.1 200 OK\r\n" + kind + "Content-Length: 5\r\nX-A: b\r\nX-A: c\r\n\r\nhello",
		"/page":      "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 2\r\n\r\nok",
		"/chunks":    "HTTP/1.1 200 OK\r\n" + kind + "Transfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n",
		"/end":       "HTTP/1.1 200 OK\r\n" + kind + "\r\nhello<close>",
		"/old":       "HTTP/1.0 200 OK\r\n" + kind + "Content-Length: 5\r\n\r\nhello<close>",
		"/empty":     "HTTP/1.1 200 OK\r\n" + kind + "Content-Length: 0\r\n\r\n",
		"/none":      "HTTP/1.1 204 No Content\r\nX-A: b\r\n\r\n",
		"/unchanged": "HTTP/1.1 304 Not Modified\r\nEtag: \"x\"\r\n\r\n",
		"/away":      "HTTP/1.1 302 Found\r\n" + kind + "Location: /there?x=1;y=2\r\nContent-Length: 0\r\n\r\n",
		"/missing":   "HTTP/1.1 404 Nowhere To Be Seen\r\n" + kind + "Content-Length: 2\r\n\r\nno",
		"/broken":    "HTTP/1.1 500 Oh\r\n" + kind + "Content-Length: 2\r\n\r\nno",
		"/unknown":   "HTTP/1.1 299 Hm\r\n" + kind + "Content-Length: 2\r\n\r\nno",
		"/hop":       "HTTP/1.1 200 OK\r\n" + kind + "Content-Length: 2\r\nConnection: X-Secret, keep-alive\r\nX-Secret: 1\r\nKeep-Alive: timeout=5\r\nProxy-Authenticate: x\r\nUpgrade: h2c\r\nAlt-Svc: h3=\":1\"\r\nX-Accel-Redirect: /etc/passwd\r\nX-Sendfile: /etc/passwd\r\n\r\nok",
		"/cookies":   "HTTP/1.1 200 OK\r\n" + kind + "Content-Length: 2\r\nSet-Cookie: a=1; Domain=sites.test\r\nset-cookie: b=2\r\nSet-Cookie: c=3; domain=.test\r\n\r\nok",
		"/early":     "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 200 OK\r\n" + kind + "Content-Length: 2\r\n\r\nok",
		"/both":      "HTTP/1.1 200 OK\r\n" + kind + "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n2\r\nok\r\n0\r\n\r\n<close>",
		"/trailers":  "HTTP/1.1 200 OK\r\n" + kind + "Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
		"/large":     "HTTP/1.1 200 OK\r\n" + kind + "Content-Length: 300000\r\n\r\n" + strings.Repeat("x", 300_000),
		"/largechunk": "HTTP/1.1 200 OK\r\n" + kind + "Transfer-Encoding: chunked\r\n\r\n493E0\r\n" + strings.Repeat(
			"x",
			300_000,
		) + "\r\n0\r\n\r\n",
		"/length2":   "HTTP/1.1 200 OK\r\n" + kind + "Content-Length: 2\r\nContent-Length: 3\r\n\r\nok!<close>",
		"/coding":    "HTTP/1.1 200 OK\r\n" + kind + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n<close>",
		"/noise":     "hello<close>",
		"/silence":   "<close>",
		"/space":     "HTTP/1.1 200 OK\r\nContent-Length : 2\r\n\r\nok<close>",
		"/half":      "HTTP/1.1 200 OK\r\n" + kind + "Content-Length: 10\r\n\r\nhello<close>",
		"/halfchunk": "HTTP/1.1 200 OK\r\n" + kind + "Transfer-Encoding: chunked\r\n\r\n5\r\nhel<close>",
		"/split":     "HTTP/1.1 200 OK\r\n" + kind + "Content-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil",
		"/":          "HTTP/1.1 200 OK\r\n" + kind + "Content-Length: 2\r\n\r\nok",
	}
	addr, _ := rawProgram(t, answers)
	var all []*programs
	for way := range 3 {
		all = append(all, startProgramAt(t, way, addr))
	}
	for _, path := range slices.Sorted(maps.Keys(answers)) {
		if path == "/space" {
			continue
		}
		for _, method := range []string{"GET", "HEAD", "POST"} {
			var want reply
			for way, p := range all {
				c, err := tls.Dial("tcp", p.https, &tls.Config{
					RootCAs:    p.roots,
					ServerName: "app.sites.test",
					NextProtos: []string{"http/1.1"},
				})
				if err != nil {
					t.Fatal(err)
				}
				r := bufio.NewReader(c)
				got := p.tell(t, c, r, method, path)
				if way == 0 {
					want = got
				} else if got != want {
					t.Errorf("%s %s, way %d: %+v, ReverseProxy answers %+v", method, path, way, shorten(got), shorten(want))
				}
				// net/http's client may write the next request before it reads an unexpected response, which results in
				// a 502.
				unasked := way == byReverseProxy && method == "HEAD" && (path == "/early" || path == "/split")
				if !got.failure && !unasked { // the next response belongs to the next request
					if next := p.tell(t, c, r, "GET", "/"); next.body != "ok" && !next.failure {
						t.Errorf("%s %s, way %d: the next answer is %+v", method, path, way, shorten(next))
					}
				}
				c.Close()
			}
		}
	}
	// ReverseProxy accepts a blank before the colon, which RFC 9112, section 5.1, forbids.
	for _, p := range all[byServer:] {
		p.get("https://app.sites.test/space").want(t, 502, "didn&#39;t answer")
	}
	if all[byAll].passed.Load() < int64(len(answers)) {
		t.Errorf("the fast path had %d requests", all[byAll].passed.Load())
	}
}

func shorten(v reply) reply {
	if len(v.body) > 100 {
		v.body = fmt.Sprintf("%s… (%d)", v.body[:100], len(v.body))
	}
	return v
}

// The path and the query reach a program unchanged on each way except ReverseProxy's, and on no way can a visitor
// inject a line into the request.
func TestProgramTargets(t *testing.T) {
	t.Parallel()
	for way := byServer; way <= byAll; way++ {
		p := startProgramBy(t, way, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.RequestURI) })
		for _, target := range []string{
			"/", "//a/../b", "/a;b=c?x=1;y=2&z=%zz", "/%2e%2e/%00?", "/a?b?c=/d", "/?q=[1]&r={2}|3^`",
			"/%E2%82%AC?%0d%0aX:+y",
		} {
			c, err := tls.Dial("tcp", p.https, &tls.Config{
				RootCAs:    p.roots,
				ServerName: "app.sites.test",
				NextProtos: []string{"http/1.1"},
			})
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: app.sites.test\r\nConnection: close\r\n\r\n", target)
			resp, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil {
				t.Fatal(target, err)
			}
			if b, _ := io.ReadAll(resp.Body); string(b) != target || resp.StatusCode != 200 {
				t.Errorf("way %d: %s came as %d %s", way, target, resp.StatusCode, b)
			}
			c.Close()
		}
	}
}

// A request is sent only once, whatever happens to it. It is repeated only if the program closed a kept connection
// without reading it.
func TestProgramAskedOnce(t *testing.T) {
	t.Parallel()
	addr, asked := rawProgram(t, map[string]string{"/": "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", "/crash": "<close>"})
	for way := byServer; way <= byAll; way++ {
		p := startProgramAt(t, way, addr)
		for i := range 20 {
			before := asked.Load()
			p.get("https://app.sites.test/").want(t, 200, "ok") // leaves a kept connection
			p.get("https://app.sites.test/crash").want(t, 502, "didn&#39;t answer")
			if n := asked.Load() - before; n != 2 {
				t.Fatalf("way %d, round %d: the program read %d requests, want 2", way, i, n)
			}
		}
	}
}

// When a visitor leaves before or during the response, the program's request is canceled.
func TestProgramVisitorLeaves(t *testing.T) {
	t.Parallel()
	for way := byServer; way <= byAll; way++ {
		begun, ended := make(chan bool, 2), make(chan bool, 2)
		p := startProgramBy(t, way, func(w http.ResponseWriter, r *http.Request) {
			begun <- true
			if r.URL.Path == "/stream" {
				io.WriteString(w, "begun")
				http.NewResponseController(w).Flush()
			}
			<-r.Context().Done()
			ended <- true
		})
		p.proxy.FirstByte = time.Hour
		for _, path := range []string{"/wait", "/stream"} {
			c, err := tls.Dial("tcp", p.https, &tls.Config{
				RootCAs:    p.roots,
				ServerName: "app.sites.test",
				NextProtos: []string{"http/1.1"},
			})
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: app.sites.test\r\n\r\n", path)
			<-begun // if the visitor leaves earlier, the request may never be sent
			if path == "/stream" {
				if _, err := c.Read(make([]byte, 100)); err != nil {
					t.Fatal(err)
				}
			}
			c.Close()
			<-ended
			p.until("the program is let go", func() bool { return p.held.Load() == 0 })
		}
	}
}

// A response that a program sends before it has read the whole request reaches the visitor at once.
func TestProgramAnswersEarly(t *testing.T) {
	t.Parallel()
	p := startProgram(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "close")
		w.WriteHeader(413)
		io.WriteString(w, "too much")
	})
	c, err := tls.Dial("tcp", p.https, &tls.Config{RootCAs: p.roots, ServerName: "app.sites.test", NextProtos: []string{"http/1.1"}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: app.sites.test\r\nContent-Length: 1000000\r\n\r\nhello")
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	if b, _ := io.ReadAll(resp.Body); resp.StatusCode != 413 || string(b) != "too much" {
		t.Errorf("%d %s", resp.StatusCode, b)
	}
	p.until("the program is let go", func() bool { return p.held.Load() == 0 })
}
