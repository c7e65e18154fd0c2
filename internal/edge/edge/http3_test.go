package edge

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/quic-go/quic-go"
	h3 "github.com/quic-go/quic-go/http3"

	"slipway/internal/edge/connlimit"
	"slipway/internal/edge/http3"
)

// overHTTP3 serves the same edge over QUIC and returns its address.
func (w *world) overHTTP3(limits *connlimit.Limiter) (addr string, srv *http3.Server) {
	w.t.Helper()
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	srv = http3.New(w.HTTPS(), w.TLSConfig(), limits)
	done := make(chan error, 1)
	go func() { done <- srv.Serve(c) }()
	w.t.Cleanup(func() {
		srv.Close()
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			w.t.Error(err)
		}
	})
	return c.LocalAddr().String(), srv
}

// client3 returns a client that speaks only HTTP/3 and connects to addr for every host.
func (w *world) client3(addr string) *http.Client {
	tr := &h3.Transport{
		DisableCompression: true, TLSClientConfig: &tls.Config{RootCAs: w.roots},
		Dial: func(ctx context.Context, _ string, t *tls.Config, q *quic.Config) (*quic.Conn, error) {
			return quic.DialAddr(ctx, addr, t, q)
		},
	}
	w.t.Cleanup(func() { tr.Close() })
	return &http.Client{
		Transport:     tr,
		Timeout:       20 * time.Second,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// A response that a program aborts isn't complete over HTTP/3 either, with or without a length, on each way to the
// program.
func TestHTTP3ProgramBreaksOff(t *testing.T) {
	t.Parallel()
	for way := range 3 {
		p := startProgramBy(t, way, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/length" {
				w.Header().Set("Content-Length", "100")
			}
			io.WriteString(w, "half of it")
			http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		})
		addr, _ := p.overHTTP3(nil)
		c := p.client3(addr)
		for _, method := range []string{"GET", "POST"} {
			for _, path := range []string{"/chunks", "/length"} {
				r, err := http.NewRequest(method, "https://app.sites.test"+path, nil)
				if err != nil {
					t.Fatal(err)
				}
				resp, err := c.Do(r)
				if err != nil {
					continue // the response header was not sent yet
				}
				text, err := io.ReadAll(resp.Body)
				resp.Body.Close()
				if err == nil {
					t.Errorf("way %d, %s %s: half an answer passed for a whole one: %q", way, method, path, text)
				}
			}
		}
	}
}

// HTTP/3 gives the same responses as HTTP/1.1 and HTTP/2, and only those advertise it in Alt-Svc.
func TestHTTP3(t *testing.T) {
	t.Parallel()
	w := start(t, func(c *Config) { c.HTTP3 = true })
	addr, srv := w.overHTTP3(nil)
	w.live(
		"s1",
		"blog",
		stateLive,
		w.publish(map[string]string{
			"index.html": "<h1>home</h1>" + script,
			"about.html": "about",
			"big.bin":    strings.Repeat("0123456789", 300_000),
			"404.html":   "not here",
			"_redirects": "/old /about 301\n",
		}),
	)
	c3, c2 := w.client3(addr), w.client()
	for _, host := range []string{"blog.sites.test", "nobody.sites.test", "panel.test"} {
		for _, path := range []string{"/", "/about", "/nothing", "/old", "/big.bin", "/a%2e%2e/b", "/?q=1"} {
			for _, field := range []string{"", "Range: bytes=5-9", "Accept-Encoding: br, gzip", `If-None-Match: "x"`} {
				for _, method := range []string{"GET", "HEAD", "POST", "OPTIONS"} {
					var got [2]string
					for i, c := range []*http.Client{c2, c3} {
						r, err := http.NewRequest(method, "https://"+host+path, nil)
						if err != nil {
							t.Fatal(err)
						}
						if name, value, ok := strings.Cut(field, ": "); ok {
							r.Header.Set(name, value)
						}
						resp, err := c.Do(r)
						if err != nil {
							t.Fatal(method, host, path, field, err)
						}
						b, err := io.ReadAll(resp.Body)
						if err != nil || resp.ProtoMajor != 2+i {
							t.Fatal(resp.Proto, err)
						}
						want := ""
						if i == 0 && host != "panel.test" {
							_, port, _ := net.SplitHostPort(w.https)
							want = `h3=":` + port + `"; ma=86400`
						}
						if alt := resp.Header.Get("Alt-Svc"); alt != want {
							t.Errorf("%s %s%s over %s: Alt-Svc is %q, not %q", method, host, path, resp.Proto, alt, want)
						}
						resp.Header.Del("Date")
						resp.Header.Del("Alt-Svc")
						if method == "HEAD" && host == "panel.test" {
							resp.Header.Del("Content-Length") // for a handler that sets none, net/http adds it
						}
						got[i] = fmt.Sprint(resp.StatusCode, resp.Header, resp.ContentLength, string(b))
					}
					if got[0] != got[1] {
						t.Errorf("%s %s%s %s:\nHTTP/2 %.500s\nHTTP/3 %.500s", method, host, path, field, got[0], got[1])
					}
				}
			}
		}
	}
	// One connection can serve a host other than the one in its TLS handshake.
	conn, err := quic.DialAddr(t.Context(), addr, &tls.Config{
		RootCAs:    w.roots,
		ServerName: "blog.sites.test",
		NextProtos: []string{"h3"},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	cc := (&h3.Transport{}).NewClientConn(conn)
	try := func(method, url string, fields ...string) int {
		t.Helper()
		r, err := http.NewRequest(method, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(fields); i += 2 {
			r.Header.Set(fields[i], fields[i+1])
		}
		resp, err := cc.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		return resp.StatusCode
	}
	for _, tt := range []struct {
		status      int
		method, url string
		fields      []string
	}{
		{200, "GET", "https://blog.sites.test/about", nil},
		{421, "GET", "https://other.sites.test/about", nil},
		{431, "GET", "https://blog.sites.test/about", []string{"X-Long", strings.Repeat("x", 40_000)}},
		{501, "CONNECT", "https://blog.sites.test", nil},
		{200, "GET", "https://blog.sites.test/about", nil}, // the refused requests don't end the connection
	} {
		if got := try(tt.method, tt.url, tt.fields...); got != tt.status {
			t.Errorf("%s %s: %d, not %d", tt.method, tt.url, got, tt.status)
		}
	}
	// A graceful shutdown lets the current response finish.
	resp, err := c3.Get("https://blog.sites.test/big.bin")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		done <- srv.Shutdown(ctx)
	}()
	if b, err := io.ReadAll(resp.Body); err != nil || len(b) != 3_000_000 {
		t.Errorf("%d bytes during Shutdown, %v", len(b), err)
	}
	conn.CloseWithError(0x100, "")
	c3.CloseIdleConnections()
	if err := <-done; err != nil {
		t.Error("Shutdown:", err)
	}
}
