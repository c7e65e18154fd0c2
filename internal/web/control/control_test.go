package control

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// piped is a listener for in-memory connections.
type piped struct {
	conns chan net.Conn
	done  chan struct{}
}

func (p *piped) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}
func (p *piped) Close() error   { close(p.done); return nil }
func (p *piped) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 80} }

func (p *piped) dial() net.Conn {
	c, s := net.Pipe()
	p.conns <- arrived{s}
	return c
}

// arrived is a connection accepted on a loopback address.
type arrived struct{ net.Conn }

func (arrived) LocalAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 80} }

// serveBounded serves a handler with the control plane's deadlines over in-memory connections, for synctest bubbles.
func serveBounded(t *testing.T, d *Door, next http.HandlerFunc) *piped {
	p := &piped{make(chan net.Conn), make(chan struct{})}
	srv := &http.Server{Handler: d.Bounded(next), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute}
	go srv.Serve(p)
	t.Cleanup(func() { srv.Close() })
	return p
}

func TestHalfSentForm(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := serveBounded(t, New(Config{}), func(w http.ResponseWriter, r *http.Request) {
			if _, err := io.ReadAll(r.Body); err != nil {
				w.WriteHeader(http.StatusRequestTimeout)
			}
		})
		c := p.dial()
		defer c.Close()
		begun := time.Now()
		go io.WriteString(c, "POST /login HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nemail=")
		b, _ := io.ReadAll(c)
		if took := time.Since(begun); took > 2*bodyTime {
			t.Errorf("a half-sent form was open for %s", took)
		}
		if !strings.HasPrefix(string(b), "HTTP/1.1 408 ") {
			t.Errorf("answer %q", b)
		}
	})
}

// The same limit applies to HTTP/2, where one connection can have many half-sent forms.
func TestHalfSentFormsOverHTTP2(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := &piped{make(chan net.Conn), make(chan struct{})}
		srv := &http.Server{Handler: New(Config{}).Bounded(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if _, err := io.ReadAll(r.Body); err != nil {
				w.WriteHeader(http.StatusRequestTimeout)
			}
		})), Protocols: new(http.Protocols)}
		srv.Protocols.SetUnencryptedHTTP2(true)
		go srv.Serve(p)
		t.Cleanup(func() { srv.Close() })
		tr := &http.Transport{
			DialContext: func(context.Context, string, string) (net.Conn, error) { return p.dial(), nil },
			Protocols:   new(http.Protocols),
		}
		tr.Protocols.SetUnencryptedHTTP2(true)
		defer tr.CloseIdleConnections()
		begun := time.Now()
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				body, form := io.Pipe()
				defer form.Close()
				go io.WriteString(form, "email=")
				r, _ := http.NewRequest("POST", "http://x/login", body)
				r.ContentLength = 100
				resp, err := tr.RoundTrip(r)
				if err == nil {
					resp.Body.Close()
				}
				if err == nil && (resp.ProtoMajor != 2 || resp.StatusCode != http.StatusRequestTimeout) {
					t.Errorf("%s %d", resp.Proto, resp.StatusCode)
				}
			})
		}
		wg.Wait()
		if took := time.Since(begun); took > 2*bodyTime {
			t.Errorf("half-sent forms were open for %s", took)
		}
	})
}

func TestUnreadAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan error, 1)
		p := serveBounded(t, New(Config{}), func(w http.ResponseWriter, r *http.Request) {
			var err error
			for err == nil {
				_, err = w.Write(make([]byte, 1<<16))
			}
			ended <- err
		})
		c := p.dial()
		defer c.Close()
		io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		begun := time.Now()
		<-ended
		if took := time.Since(begun); took > 2*writeTime {
			t.Errorf("an unread answer was open for %s", took)
		}
	})
}

// The same limit applies to an HTTP/2 connection that requests many responses and reads none.
func TestUnreadAnswersOverHTTP2(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const streams = 20
		ended := make(chan error, streams)
		p := &piped{make(chan net.Conn), make(chan struct{})}
		srv := &http.Server{Handler: New(Config{}).Bounded(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var err error
			for err == nil {
				_, err = w.Write(make([]byte, 1<<16))
			}
			ended <- err
		})), Protocols: new(http.Protocols)}
		srv.Protocols.SetUnencryptedHTTP2(true)
		go srv.Serve(p)
		t.Cleanup(func() { srv.Close() })
		tr := &http.Transport{
			DialContext: func(context.Context, string, string) (net.Conn, error) { return p.dial(), nil },
			Protocols:   new(http.Protocols),
		}
		tr.Protocols.SetUnencryptedHTTP2(true)
		defer tr.CloseIdleConnections()
		begun := time.Now()
		for range streams {
			r, _ := http.NewRequest("GET", "http://x/", nil)
			resp, err := tr.RoundTrip(r) // the body isn't read, so the stream's window stays closed
			if err != nil || resp.ProtoMajor != 2 {
				t.Fatal(resp, err)
			}
			defer resp.Body.Close()
		}
		for range streams {
			<-ended
		}
		if took := time.Since(begun); took > 2*writeTime {
			t.Errorf("unread answers were open for %s", took)
		}
	})
}

