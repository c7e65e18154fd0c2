package response

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// What a visitor sends late, as the rest of a body that nothing waits for any more, is never read as a request.
func TestLateBodiesAreNoRequests(t *testing.T) {
	t.Parallel()
	const text = "refused"
	for name, answer := range map[string]http.HandlerFunc{
		"length": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", fmt.Sprint(len(text)))
			_, _ = io.WriteString(w, text)
		},
		"chunks":  func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) },
		"nothing": func(http.ResponseWriter, *http.Request) {},
	} {
		for _, body := range []string{"Content-Length: 1000\r\n\r\nhello", "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"} {
			for _, duplex := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s %.10s %v", name, body, duplex), func(t *testing.T) {
					t.Parallel()
					var smuggled atomic.Bool
					p := patience{time.Minute, 200 * time.Millisecond, 100 * time.Millisecond}
					srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						p.linger(w, r, func(w http.ResponseWriter, r *http.Request) {
							if r.URL.Path == "/smuggled" {
								smuggled.Store(true)
							}
							if duplex {
								_ = http.NewResponseController(w).EnableFullDuplex()
							}
							_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(100 * time.Millisecond))
							answer(w, r)
						})
					}))
					t.Cleanup(srv.Close)
					c, err := net.Dial("tcp", srv.Listener.Addr().String())
					if err != nil {
						t.Fatal(err)
					}
					defer c.Close()
					_ = c.SetDeadline(time.Now().Add(30 * time.Second))
					if _, err := io.WriteString(c, "POST / HTTP/1.1\r\nHost: site.test\r\n"+body); err != nil {
						t.Fatal(err)
					}
					in := bufio.NewReader(c)
					resp, err := http.ReadResponse(in, nil)
					if err != nil {
						t.Fatal(err)
					}
					got, err := io.ReadAll(resp.Body)
					if err != nil || name != "nothing" && string(got) != text {
						t.Errorf("%q, %v", got, err)
					}
					if _, err := in.Peek(1); err == nil { // until the connection has ended
						t.Error("more than one response")
					}
					_, _ = io.WriteString(c, strings.Repeat("GET /smuggled HTTP/1.1\r\nHost: site.test\r\n\r\n", 3))
					if more, err := http.ReadResponse(in, nil); err == nil || smuggled.Load() {
						t.Errorf("the rest of the body was answered: %v", more)
					}
				})
			}
		}
	}
}

// A connection whose request was read to its end is kept.
func TestReadBodiesKeepConnections(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		Linger(w, r, func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) })
	}))
	t.Cleanup(srv.Close)
	c, err := net.Dial("tcp", srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(30 * time.Second))
	in := bufio.NewReader(c)
	for range 3 {
		if _, err := io.WriteString(c, "POST / HTTP/1.1\r\nHost: site.test\r\nContent-Length: 5\r\n\r\nhello"); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(resp.Body); string(got) != "hello" || err != nil || resp.Close {
			t.Errorf("%q, %v, closes: %v", got, err, resp.Close)
		}
	}
}
