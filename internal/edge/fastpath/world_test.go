package fastpath

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

const site = "site.test"

// world serves one handler twice: by a Server with ready answers, and by net/http alone as the reference.
type world struct {
	fast, slow string // addresses
	server     *Server
	served     atomic.Int64 // responses of the fast path
	handled    atomic.Int64 // requests that reached the fast server's handler
}

// Bodies of the paths that exist.
var (
	small = "hello"
	large = strings.Repeat("0123456789abcdef", 20_000)
)

// handler answers like a site on the edge.
func handler(w http.ResponseWriter, r *http.Request) {
	if host := Hostname(r.Host); host != site {
		http.Error(w, "another host", http.StatusMisdirectedRequest)
		return
	}
	if r.Method == http.MethodPost {
		b, err := io.ReadAll(io.LimitReader(r.Body, 64<<20))
		if err != nil {
			return
		}
		w.Header().Set("Content-Type", "text/plain")
		fmt.Fprintf(w, "%d bytes, trailer %q", len(b), r.Trailer.Get("X-Trailer"))
		return
	}
	if r.TLS == nil || r.TLS.ServerName != site {
		http.Error(w, "no TLS", 500)
		return
	}
	// Read the body: net/http closes an HTTP/2 connection if trailers arrive for a stream that it has just reset
	// because its handler didn't read the body.
	_, _ = io.Copy(io.Discard, io.LimitReader(r.Body, 1<<20))
	body, ok := ready(r.URL.EscapedPath())
	if !ok || r.Method != http.MethodGet && r.Method != http.MethodHead {
		http.Error(w, "status "+r.URL.RequestURI(), http.StatusNotFound)
		return
	}
	if r.URL.RawQuery != "" || r.Header.Get("Range") != "" {
		w.Header().Set("X-Odd", r.URL.RawQuery+r.Header.Get("Range"))
	}
	for _, list := range r.Header["If-None-Match"] {
		if strings.Contains(list, `"x"`) || list == "*" {
			w.Header()["Etag"] = []string{`"x"`}
			w.WriteHeader(http.StatusNotModified)
			return
		}
	}
	for name, values := range fields(body, accepted(r.Header.Get("Accept-Encoding"))) {
		w.Header()[name] = values
	}
	w.WriteHeader(200)
	io.WriteString(w, body)
}

func accepted(field string) Encodings {
	e, _ := parseAccepts([]byte(field))
	return e
}

func ready(path string) (string, bool) {
	switch path {
	case "/", "/small":
		return small, true
	case "/anonymous":
		return "for anybody", true
	case "/large":
		return large, true
	case "/empty":
		return "", true
	case "/a%20b":
		return "blank", true
	}
	return "", false
}

func fields(body string, e Encodings) http.Header {
	return http.Header{
		"Content-Type":   {"text/plain"},
		"Content-Length": {strconv.Itoa(len(body))},
		"Etag":           {`"x"`},
		"X-Encodings":    {"[" + e.String() + "]"},
	}
}

// hosts maps a test's connections to answers, and passes requests on if pass is set.
type hosts struct {
	takes  func(host string) bool // nil: all hosts
	find   func(at *Place, path []byte, e Encodings) *Answer
	pass   func(r *Request) func() bool // nil: nothing is passed on
	served func(*Sent)
}

func (h *hosts) Takes(host string, _ net.Addr) bool { return h.takes == nil || h.takes(host) }
func (h *hosts) Find(at *Place, path []byte, e Encodings) *Answer {
	return h.find(at, path, e)
}
func (h *hosts) Passes(*Place) bool          { return h.pass != nil }
func (h *hosts) Pass(r *Request) func() bool { return h.pass(r) }
func (h *hosts) Admit(*Place, int) bool      { return true }
func (h *hosts) Served(s *Sent)              { h.served(s) }

