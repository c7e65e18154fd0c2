package egress

import (
	"bufio"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/net/dns/dnsmessage"
)

// proxyClient serves a proxy on loopback and returns a client that goes through it.
func proxyClient(t *testing.T, e *Egress, c ProxyConfig, user *url.Userinfo, srv *httptest.Server) (*Proxy, *http.Client, string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := e.Proxy(c)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	tr := &http.Transport{Proxy: http.ProxyURL(&url.URL{Scheme: "http", User: user, Host: l.Addr().String()})}
	if srv != nil && srv.TLS != nil {
		tr.TLSClientConfig = srv.Client().Transport.(*http.Transport).TLSClientConfig
	}
	t.Cleanup(tr.CloseIdleConnections)
	return p, &http.Client{Transport: tr, Timeout: time.Minute}, l.Addr().String()
}

func fetch(c *http.Client, method, u, body string) (string, error) {
	req, _ := http.NewRequest(method, u, strings.NewReader(body))
	resp, err := c.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return fmt.Sprint(resp.StatusCode, " ", strings.TrimSpace(string(b))), err
}

func echo(w http.ResponseWriter, r *http.Request) {
	b, _ := io.ReadAll(r.Body)
	fmt.Fprintf(w, "%s %s %s %q", r.Method, r.Host, b, r.Header.Get("Proxy-Authorization")+r.Header.Get("X-Forwarded-For"))
}

func TestProxyPolicy(t *testing.T) {
	t.Parallel()
	tls := httptest.NewTLSServer(http.HandlerFunc(echo))
	t.Cleanup(tls.Close)
	tls.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	plain := httptest.NewServer(http.HandlerFunc(echo))
	t.Cleanup(plain.Close)
	tlsAddr, plainAddr := tls.Listener.Addr().String(), plain.Listener.Addr().String()
	user := url.UserPassword("u", "p")
	for name, tt := range map[string]struct {
		allow  bool
		c      ProxyConfig
		user   *url.Userinfo
		method string
		url    string
		want   string // part of the body or the error
		cause  error
	}{
		"tunnel to a named host and port": {
			allow: true,
			c:     ProxyConfig{Hosts: []string{tlsAddr}},
			url:   tls.URL,
			want:  "200 GET " + tlsAddr + "  \"\"",
		},
		"port not allowed": {allow: true, url: tls.URL, want: "Forbidden", cause: ErrPolicy},
		"host not allowed": {
			allow: true,
			c:     ProxyConfig{Hosts: []string{"github.com"}},
			url:   "https://127.0.0.1",
			want:  "Forbidden",
			cause: ErrPolicy,
		},
		"suffix doesn't match the bare": {
			allow: true,
			c:     ProxyConfig{Hosts: []string{"*.github.com"}},
			url:   "https://evilgithub.com",
			want:  "Forbidden",
			cause: ErrPolicy,
		},
		"blocked address":           {c: ProxyConfig{Hosts: []string{tlsAddr}}, url: tls.URL, want: "Forbidden", cause: ErrBlocked},
		"metadata service in plain": {url: "http://169.254.169.254/latest", want: "403 blocked_address", cause: ErrBlocked},
		"direct is for the very pair": {
			c:      ProxyConfig{Direct: map[string]string{"git.test:80": plainAddr}},
			method: "POST",
			url:    "http://git.test/x",
			want:   "200 POST git.test body \"\"",
		},
		"direct tunnels too": {
			c:    ProxyConfig{Direct: map[string]string{tlsAddr: tlsAddr}},
			url:  tls.URL,
			want: "200 GET " + tlsAddr + "  \"\"",
		},
		"direct opens no other port": {
			c:     ProxyConfig{Direct: map[string]string{"127.0.0.1:1": plainAddr}},
			url:   plain.URL,
			want:  "403",
			cause: ErrPolicy,
		},
		"plain is for reading": {allow: true, method: "POST", url: "http://127.0.0.1/", want: "403", cause: ErrPolicy},
		"no credential":        {c: ProxyConfig{User: "u", Password: "p"}, url: "http://127.0.0.1/", want: "407"},
		"wrong credential": {
			c:    ProxyConfig{User: "u", Password: "p"},
			user: url.UserPassword("u", "q"),
			url:  "https://127.0.0.1/",
			want: "Proxy Authentication Required",
		},
		"credential isn't passed on": {
			c:    ProxyConfig{User: "u", Password: "p", Direct: map[string]string{"git.test:80": plainAddr}},
			user: user,
			url:  "http://git.test/x",
			want: "200 GET git.test  \"\"",
		},
		"unreachable": {
			allow: true,
			c:     ProxyConfig{Hosts: []string{"127.0.0.1:1"}},
			url:   "https://127.0.0.1:1",
			want:  "Bad Gateway",
		},
		"quota": {
			allow: true,
			c:     ProxyConfig{Hosts: []string{tlsAddr}, Quota: 1000},
			url:   tls.URL,
			want:  "EOF",
			cause: ErrQuota,
		},
		"quota of plain requests": {
			c:     ProxyConfig{Direct: map[string]string{"git.test:80": plainAddr}, Quota: 5},
			url:   "http://git.test/",
			want:  "EOF",
			cause: ErrQuota,
		},
		"an address written as IPv6":       {url: "https://[::ffff:127.0.0.1]", want: "Forbidden", cause: ErrBlocked},
		"a number that other parsers read": {c: ProxyConfig{}, url: "http://0x7f000001/", want: "502"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var ec Config
			if tt.allow {
				ec.Allow = loopback
			}
			if strings.HasPrefix(name, "a number") {
				ec.Resolver = zone(t, func(string) string { return "" })
			}
			p, c, _ := proxyClient(t, open(t, ec), tt.c, tt.user, tls)
			method, body := "GET", ""
			if tt.method != "" {
				method, body = tt.method, "body"
			}
			got, err := fetch(c, method, tt.url, body)
			if err != nil {
				got = err.Error()
			}
			if !strings.Contains(got, tt.want) {
				t.Errorf("got %q, want %q in it", got, tt.want)
			}
			if tt.cause != nil && !errors.Is(p.Refused(), tt.cause) {
				t.Errorf("Refused() = %v, want %v", p.Refused(), tt.cause)
			}
		})
	}
}

