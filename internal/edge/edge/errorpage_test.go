package edge

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"slipway/internal/edge/response"
	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
)

// A site's own error pages replace the default ones, with the same status and headers, on each way to its program.
// Sites without such pages, and protected sites, get the default ones.
func TestOwnErrorPages(t *testing.T) {
	t.Parallel()
	for way := range 3 {
		p := startProgramBy(t, way, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/silent" {
				<-r.Context().Done()
			}
			panic(http.ErrAbortHandler)
		})
		check := func(method, path string, status int, body string) {
			t.Helper()
			c, err := tls.Dial("tcp", p.https, &tls.Config{
				RootCAs:    p.roots,
				ServerName: "app.sites.test",
				NextProtos: []string{"http/1.1"},
			})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			c.SetDeadline(time.Now().Add(time.Minute))
			length := ""
			if method == "POST" {
				length = "Content-Length: 0\r\n"
			}
			fmt.Fprintf(c, "%s %s HTTP/1.1\r\nHost: app.sites.test\r\n%s\r\n", method, path, length)
			resp, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: method})
			if err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(resp.Body)
			if resp.StatusCode != status || err != nil || body != "" && string(text) != body ||
				resp.Header.Get("Content-Type") != "text/html; charset=utf-8" ||
				resp.Header.Get("Cache-Control") == response.Revalidate[0] {
				t.Errorf("way %d, %s %s: %d %q %v, %v; want %d %q", way, method, path, resp.StatusCode, text,
					resp.Header, err, status, body)
			}
		}
		p.switchTo(p.publish(map[string]string{"503.html": "<p>back soon", "502.html": "<p>oh no", "504.html": "<p>slow today"}))
		check("GET", "/", 502, "<p>oh no")
		check("POST", "/", 502, "<p>oh no")
		check("HEAD", "/", 502, "")
		check("GET", "/silent", 504, "<p>slow today")
		var err error = &fault.Error{Kind: fault.Unavailable, Message: "crashed", RetryAfter: 7 * time.Second}
		p.refuse.Store(&err)
		check("GET", "/", 503, "<p>back soon")
		if a := p.get("https://app.sites.test/"); a.header.Get("Retry-After") != "7" || a.header.Get("X-Robots-Tag") != "noindex" {
			t.Errorf("way %d: %v", way, a.header)
		}
		p.switchTo(p.publish(map[string]string{"503.html": "<p>back soon", "robots.txt": ""}))
		p.refuse.Store(nil)
		p.get("https://app.sites.test/").want(t, 502, "didn&#39;t answer") // the site has no page for this status
	}
}

// A stopped site shows its own 503 page if it has one.
func TestOwnPageWhileStopped(t *testing.T) {
	t.Parallel()
	w := start(t)
	id := w.publish(map[string]string{"index.html": "hello", "503.html": "<p>closed for the winter"})
	w.live("s1", "blog", stateStopped, id)
	w.get("https://blog.sites.test/any/path").want(t, 503, "closed for the winter")
	if err := w.DB.Write(t.Context(), func(tx *db.Tx) error {
		tx.Notify("live")
		_, err := tx.Exec(t.Context(), `UPDATE live SET release = '', version = $1 WHERE host_label = 'blog'`, w.version.Add(1))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	w.until("its release is gone", func() bool { return w.table.hosts().find("blog").release == "" })
	w.get("https://blog.sites.test/").want(t, 503, "This site is offline")
}