// A body sent byte by byte has the same time limit as one that doesn't arrive, with a length or in chunks.
func TestSlowBodies(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ head, drop string }{
		"length":     {"Content-Length: 100000", "x"},
		"chunked":    {"Transfer-Encoding: chunked", "1\r\nx\r\n"},
		"long chunk": {"Transfer-Encoding: chunked\r\n\r\nffff", "x"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := serveBounded(t, New(Config{}), func(w http.ResponseWriter, r *http.Request) {
					if _, err := io.ReadAll(r.Body); err != nil {
						w.WriteHeader(http.StatusRequestTimeout)
					}
				})
				c := p.dial()
				var sending sync.WaitGroup
				defer sending.Wait()
				defer c.Close()
				begun := time.Now()
				sending.Go(func() {
					_, err := io.WriteString(c, "POST /sign-in HTTP/1.1\r\nHost: x\r\n"+tt.head+"\r\n\r\n")
					for err == nil {
						time.Sleep(5 * time.Second)
						_, err = io.WriteString(c, tt.drop)
					}
				})
				b, _ := io.ReadAll(c)
				if took := time.Since(begun); took > 2*bodyTime {
					t.Errorf("open for %s", took)
				}
				if !strings.HasPrefix(string(b), "HTTP/1.1 4") {
					t.Errorf("answer %q", b)
				}
			})
		})
	}
}

// A stream and its request's context live as long as the client reads.
func TestStreamsGoOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const beats = 100
		p := serveBounded(t, New(Config{}), func(w http.ResponseWriter, r *http.Request) {
			for range beats {
				io.WriteString(w, ".")
				http.NewResponseController(w).Flush()
				select {
				case <-time.After(15 * time.Second):
				case <-r.Context().Done():
					return
				}
			}
		})
		c := p.dial()
		defer c.Close()
		io.WriteString(c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nConnection: close\r\n\r\nab")
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(resp.Body)
		if err != nil || len(b) != beats {
			t.Errorf("%d of %d beats, %v", len(b), beats, err)
		}
	})
}

func TestDrainingCloses(t *testing.T) {
	t.Parallel()
	var draining atomic.Bool
	d := New(Config{Draining: &draining})
	answer := func(r *http.Request) string {
		rec := httptest.NewRecorder()
		d.Bounded(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})).ServeHTTP(rec, r)
		return rec.Header().Get("Connection")
	}
	r := httptest.NewRequest("POST", "/", strings.NewReader("x"))
	if got := answer(r); got != "" {
		t.Errorf("Connection: %q", got)
	}
	chunked := r.Clone(t.Context())
	chunked.TransferEncoding = []string{"chunked"}
	if got := answer(chunked); got != "close" {
		t.Errorf("Connection: %q after Transfer-Encoding, want close", got)
	}
	draining.Store(true)
	if got := answer(r); got != "close" {
		t.Errorf("Connection: %q while draining, want close", got)
	}
}

func TestOwnHost(t *testing.T) {
	t.Parallel()
	d := New(Config{Listen: "panel.internal:8080", Hosts: []string{"panel.example.com", "api.example.com"}})
	for host, want := range map[string]bool{
		"panel.example.com":           true,
		"PANEL.example.com.:8443":     true,
		"api.example.com":             true,
		"panel.internal:8080":         true,
		"127.0.0.1:8080":              true,
		"127.0.0.1":                   true,
		"localhost:8080":              true,
		"127.0.0.2":                   false,
		"[::1]:8080":                  false,
		"evil.test":                   false,
		"evil.test:8080":              false,
		"":                            false,
		"panel.example.com.evil.test": false,
		"127.0.0.1.evil.test":         false,
		"example.com":                 false,
	} {
		r := httptest.NewRequest("GET", "/api/v1/sites", nil)
		r.Host = host
		r = r.WithContext(context.WithValue(
			r.Context(),
			http.LocalAddrContextKey,
			net.Addr(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8080}),
		))
		rec := httptest.NewRecorder()
		d.Named(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ours") })).ServeHTTP(rec, r)
		if got := rec.Code == 200; got != want || !got && (rec.Code != 421 || !strings.Contains(
			rec.Body.String(),
			`"code":"misdirected_request"`,
		)) {
			t.Errorf("Host %q: status %d, want ours %v; %s", host, rec.Code, want, rec.Body)
		}
	}
	far := httptest.NewRequest("GET", "/", nil)
	far.Host = "localhost"
	far = far.WithContext(context.WithValue(
		far.Context(),
		http.LocalAddrContextKey,
		net.Addr(&net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 8080}),
	))
	if d.ownHost(far) {
		t.Error("localhost is ours at a public address")
	}
}