// If a host responds before the proxy has read the end of the request's body, the client still gets the complete
// response.
func TestProxyPassesQuickAnswers(t *testing.T) {
	t.Parallel()
	said := make(chan struct{})
	host := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.ReadFull(r.Body, make([]byte, r.ContentLength))
		io.WriteString(w, "quick ")
		w.(http.Flusher).Flush()
		<-said
		io.WriteString(w, "answer")
	}))
	defer host.Close()
	e, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	addr := host.Listener.Addr().String()
	p := e.Proxy(ProxyConfig{Direct: map[string]string{addr: addr}})
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		begun, seen := make(chan struct{}), make(chan struct{})
		r.Body = &lateEnd{ReadCloser: r.Body, wait: begun, seen: seen}
		p.ServeHTTP(&begins{ResponseWriter: w, begun: sync.OnceFunc(func() { close(begun); <-seen; close(said) })}, r)
	}))
	defer front.Close()
	u, _ := url.Parse(front.URL)
	client := &http.Client{Transport: &http.Transport{Proxy: http.ProxyURL(u)}, Timeout: time.Minute}
	defer client.CloseIdleConnections()
	if got, err := fetch(client, "POST", host.URL, "want it"); err != nil || got != "200 quick answer" {
		t.Errorf("got %q, %v", got, err)
	}
}

// lateEnd is a request body whose end is only read after the response has begun.
type lateEnd struct {
	io.ReadCloser
	reads      int
	wait, seen chan struct{}
}

