package proxy

import (
	"bufio"
	"bytes"
	"cmp"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// refuser answers every upload with 413 at once. If reads is true it then reads the body; otherwise it closes the
// connection with the body unread, which resets it.
func refuser(t *testing.T, reads bool) string {
	t.Helper()
	return refuserOf(t, func(c net.Conn, in *bufio.Reader) {
		how := "close"
		if reads {
			how = "keep-alive"
		}
		fmt.Fprintf(c, "HTTP/1.1 413 Content Too Large\r\nContent-Length: 9\r\nConnection: %s\r\n\r\ntoo large", how)
		if reads {
			_, _ = io.Copy(io.Discard, in)
		}
	})
}

// refuserOf answers each connection once a request's header has come.
func refuserOf(t *testing.T, answer func(c net.Conn, in *bufio.Reader)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				in := bufio.NewReader(c)
				for {
					line, err := in.ReadString('\n')
					if err != nil {
						return
					}
					if strings.TrimSpace(line) == "" {
						break
					}
				}
				answer(c, in)
			}()
		}
	}()
	return l.Addr().String()
}

const uploaded = 30 << 20

func body() io.Reader { return io.LimitReader(endless{}, uploaded) }

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

// Visitors get a program's response even if it comes before the whole upload: with HTTP/1.1 and HTTP/2, with and
// without Expect, and whether or not the program closes its connection.
func TestEarlyRefusalsReachVisitors(t *testing.T) {
	t.Parallel()
	for _, reads := range []bool{false, true} {
		for _, known := range []bool{true, false} {
			for _, version := range []int{1, 2} {
				for _, expect := range []bool{false, true} {
					t.Run(fmt.Sprintf("reads %v length known %v HTTP/%d expect %v", reads, known, version, expect), func(t *testing.T) {
						t.Parallel()
						f := startTLS(t, refuser(t, reads))
						var wait sync.WaitGroup
						for range 5 {
							wait.Go(func() {
								protocols := new(http.Protocols)
								protocols.SetHTTP1(version == 1)
								protocols.SetHTTP2(version == 2)
								tr := &http.Transport{
									TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, Protocols: protocols, ExpectContinueTimeout: 30 * time.Second,
								}
								defer tr.CloseIdleConnections()
								r, _ := http.NewRequest(http.MethodPost, f.url, body())
								if known {
									r.ContentLength = uploaded
								}
								if expect {
									r.Header.Set("Expect", "100-continue")
								}
								resp, err := tr.RoundTrip(r)
								if err != nil {
									t.Error(err)
									return
								}
								defer resp.Body.Close()
								text, err := io.ReadAll(resp.Body)
								if resp.StatusCode != 413 || string(text) != "too large" {
									t.Errorf("%s %q, %v", resp.Status, text, err)
								}
							})
						}
						wait.Wait()
					})
				}
			}
		}
	}
}

// A client that sends its whole upload before it reads also gets the response, as it would from Node.js, which keeps
// reading.
func TestEarlyRefusalsReachClientsThatSendFirst(t *testing.T) {
	t.Parallel()
	for _, reads := range []bool{false, true} {
		f := startTLS(t, refuser(t, reads))
		for range 5 {
			c, err := tls.Dial("tcp", strings.TrimPrefix(f.url, "https://"), &tls.Config{InsecureSkipVerify: true})
			if err != nil {
				t.Fatal(err)
			}
			_ = c.SetDeadline(time.Now().Add(time.Minute))
			fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: app.sites.test\r\nContent-Length: %d\r\n\r\n", uploaded)
			part := bytes.Repeat([]byte("x"), 1<<20)
			for range uploaded / len(part) {
				time.Sleep(2 * time.Millisecond) // slower than this machine's loopback
				if _, err := c.Write(part); err != nil {
					t.Errorf("reads %v: %v", reads, err)
					break
				}
			}
			resp, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil || resp.StatusCode != 413 {
				t.Errorf("reads %v: %v, %v", reads, resp, err)
			}
			c.Close()
		}
	}
}