func start(t testing.TB, change ...func(*Config)) *world {
	t.Helper()
	w := &world{}
	answers := sync.Map{}
	find := func(at *Place, path []byte, e Encodings) *Answer {
		if at.Host != site {
			return nil
		}
		body, ok := ready(string(path))
		if !ok {
			return nil
		}
		key := body[:min(8, len(body))] + e.String()
		if a, ok := answers.Load(key); ok {
			return a.(*Answer)
		}
		a, err := NewAnswer(fields(body, e), []byte(body))
		if err != nil {
			t.Error(err)
			return nil
		}
		if err := a.Unchanged(`"x"`, http.Header{"Etag": {`"x"`}}); err != nil {
			t.Error(err)
		}
		if string(path) == "/anonymous" {
			a.Sessions = []string{"wp_session", "a="}
		}
		answers.Store(key, a)
		return a
	}
	config := &tls.Config{Certificates: []tls.Certificate{certificate(t)}, NextProtos: []string{"h2", "http/1.1"}}
	newHTTP := func(count bool) *http.Server {
		return &http.Server{
			TLSConfig:         config.Clone(),
			ReadHeaderTimeout: 10 * time.Second,
			IdleTimeout:       time.Minute,
			MaxHeaderBytes:    32 << 10,
			HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: maxStreams},
			Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				if count {
					w.handled.Add(1)
				}
				handler(rw, r)
			}),
		}
	}
	c := Config{HTTP: newHTTP(true), Hosts: &hosts{find: find, served: func(*Sent) { w.served.Add(1) }}}
	for _, f := range change {
		f(&c)
	}
	w.server = New(c)
	slow := newHTTP(false)
	a, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w.fast, w.slow = a.Addr().String(), b.Addr().String()
	go w.server.Serve(a)
	go slow.ServeTLS(b, "", "")
	t.Cleanup(func() { w.server.Close(); slow.Close() })
	return w
}

var certificate = func() func(testing.TB) tls.Certificate {
	var once sync.Once
	var c tls.Certificate
	return func(t testing.TB) tls.Certificate {
		once.Do(func() {
			key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
			if err != nil {
				t.Fatal(err)
			}
			template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{site}, NotAfter: time.Now().Add(time.Hour)}
			der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
			if err != nil {
				t.Fatal(err)
			}
			c = tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
		})
		return c
	}
}()

// patience caps how long a peer may take on a busy machine. Only a failing test waits that long.
const patience = 2 * time.Minute

func dial(t testing.TB, addr, proto string) *tls.Conn {
	t.Helper()
	c, err := tls.Dial("tcp", addr, &tls.Config{ServerName: site, InsecureSkipVerify: true, NextProtos: []string{proto}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(patience))
	return c
}

// reply holds a response without the fields that may differ.
type reply struct {
	status int
	proto  string
	header string
	body   string
	close  bool
}

func read(resp *http.Response) (reply, error) {
	b, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	h := resp.Header.Clone()
	if h.Get("Date") == "" && resp.StatusCode != 400 && resp.StatusCode != 431 && resp.StatusCode != 505 && resp.StatusCode != 501 {
		err = fmt.Errorf("no Date in %v", h)
	}
	h.Del("Date")
	var text strings.Builder
	h.Write(&text)
	return reply{resp.StatusCode, resp.Proto, text.String(), string(b), resp.Close}, err
}

// exchange sends bytes over HTTP/1.1 and reads responses until the connection closes or no more arrive.
func exchange(t testing.TB, addr, text string, methods []string) (out []reply, end error) {
	c := dial(t, addr, "http/1.1")
	go func() {
		io.WriteString(c, text)
		c.CloseWrite()
	}()
	in := bufio.NewReader(c)
	for i := 0; ; i++ {
		method := "GET"
		if i < len(methods) {
			method = methods[i]
		}
		resp, err := http.ReadResponse(in, &http.Request{Method: method})
		if err != nil {
			return out, err
		}
		r, err := read(resp)
		if err != nil {
			return out, err
		}
		out = append(out, r)
	}
}