func (b *lateEnd) Read(p []byte) (int, error) {
	b.reads++
	if b.reads != 2 {
		return b.ReadCloser.Read(p)
	}
	<-b.wait
	defer close(b.seen)
	return b.ReadCloser.Read(p)
}

// begins calls begun at a response's first byte.
type begins struct {
	http.ResponseWriter
	begun func()
}

func (w *begins) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *begins) Write(b []byte) (int, error) {
	n, err := w.ResponseWriter.Write(b)
	w.FlushError()
	return n, err
}

func (w *begins) FlushError() error {
	err := http.NewResponseController(w.ResponseWriter).Flush()
	w.begun()
	return err
}

// Serve closes tunnels that are in use when it ends.
func TestProxyServeEndsTunnels(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go io.Copy(c, c)
		}
	}()
	e := open(t, Config{Allow: loopback, Roots: x509.NewCertPool()})
	pl, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- e.Proxy(ProxyConfig{Direct: map[string]string{"echo.test:7": l.Addr().String()}}).Serve(ctx, pl)
	}()
	c, err := net.Dial("tcp", pl.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(time.Minute))
	// The client's first bytes may arrive in the same packet as CONNECT, and must not be lost.
	fmt.Fprintf(c, "CONNECT echo.test:7 HTTP/1.1\r\nHost: echo.test:7\r\n\r\nhello\n")
	br := bufio.NewReader(c)
	if s, _ := br.ReadString('\n'); !strings.Contains(s, " 200 ") {
		t.Fatalf("CONNECT: %q", s)
	}
	br.ReadString('\n')
	if s, _ := br.ReadString('\n'); s != "hello\n" {
		t.Fatalf("echo: %q", s)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if _, err := br.ReadByte(); err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("tunnel after the end: %v", err)
	}
}

// A tunnel whose TLS handshake the host never answers is closed long before an idle tunnel. A tunnel that was answered,
// or to another port, may be idle as long as Idle says.
func TestProxyGreeting(t *testing.T) {
	t.Parallel()
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
			t.Cleanup(func() { c.Close() })
			go func() { // only answers hello
				if s, _ := bufio.NewReader(c).ReadString('\n'); s == "hello\n" {
					fmt.Fprint(c, s)
				}
			}()
		}
	}()
	own := map[string]string{}
	for _, addr := range []string{"mute.test:443", "mute.test:5432"} {
		own[addr] = l.Addr().String()
	}
	_, _, at := proxyClient(t, open(t, Config{
		Allow: loopback,
		Roots: x509.NewCertPool(),
	}), ProxyConfig{Direct: own, Greeting: 3 * time.Second}, nil, nil)
	for _, tt := range []struct {
		addr, say string
		cut       bool
	}{
		{"mute.test:443", "hm\n", true},
		{"mute.test:443", "", true},
		{"mute.test:443", "hello\n", false},
		{"mute.test:5432", "hm\n", false},
	} {
		t.Run(tt.addr+tt.say, func(t *testing.T) {
			t.Parallel()
			c, err := net.Dial("tcp", at)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			c.SetDeadline(time.Now().Add(time.Minute))
			fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: %[1]s\r\n\r\n%s", tt.addr, tt.say)
			br := bufio.NewReader(c)
			head, _ := br.ReadString('\n')
			_, _ = br.ReadString('\n')
			if !strings.Contains(head, " 200 ") {
				t.Fatalf("CONNECT: %q", head)
			}
			if tt.say == "hello\n" {
				if s, err := br.ReadString('\n'); s != tt.say {
					t.Fatalf("%q, %v", s, err)
				}
			}
			if !tt.cut {
				c.SetDeadline(time.Now().Add(4 * time.Second))
			}
			_, err = br.ReadByte()
			if cut := !errors.Is(err, os.ErrDeadlineExceeded); cut != tt.cut {
				t.Errorf("%v: cut %v, want %v", err, cut, tt.cut)
			}
		})
	}
}