// A request is answered for the name of its host, in every form and spelling.
func TestOwnHostOnTheWire(t *testing.T) {
	t.Parallel()
	d := New(Config{Listen: "127.0.0.1:8080", Hosts: []string{"panel.example.com"}})
	p := &piped{make(chan net.Conn), make(chan struct{})}
	srv := &http.Server{
		Handler:   d.Named(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ours") })),
		Protocols: new(http.Protocols),
	}
	srv.Protocols.SetHTTP1(true)
	srv.Protocols.SetUnencryptedHTTP2(true)
	go srv.Serve(p)
	t.Cleanup(func() { srv.Close() })
	for request, want := range map[string]int{
		"GET / HTTP/1.1\r\nHost: 127.0.0.1:9":                              200,
		"GET / HTTP/1.1\r\nHost: [::ffff:127.0.0.1]:8080":                  200,
		"GET / HTTP/1.1\r\nHost: Panel.Example.COM.:443":                   200,
		"GET http://panel.example.com/api HTTP/1.1\r\nHost: evil.test":     200, // RFC 9112, section 3.2.2
		"GET http://evil.test/api HTTP/1.1\r\nHost: panel.example.com":     421,
		"GET http://panel.example.com@evil.test/ HTTP/1.1\r\nHost: x":      421,
		"CONNECT evil.test:443 HTTP/1.1\r\nHost: panel.example.com":        421,
		"GET / HTTP/1.1\r\nHost: evil.test:8080":                           421,
		"GET / HTTP/1.1\r\nHost: [::1]":                                    421,
		"GET / HTTP/1.1\r\nHost: 127.1":                                    421,
		"GET / HTTP/1.1\r\nHost: 2130706433":                               421,
		"GET / HTTP/1.1\r\nHost: 0x7f.0.0.1":                               421,
		"GET / HTTP/1.1\r\nHost: 0.0.0.0":                                  421,
		"GET / HTTP/1.1\r\nHost: panel.example.com..":                      421,
		"GET / HTTP/1.1\r\nHost: panel.example.com.evil.test":              421,
		"GET / HTTP/1.1\r\nHost: evil.test\r\nX-Forwarded-Host: localhost": 421,
		"GET / HTTP/1.0": 421,
		"GET / HTTP/1.1": 400,
		"GET / HTTP/1.1\r\nHost: panel.example.com\r\nHost: evil.test": 400,
		"GET / HTTP/1.1\r\nHost: panel.example.com evil.test":          400,
		"GET / HTTP/1.1\r\nHost: panel.example.com/evil.test":          400,
	} {
		c := p.dial()
		go io.WriteString(c, request+"\r\n\r\n")
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil || resp.StatusCode != want {
			t.Errorf("%q: %v, %v, want %d", request, resp, err, want)
		}
		c.Close()
	}
	tr := &http.Transport{
		DialContext: func(context.Context, string, string) (net.Conn, error) { return p.dial(), nil },
		Protocols:   new(http.Protocols),
	}
	tr.Protocols.SetUnencryptedHTTP2(true)
	defer tr.CloseIdleConnections()
	for authority, want := range map[string]int{"panel.example.com": 200, "127.0.0.1:1": 200, "evil.test": 421, "[::1]:8080": 421} {
		r, _ := http.NewRequest("GET", "http://x/api", nil)
		r.Host = authority
		resp, err := tr.RoundTrip(r)
		if err != nil || resp.ProtoMajor != 2 || resp.StatusCode != want {
			t.Errorf("HTTP/2, :authority %s: %v, %v, want %d", authority, resp, err, want)
			continue
		}
		resp.Body.Close()
	}
}

// A connection that a page has hijacked, such as a terminal's, keeps no deadline.
func TestTakenOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := serveBounded(t, New(Config{}), func(w http.ResponseWriter, r *http.Request) {
			c, rw, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\n\r\n")
			for {
				line, err := rw.ReadString('\n')
				if err != nil {
					return
				}
				io.WriteString(c, "heard "+line)
			}
		})
		c := p.dial()
		defer c.Close()
		go io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		r := bufio.NewReader(c)
		if line, err := r.ReadString('\n'); !strings.HasPrefix(line, "HTTP/1.1 101 ") || err != nil {
			t.Fatal(line, err)
		}
		r.ReadString('\n')
		for range 3 {
			time.Sleep(time.Hour)
			go io.WriteString(c, "hello\n")
			if line, err := r.ReadString('\n'); line != "heard hello\n" {
				t.Fatalf("after an hour: %q %v", line, err)
			}
		}
	})
}
