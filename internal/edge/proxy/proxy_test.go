package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"slipway/internal/edge/endpoint"
	"slipway/internal/edge/response"
	"slipway/internal/edge/upstream"
)

// front serves one program through a Proxy on its own address.
type front struct {
	url     string
	failure atomic.Pointer[error] // the last error of Serve
	first   atomic.Int64
}

// start puts a Proxy in front of a program at addr. If usual is false, requests go only through httputil.ReverseProxy.
func start(t *testing.T, addr string, usual bool, change ...func(*endpoint.Endpoint)) *front {
	t.Helper()
	f, srv := serve(t, addr, usual, change...)
	srv.Start()
	f.url = srv.URL
	return f
}

// startTLS is start over HTTPS, with HTTP/1.1 and HTTP/2.
func startTLS(t *testing.T, addr string) *front {
	t.Helper()
	f, srv := serve(t, addr, true)
	srv.EnableHTTP2 = true
	srv.StartTLS()
	f.url = srv.URL
	return f
}

func serve(t *testing.T, addr string, usual bool, change ...func(*endpoint.Endpoint)) (*front, *httptest.Server) {
	t.Helper()
	dial := func(ctx context.Context) (net.Conn, error) { return new(net.Dialer).DialContext(ctx, "tcp", addr) }
	transport := &http.Transport{
		DisableCompression: true,
		DialContext:        func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) },
	}
	t.Cleanup(transport.CloseIdleConnections)
	to := &endpoint.Endpoint{Transport: transport, FirstByte: time.Minute}
	if usual {
		to.Upstream = upstream.New(upstream.Config{Dial: dial})
		t.Cleanup(to.Upstream.CloseIdle)
	}
	for _, f := range change {
		f(to)
	}
	p := New(Config{SiteDomain: "sites.test", Log: slog.New(slog.DiscardHandler)})
	f := &front{}
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		response.Linger(w, r, func(w http.ResponseWriter, r *http.Request) {
			rec := &response.Recorder{ResponseWriter: w}
			if err := p.Serve(rec, r, to, Site{Host: "app.sites.test", Preview: r.URL.Path == "/preview"}, time.Now()); err != nil {
				f.failure.Store(&err)
				w.WriteHeader(http.StatusBadGateway)
			}
			f.first.Store(int64(rec.First))
		})
	}))
	t.Cleanup(srv.Close)
	return f, srv
}

func (f *front) get(t *testing.T, path string, header http.Header) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequest(http.MethodGet, f.url+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Host = "app.sites.test"
	if header != nil {
		r.Header = header
	}
	resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(b)
}

// On each way, a program gets the visitor's address only in headers that the proxy sets. Its response can't command a
// server in front of it or set cookies for other sites.
func TestServe(t *testing.T) {
	t.Parallel()
	program := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, c := range []string{"own=1", "shared=1; Domain=sites.test", "host=1; Domain=app.sites.test"} {
			w.Header().Add("Set-Cookie", c)
		}
		w.Header().Set("X-Accel-Redirect", "/etc/passwd")
		w.Header().Set("X-LiteSpeed-Location", "/etc/passwd")
		w.Header().Set("Alt-Svc", `h3=":443"`)
		w.Header().Set("Content-Type", "text/plain")
		names := []string{
			r.Host,
			r.Header.Get("Cookie"),
			r.Header.Get("X-Real-Ip"),
			r.Header.Get("X-Forwarded-For"),
			r.Header.Get("Forwarded"),
			r.Header.Get("Proxy") + r.Header.Get("X_Real_Ip"),
			r.Header.Get("X-Forwarded-Port"),
		}
		if ids := r.Header["X-Request-Id"]; len(ids) != 1 || !strings.HasPrefix(ids[0], "req_") {
			t.Errorf("the request's id is %q", ids)
		}
		io.WriteString(w, strings.Join(names, "|"))
	}))
	t.Cleanup(program.Close)
	for _, usual := range []bool{true, false} {
		f := start(t, program.Listener.Addr().String(), usual)
		for range 3 {
			resp, body := f.get(t, "/", http.Header{
				"X-Forwarded-For": {"6.6.6.6"},
				"X_Real_Ip":       {"6.6.6.6"},
				"Forwarded":       {"for=6.6.6.6"},
				"Proxy":           {"http://6.6.6.6"},
				"X-Request-Id":    {"forged id"},
				"X_request_id":    {"forged"},
				"Cookie":          {"a=b; __Host-slipway_access=x"},
			})
			if body != `app.sites.test|a=b|127.0.0.1|127.0.0.1|for=127.0.0.1;host="app.sites.test";proto=http||80` {
				t.Errorf("usual %v: the program read %s", usual, body)
			}
			if c := resp.Header["Set-Cookie"]; !slices.Equal(c, []string{
				"own=1",
				"host=1; Domain=app.sites.test",
			}) || resp.Header.Get("X-Accel-Redirect")+resp.Header.Get("X-Litespeed-Location")+resp.Header.Get("Alt-Svc")+resp.Header.Get("X-Robots-Tag") != "" {
				t.Errorf("usual %v: %v", usual, resp.Header)
			}
		}
		if resp, _ := f.get(t, "/preview", nil); resp.Header.Get("X-Robots-Tag") != "noindex" {
			t.Errorf("usual %v: a preview may be indexed", usual)
		}
		if f.first.Load() == 0 {
			t.Errorf("usual %v: the start of the response was not recorded", usual)
		}
	}
}