// A program without a resolver can ask whether a name may be reached, but doesn't get its address.
func TestProxyResolves(t *testing.T) {
	t.Parallel()
	names := zone(t, func(name string) string {
		return map[string]string{
			"public.test":  "93.184.216.34",
			"private.test": "10.0.0.1",
			"loop.test":    "127.0.0.1",
		}[strings.ToLower(name)]
	})
	for name, want := range map[string]struct {
		c    ProxyConfig
		code string
	}{
		"public.test":        {ProxyConfig{Resolve: true}, "204"},
		"PUBLIC.test":        {ProxyConfig{Resolve: true}, "204"},
		"private.test":       {ProxyConfig{Resolve: true}, "403 blocked_address"},
		"loop.test":          {ProxyConfig{Resolve: true}, "403 blocked_address"},
		"nowhere.test":       {ProxyConfig{Resolve: true}, "404"},
		"10.0.0.1":           {ProxyConfig{Resolve: true}, "404"},
		"93.184.216.34":      {ProxyConfig{Resolve: true}, "404"},
		"a..b":               {ProxyConfig{Resolve: true}, "404"},
		"":                   {ProxyConfig{Resolve: true}, "404"},
		"x\r\ny":             {ProxyConfig{Resolve: true}, "404"},
		"unasked.public":     {ProxyConfig{}, "400"},
		"direct.test":        {ProxyConfig{Resolve: true, Direct: map[string]string{"direct.test:80": "127.0.0.1:1"}}, "204"},
		"not-on-the-list.io": {ProxyConfig{Resolve: true, Hosts: []string{"public.test"}}, "403"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, _, addr := proxyClient(t, open(t, Config{Resolver: names}), want.c, nil, nil)
			got, err := fetch(&http.Client{Timeout: time.Minute}, "GET", "http://"+addr+"/resolve?name="+url.QueryEscape(name), "")
			if err != nil || !strings.HasPrefix(got, want.code) || strings.Contains(got, "10.0") {
				t.Errorf("answered %q, %v, want %s", got, err, want.code)
			}
		})
	}
}