// talk sends raw bytes to a Proxy in front of a program and returns everything received until the end.
func talk(t *testing.T, program http.HandlerFunc, text string) string {
	t.Helper()
	srv := httptest.NewServer(program)
	t.Cleanup(srv.Close)
	f := start(t, srv.Listener.Addr().String(), true)
	c, err := net.Dial("tcp", strings.TrimPrefix(f.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(30 * time.Second))
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(c)
	if err != nil {
		t.Errorf("%q, %v", got, err)
	}
	return string(got)
}

// A visitor that sends Expect gets one 100 Continue, and none if the program refuses.
func TestOneContinue(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]struct {
		program   http.HandlerFunc
		continues int
		answer    string
	}{
		"read":    {func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) }, 1, "hello"},
		"refused": {func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(413) }, 0, "HTTP/1.1 413 Request Entity Too Large"},
	} {
		for _, length := range []string{"Content-Length: 5\r\n\r\nhello", "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"} {
			got := talk(t, want.program, "POST / HTTP/1.1\r\nHost: app.sites.test\r\nConnection: close\r\nExpect: 100-continue\r\n"+length)
			if n := strings.Count(got, "100 Continue"); n != want.continues || !strings.Contains(got, want.answer) {
				t.Errorf("%s: %q", name, got)
			}
		}
	}
}

// Programs that ignore Expect get the body after a short wait.
func TestProgramsThatIgnoreExpect(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		r, err := http.ReadRequest(bufio.NewReader(c))
		if err != nil {
			return
		}
		text, _ := io.ReadAll(r.Body)
		fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", len(text), text)
	}()
	f := startTLS(t, l.Addr().String())
	tr := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ExpectContinueTimeout: time.Minute}
	defer tr.CloseIdleConnections()
	r, _ := http.NewRequest(http.MethodPost, f.url, strings.NewReader("hello"))
	r.Header.Set("Expect", "100-continue")
	resp, err := tr.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if text, err := io.ReadAll(resp.Body); string(text) != "hello" {
		t.Errorf("%q, %v", text, err)
	}
}

// Bytes that a client sends right after an upgrade request, without waiting for the response, reach the program.
func TestBytesBehindAnUpgrade(t *testing.T) {
	t.Parallel()
	got := talk(t, func(w http.ResponseWriter, r *http.Request) {
		c, buf, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		var text [5]byte
		_, err = io.ReadFull(buf, text[:])
		fmt.Fprintf(c, "you said %s, %v", text[:], err)
	}, "GET / HTTP/1.1\r\nHost: app.sites.test\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\nhello")
	if !strings.HasSuffix(got, "you said hello, <nil>") {
		t.Errorf("%q", got)
	}
}

// UTF-8 bytes in a query are percent-encoded as browsers do, because many programs refuse raw ones.
func TestQueryIsEncoded(t *testing.T) {
	t.Parallel()
	for _, more := range []string{"", "Connection: Upgrade, close\r\nUpgrade: echo\r\n"} {
		got := talk(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Connection", "close")
			_, _ = io.WriteString(w, r.RequestURI)
		}, "GET /sör?q=ö&r=%C3%B6 HTTP/1.1\r\nHost: app.sites.test\r\n"+cmp.Or(more, "Connection: close\r\n")+"\r\n")
		if !strings.HasSuffix(got, "/s%C3%B6r?q=%C3%B6&r=%C3%B6") {
			t.Errorf("%q", got)
		}
	}
}

// An error page that comes before the end of an upload is the connection's last response.
func TestErrorsEndConnectionsWithUnreadBodies(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := l.Addr().String()
	l.Close()
	broken := refuserOf(t, func(c net.Conn, _ *bufio.Reader) { _, _ = io.WriteString(c, "no HTTP\r\n\r\n") })
	for _, addr := range []string{nobody, broken} {
		f := start(t, addr, true)
		c, err := net.Dial("tcp", strings.TrimPrefix(f.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		_ = c.SetDeadline(time.Now().Add(30 * time.Second))
		_, _ = io.WriteString(c, "POST / HTTP/1.1\r\nHost: app.sites.test\r\nContent-Length: 1000\r\n\r\nhello")
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil || resp.StatusCode != http.StatusBadGateway || !resp.Close {
			t.Errorf("%+v, %v", resp, err)
		}
		c.Close()
	}
}