// Serve returns why a program didn't answer: it couldn't be reached, took too long or ended.
func TestServeFails(t *testing.T) {
	t.Parallel()
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone.Close()
	slow := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/crash" {
			panic(http.ErrAbortHandler)
		}
		<-r.Context().Done()
	}))
	t.Cleanup(slow.Close)
	for _, usual := range []bool{true, false} {
		f := start(t, gone.Addr().String(), usual)
		f.get(t, "/", nil)
		if f.failure.Load() == nil || errors.Is(*f.failure.Load(), ErrUnreached) != usual {
			t.Errorf("usual %v: no listener: %v", usual, f.failure.Load())
		}
		f = start(t, slow.Listener.Addr().String(), usual, func(p *endpoint.Endpoint) { p.FirstByte = 50 * time.Millisecond })
		f.get(t, "/slow", nil)
		if f.failure.Load() == nil || !errors.Is(*f.failure.Load(), ErrTimeout) {
			t.Errorf("usual %v: no answer: %v", usual, f.failure.Load())
		}
		f = start(t, slow.Listener.Addr().String(), usual)
		f.get(t, "/crash", nil)
		if f.failure.Load() == nil || errors.Is(*f.failure.Load(), ErrTimeout) || errors.Is(*f.failure.Load(), ErrUnreached) {
			t.Errorf("usual %v: it ends: %v", usual, f.failure.Load())
		}
	}
}

// A rule's target is allowed if the settings name its host, with the port unless it is the scheme's default.
func TestAllows(t *testing.T) {
	t.Parallel()
	hosts := []string{"api.test", "other.test:8443"}
	for target, want := range map[string]bool{
		"https://api.test/x":          true,
		"https://API.test:443/x":      true,
		"http://api.test:80/":         true,
		"https://other.test:8443/":    true,
		"https://api.test:8443/":      false,
		"https://other.test/":         false,
		"https://user@api.test/":      false,
		"/x":                          false,
		"https://api.test.evil.test/": false,
		"http://api.test:443/":        false,
	} {
		to, err := url.Parse(target)
		if err != nil {
			t.Fatal(err)
		}
		if allows(hosts, to) != want {
			t.Errorf("%s: %v", target, !want)
		}
	}
}

// All spellings of reserved header names that CGI programs would read as the same are recognized.
func TestOurs(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{
		"X-Forwarded-For":      true,
		"x_forwarded_for":      true,
		"X-FORWARDED":          true,
		"X-Forwarded_Anything": true,
		"forwarded":            true,
		"X_Real-IP":            true,
		"Proxy":                true,
		"X-Forwardedness":      false,
		"X-Real-Ipx":           false,
		"Proxy-Status":         false,
		"Cookie":               false,
		"":                     false,
	} {
		if ours(name) != want {
			t.Errorf("%q: %v", name, !want)
		}
	}
}

// A CONNECT never reaches a program, and a response without content has no Content-Length, also over HTTP/2, where
// net/http leaves both to its handlers.
func TestWithoutContent(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	program := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		io.WriteString(conn, "HTTP/1.1 204 No Content\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello")
	}))
	t.Cleanup(program.Close)
	addr := program.Listener.Addr().String()
	pool := upstream.New(upstream.Config{
		Dial: func(ctx context.Context) (net.Conn, error) { return new(net.Dialer).DialContext(ctx, "tcp", addr) },
	})
	p := New(Config{SiteDomain: "sites.test", Log: slog.New(slog.DiscardHandler)})
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := p.Serve(&response.Recorder{
			ResponseWriter: w,
		}, r, &endpoint.Endpoint{Upstream: pool, FirstByte: time.Minute}, Site{Host: "app.sites.test"}, time.Now()); err != nil {
			t.Error(err)
		}
	}))
	srv.EnableHTTP2 = true
	srv.StartTLS()
	t.Cleanup(srv.Close)
	for _, method := range []string{http.MethodHead, http.MethodGet, http.MethodPost} {
		r, err := http.NewRequest(method, srv.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := srv.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.ProtoMajor != 2 || resp.StatusCode != http.StatusNoContent || resp.Header.Get("Content-Length") != "" {
			t.Errorf("%s: %s %d %v", method, resp.Proto, resp.StatusCode, resp.Header)
		}
	}
	before := asked.Load()
	w := httptest.NewRecorder()
	if err := p.Serve(&response.Recorder{
		ResponseWriter: w,
	}, httptest.NewRequest(http.MethodConnect, "/path", nil), &endpoint.Endpoint{
		Upstream:  pool,
		FirstByte: time.Minute,
	}, Site{Host: "app.sites.test"}, time.Now()); err != nil || w.Code != http.StatusNotImplemented || asked.Load() != before {
		t.Errorf("CONNECT: %d, %v, %d requests reached the program", w.Code, err, asked.Load()-before)
	}
}