// Programs get the DNS records that database drivers and mail clients need, but no hosts of the operator's private
// network.
func TestProxyResolvesRecords(t *testing.T) {
	t.Parallel()
	addrs := map[string]string{
		"a.public.test": "93.184.216.34", "b.public.test": "10.0.0.1", "alias.test": "93.184.216.34", "inner.test": "10.0.0.1",
	}
	records := map[string]string{
		"_mongodb._tcp.public.test.":  "SRV 0 0 27017 a.public.test.|SRV 0 0 27018 b.public.test.|SRV 0 0 27019 nowhere.test.",
		"corp.test.":                  "NS b.public.test.",
		"secret.corp.test.":           "TXT \"of the operator's network\"",
		"public.test.":                "TXT \"authSource=admin\"|MX 10 a.public.test.|MX 20 b.public.test.|NS a.public.test.|NS b.public.test.",
		"nomail.test.":                "MX 0 .",
		"34.216.184.93.in-addr.arpa.": "PTR a.public.test.",
		"1.0.0.10.in-addr.arpa.":      "PTR b.public.test.",
		"alias.test.":                 "CNAME a.public.test.",
		"inner.test.":                 "CNAME b.public.test.",
	}
	pc, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := &dns.Server{PacketConn: pc, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		m, ask := new(dns.Msg).SetReply(q), q.Question[0]
		m.RecursionAvailable = true
		if a := addrs[strings.TrimSuffix(ask.Name, ".")]; a != "" && ask.Qtype == dns.TypeA {
			records := records[ask.Name]
			at := ask.Name
			if to, ok := strings.CutPrefix(records, "CNAME "); ok {
				rr, _ := dns.NewRR(ask.Name + " 60 IN " + records)
				m.Answer, at = append(m.Answer, rr), to
			}
			rr, _ := dns.NewRR(at + " 60 IN A " + a)
			m.Answer = append(m.Answer, rr)
		}
		for record := range strings.SplitSeq(records[ask.Name], "|") {
			if rr, _ := dns.NewRR(ask.Name + " 60 IN " + record); rr != nil && rr.Header().Rrtype == ask.Qtype {
				m.Answer = append(m.Answer, rr)
			}
		}
		if len(m.Answer) == 0 && records[ask.Name] == "" {
			m.Rcode = dns.RcodeNameError
		}
		w.WriteMsg(m)
	})}
	go srv.ActivateAndServe()
	t.Cleanup(func() { srv.Shutdown() })
	names := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "udp", pc.LocalAddr().String())
	}}
	_, _, addr := proxyClient(t, open(t, Config{Resolver: names}), ProxyConfig{Resolve: true}, nil, nil)
	for ask, want := range map[string]string{
		"SRV _mongodb._tcp.public.test":  "200 27017 a.public.test.",
		"TXT public.test":                "200 authSource=admin",
		"MX public.test":                 "200 10 a.public.test.",
		"NS public.test":                 "200 a.public.test.",
		"CNAME alias.test":               "200 a.public.test.",
		"CNAME a.public.test":            "204",
		"CNAME inner.test":               "403",
		"PTR 34.216.184.93.in-addr.arpa": "200 a.public.test.",
		"PTR 1.0.0.10.in-addr.arpa":      "404",
		"MX nomail.test":                 "200 0 .",
		"MX a.public.test":               "204", // the name exists, without an MX record
		"MX b.public.test":               "204",
		"TXT nowhere.test":               "404",
		"TXT secret.corp.test":           "403",
		"NS corp.test":                   "204",
		"A public.test":                  "204",
	} {
		kind, name, _ := strings.Cut(ask, " ")
		res, err := (&http.Client{Timeout: time.Minute}).Get("http://" + addr + "/resolve?name=" + name + "&type=" + kind)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(res.Body)
		_ = res.Body.Close()
		got := strconv.Itoa(res.StatusCode)
		var m dnsmessage.Message
		if res.StatusCode == 200 {
			if err := m.Unpack(body); err != nil {
				t.Errorf("%s: %v", ask, err)
			}
		}
		for _, a := range m.Answers {
			switch b := a.Body.(type) {
			case *dnsmessage.SRVResource:
				got += fmt.Sprintf(" %d %s", b.Port, b.Target)
			case *dnsmessage.TXTResource:
				got += " " + strings.Join(b.TXT, "")
			case *dnsmessage.MXResource:
				got += fmt.Sprintf(" %d %s", b.Pref, b.MX)
			case *dnsmessage.NSResource:
				got += " " + b.NS.String()
			case *dnsmessage.CNAMEResource:
				got += " " + b.CNAME.String()
			case *dnsmessage.PTRResource:
				got += " " + b.PTR.String()
			}
		}
		if got != want {
			t.Errorf("%s: %q, want %q", ask, got, want)
		}
	}
}

// Lookups that fail, or that exceed the limit of connections, are reported with the name.
func TestProxyReportsLookups(t *testing.T) {
	t.Parallel()
	broken := &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		return nil, errors.New("no network")
	}}
	for conns, want := range map[int]string{1: "some.test: the lookup", -1: "some.test: " + ErrBusy.Error()} {
		var mu sync.Mutex
		var said []string
		c := ProxyConfig{Resolve: true, Refused: func(addr string, err error) {
			mu.Lock()
			defer mu.Unlock()
			if errors.As(err, new(*net.DNSError)) {
				err = errors.New("the lookup")
			}
			said = append(said, addr+": "+err.Error())
		}}
		p := open(t, Config{Resolver: broken}).Proxy(c)
		if conns < 0 {
			p.slots = nil // no slot is free
		}
		p.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/resolve?name=some.test", nil))
		if !slices.Equal(said, []string{want}) {
			t.Errorf("reported %q, want %q", said, want)
		}
	}
}
