package edge

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"slipway/internal/edge/response"
	"slipway/internal/platform/db"
)

// A backend itself handles methods, request bodies, streaming and upgrades. The edge doesn't handle them first.
func TestBackends(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.backends["echo"] = func(rec *recorder, r *http.Request, t *target) {
		if r.Header.Get("Upgrade") != "" {
			conn, buf, err := http.NewResponseController(rec).Hijack()
			if err != nil {
				response.Fail(rec, r, 500)
				return
			}
			defer conn.Close()
			io.WriteString(buf, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
			buf.Flush()
			line, _ := buf.ReadString('\n')
			io.WriteString(buf, line)
			buf.Flush()
			return
		}
		b, _ := io.ReadAll(r.Body)
		fmt.Fprintf(rec, "%s %s at %s: ", r.Method, t.site, t.node)
		http.NewResponseController(rec).Flush()
		rec.Write(b)
	}
	set := func(backend string) {
		t.Helper()
		err := w.DB.Write(t.Context(), func(tx *db.Tx) error {
			tx.Notify("live")
			_, err := tx.Exec(t.Context(), `
				INSERT INTO live (host_label, site_id, release, state, version, backend, node) VALUES ('app', 's1', 'r', 'live', $1, $2, 'node-7')
				ON CONFLICT (site_id) DO UPDATE SET version = $1, backend = $2`, w.version.Add(1), backend)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		w.until("the row is in force", func() bool { f := w.table.hosts().find("app"); return f != nil && f.backend == backend })
	}
	set("echo")
	resp, err := w.client().Post("https://app.sites.test/form", "text/plain", strings.NewReader("body"))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if b, _ := io.ReadAll(resp.Body); string(b) != "POST s1 at node-7: body" {
		t.Errorf("got %d %q", resp.StatusCode, b)
	}
	w.do("OPTIONS", "https://app.sites.test/").want(t, 200, "OPTIONS s1")

	c, err := tls.Dial("tcp", w.https, &tls.Config{RootCAs: w.roots, ServerName: "app.sites.test", NextProtos: []string{"http/1.1"}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(10 * time.Second))
	io.WriteString(c, "GET /chat HTTP/1.1\r\nHost: app.sites.test\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	in := bufio.NewReader(c)
	if upgrade, err := http.ReadResponse(in, nil); err != nil || upgrade.StatusCode != 101 {
		t.Fatalf("upgrade: %v, %v", upgrade, err)
	}
	io.WriteString(c, "hello\n")
	if line, err := in.ReadString('\n'); line != "hello\n" {
		t.Errorf("after the upgrade %q, %v", line, err)
	}

	// A backend kind that this version doesn't know gets a 503.
	set("later")
	w.get("https://app.sites.test/").want(t, 503, "One moment").head(t, "Retry-After", "5")
}

// A request body that stalls or arrives in pieces holds a connection for at most bodyTime. A request with both
// Transfer-Encoding and Content-Length is answered and closes the connection.
func TestBodies(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.bodyTime = 100 * time.Millisecond
	w.live("s1", "blog", stateLive, w.publish(map[string]string{"index.html": "hello"}))
	for name, tt := range map[string]struct {
		request string
		status  int
	}{
		"announced":    {"GET / HTTP/1.1\r\nHost: blog.sites.test\r\nContent-Length: 10\r\n\r\n", 200},
		"chunked":      {"GET / HTTP/1.1\r\nHost: blog.sites.test\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhe", 200},
		"posted":       {"POST / HTTP/1.1\r\nHost: blog.sites.test\r\nContent-Length: 10\r\n\r\n", 405},
		"unknown host": {"GET / HTTP/1.1\r\nHost: nobody.sites.test\r\nContent-Length: 10\r\n\r\n", 421},
		"length and TE": {
			"GET / HTTP/1.1\r\nHost: blog.sites.test\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /x HTTP/1.1\r\nHost: blog.sites.test\r\n\r\n",
			200,
		},
		"TE and length": {
			"GET / HTTP/1.1\r\nHost: blog.sites.test\r\nTransfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\nGET /x HTTP/1.1\r\nHost: blog.sites.test\r\n\r\n",
			200,
		},
		"chunked, whole": {
			"POST / HTTP/1.1\r\nHost: blog.sites.test\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /x HTTP/1.1\r\nHost: blog.sites.test\r\n\r\n",
			405,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, err := tls.Dial("tcp", w.https, &tls.Config{
				RootCAs:    w.roots,
				ServerName: "blog.sites.test",
				NextProtos: []string{"http/1.1"},
			})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			c.SetDeadline(time.Now().Add(time.Minute)) // bodies had no time limit before
			io.WriteString(c, tt.request)
			b, err := io.ReadAll(c)
			if err != nil {
				t.Fatalf("the connection stays open: %v after %q", err, b)
			}
			if !strings.HasPrefix(string(b), fmt.Sprintf("HTTP/1.1 %d ", tt.status)) || strings.Count(string(b), "HTTP/1.1 ") != 1 {
				t.Errorf("answer %.300q, want one with status %d", b, tt.status)
			}
		})
	}
	// The plain HTTP listener has the same limit.
	c := dialPlain(t, w)
	io.WriteString(c, "GET / HTTP/1.1\r\nHost: blog.sites.test\r\nContent-Length: 10\r\n\r\n")
	if b, err := io.ReadAll(c); err != nil || !strings.HasPrefix(string(b), "HTTP/1.1 308 ") {
		t.Errorf("plain: %q, %v", b, err)
	}
}

func dialPlain(t *testing.T, w *world) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", w.http)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(time.Minute))
	return c
}