// Requests on shared connections are limited in total, per owner and per visitor. Requests on their own connection
// aren't limited, and a slot is freed when its request ends.
func TestSharedConnectionsAreBounded(t *testing.T) {
	t.Parallel()
	p := New(Config{SiteDomain: "sites.test", Log: slog.New(slog.DiscardHandler), Shared: 8})
	ask := func(owner, host, visitor string, major int, serve func(http.ResponseWriter, *http.Request) bool) *httptest.ResponseRecorder {
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "https://"+host+"/a.jpg", nil)
		r.ProtoMajor, r.RemoteAddr = major, visitor+":1"
		if err := p.Serve(&response.Recorder{
			ResponseWriter: w,
			Owner:          owner,
			Site:           host,
		}, r, &endpoint.Endpoint{Serve: serve}, Site{Host: host}, time.Now()); err != nil {
			t.Error(err)
		}
		return w
	}
	quick := func(w http.ResponseWriter, _ *http.Request) bool { w.WriteHeader(http.StatusOK); return true }
	want := func(what string, w *httptest.ResponseRecorder, status int) {
		t.Helper()
		if w.Code != status || (status == http.StatusServiceUnavailable) != (w.Header().Get("Retry-After") != "") {
			t.Errorf("%s: %d %v, want %d", what, w.Code, w.Header(), status)
		}
	}
	entered, leave := make(chan struct{}), make(chan struct{})
	var slow sync.WaitGroup
	hold := func(owner, host, visitor string) {
		slow.Go(func() {
			ask(owner, host, visitor, 2, func(http.ResponseWriter, *http.Request) bool { entered <- struct{}{}; <-leave; return true })
		})
		<-entered
	}
	hold("a", "a1.sites.test", "192.0.2.1")
	want("a visitor's second request", ask("a", "a1.sites.test", "192.0.2.1", 2, quick), http.StatusServiceUnavailable)
	want("the same at another owner's site", ask("b", "b1.sites.test", "192.0.2.1", 2, quick), http.StatusOK)
	hold("a", "a2.sites.test", "192.0.2.2")
	want("an owner's third, at whichever host", ask("a", "a3.sites.test", "192.0.2.3", 3, quick), http.StatusServiceUnavailable)
	want("HTTP/1.1 beside them", ask("a", "a3.sites.test", "192.0.2.3", 1, quick), http.StatusOK)
	want("another owner", ask("b", "b1.sites.test", "192.0.2.3", 3, quick), http.StatusOK)
	for _, owner := range []string{"b", "c", "d"} {
		hold(owner, owner+".sites.test", "192.0.2.1")
		hold(owner, owner+".sites.test", "192.0.2.2")
	}
	want("a fifth owner when all places are taken", ask("e", "e.sites.test", "192.0.2.1", 2, quick), http.StatusServiceUnavailable)
	close(leave)
	slow.Wait()
	want("afterwards", ask("a", "a1.sites.test", "192.0.2.1", 2, quick), http.StatusOK)
}

// far is a connection to a machine that disappears after it received a request.
type far struct{ net.Conn }

func (far) Write(b []byte) (int, error) { return len(b), nil }
func (far) Read([]byte) (int, error)    { return 0, fmt.Errorf("%w: %w", io.ErrUnexpectedEOF, io.EOF) }

// A request lost with its machine is retried once if it is safe to repeat and has no body.
func TestMachineGone(t *testing.T) {
	t.Parallel()
	program := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, r.Method)
	}))
	t.Cleanup(program.Close)
	for _, tt := range []struct {
		method, body string
		gone, status int
	}{
		{"GET", "", 1, 200},
		{"PUT", "", 1, 200},
		{"GET", "", 2, 502}, // both attempts fail: the request may be the cause
		{"POST", "", 1, 502},
		{"PUT", "x", 1, 502}, // its body has already been read from the visitor
	} {
		var dialed atomic.Int64
		f := start(t, program.Listener.Addr().String(), true, func(to *endpoint.Endpoint) {
			to.Upstream = upstream.New(upstream.Config{Dial: func(ctx context.Context) (net.Conn, error) {
				c, err := new(net.Dialer).DialContext(ctx, "tcp", program.Listener.Addr().String())
				if err == nil && int(dialed.Add(1)) <= tt.gone {
					c = far{c}
				}
				return c, err
			}})
			t.Cleanup(to.Upstream.CloseIdle)
		})
		r, err := http.NewRequest(tt.method, f.url, strings.NewReader(tt.body))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != tt.status {
			t.Errorf("%s %q, gone %d times: %d, want %d", tt.method, tt.body, tt.gone, resp.StatusCode, tt.status)
		}
	}
}
