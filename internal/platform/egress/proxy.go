package egress

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Errors of requests that a [Proxy] refuses. [Proxy.Refused] returns the first one, ErrBlocked, or the dialer's error.
var (
	ErrPolicy = errors.New("host or port not allowed")
	ErrQuota  = errors.New("transfer quota used up")
	ErrBusy   = errors.New("too many connections")
)

// ProxyConfig configures a proxy for one fetch or build. All fields are optional.
type ProxyConfig struct {
	User, Password string            // for Basic Proxy-Authorization; if both are empty, the listener itself must be private
	Hosts          []string          // "host", "*.host" or "host:port"; nil: every public host on Ports
	Ports          []int             // nil: 443 and 80
	Direct         map[string]string // requested host:port → host:port to dial without checks, for any method; from --git-host
	Quota          int64             // bytes in both directions of all connections; 0: no limit
	Conns          int               // concurrent connections; 0 means 128
	Idle           time.Duration     // a tunnel without traffic for this long is closed; 0 means 5 min
	Greeting       time.Duration     // time limit for a host's first byte on port 443; 0 means 1 min
	Log            *slog.Logger      // logs one line per requested host; nil logs nothing
	Resolve        bool              // also answer GET /resolve?name=…
	// Refused is called with each refused address and the reason, from any goroutine: ErrBlocked, ErrPolicy, ErrQuota,
	// ErrBusy, or the error of the dialer or resolver.
	Refused func(addr string, err error)
}

// Proxy is an HTTP proxy for child processes: CONNECT tunnels, and plain requests to port 80. It reaches only what
// [Egress.DialContext] allows.
type Proxy struct {
	c       ProxyConfig
	e       *Egress
	auth    [32]byte // digest of the required Proxy-Authorization
	slots   chan struct{}
	lookups chan struct{}
	plain   *httputil.ReverseProxy
	moved   atomic.Int64
	mu      sync.Mutex // guards first
	first   error
}

// maxLookups caps the names that a proxy looks up at once, each with one question after the other.
const maxLookups = 16

// Proxy returns a proxy. It starts nothing.
func (e *Egress) Proxy(c ProxyConfig) *Proxy {
	c.Conns = cmp.Or(c.Conns, 128)
	c.Idle = cmp.Or(c.Idle, 5*time.Minute)
	c.Greeting = min(cmp.Or(c.Greeting, time.Minute), c.Idle)
	if c.Ports == nil {
		c.Ports = []int{443, 80}
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	// share: none, one proxy's: 128 connections of one build, program or fetch, and 16 lookups of names
	p := &Proxy{c: c, e: e, slots: make(chan struct{}, c.Conns), lookups: make(chan struct{}, maxLookups)}
	p.auth = sha256.Sum256([]byte("Basic " + base64.StdEncoding.EncodeToString([]byte(c.User+":"+c.Password))))
	t := e.transport(p.dial)
	t.ForceAttemptHTTP2 = false
	p.plain = &httputil.ReverseProxy{
		Rewrite:        func(r *httputil.ProxyRequest) { r.Out.Header["User-Agent"] = r.In.Header["User-Agent"] },
		Transport:      t,
		FlushInterval:  -1,
		ModifyResponse: func(r *http.Response) error { r.Body = &metered{r.Body, p}; return nil },
		ErrorHandler:   func(w http.ResponseWriter, r *http.Request, err error) { p.refuse(w, r.URL.Host, err) },
		ErrorLog:       slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug),
	}
	return p
}

// Serve serves l until ctx ends, then closes every tunnel. It closes l.
func (p *Proxy) Serve(ctx context.Context, l net.Listener) error {
	srv := &http.Server{
		Handler:           p,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    32 << 10,
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ErrorLog:          slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug),
	}
	stop := context.AfterFunc(ctx, func() { srv.Close() })
	defer stop()
	defer p.plain.Transport.(*http.Transport).CloseIdleConnections()
	err := srv.Serve(l)
	if ctx.Err() != nil {
		return nil
	}
	srv.Close()
	return fmt.Errorf("serve egress proxy: %w", err)
}

// Refused returns the first reason for which this proxy refused a request, or nil.
func (p *Proxy) Refused() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.first
}

// ServeHTTP handles one request of a child process.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !p.authorised(r) {
		w.Header().Set("Proxy-Authenticate", `Basic realm="egress"`)
		http.Error(w, "credential needed", http.StatusProxyAuthRequired)
		return
	}
	select {
	case p.slots <- struct{}{}:
		defer func() { <-p.slots }()
	default:
		addr := cmp.Or(r.URL.Host, r.Host)
		if p.resolving(r) {
			addr = r.URL.Query().Get("name")
		}
		p.refuse(w, addr, ErrBusy)
		return
	}
	if r.Method == http.MethodConnect {
		p.tunnel(w, r)
		return
	}
	if p.resolving(r) {
		p.resolve(w, r)
		return
	}
	p.forward(w, r)
}

// resolving reports whether a request asks for a name.
func (p *Proxy) resolving(r *http.Request) bool {
	return p.c.Resolve && r.Method != http.MethodConnect && r.URL.Host == "" && r.URL.Path == "/resolve"
}

func (p *Proxy) authorised(r *http.Request) bool {
	if p.c.User == "" && p.c.Password == "" {
		return true
	}
	got := sha256.Sum256([]byte(r.Header.Get("Proxy-Authorization")))
	return subtle.ConstantTimeCompare(got[:], p.auth[:]) == 1
}

// forward forwards a plain request: GET or HEAD to port 80, or any method to a direct host, as git needs.
func (p *Proxy) forward(w http.ResponseWriter, r *http.Request) {
	if r.URL.Scheme != "http" || r.URL.Host == "" || r.URL.User != nil {
		http.Error(w, "this is a proxy", http.StatusBadRequest)
		return
	}
	addr := r.URL.Host
	if r.URL.Port() == "" {
		addr = net.JoinHostPort(r.URL.Hostname(), "80")
	}
	if _, direct := p.c.Direct[addr]; !direct && (!strings.HasSuffix(addr, ":80") ||
		r.Method != http.MethodGet && r.Method != http.MethodHead) {
		p.refuse(w, addr, ErrPolicy)
		return
	}
	if err := p.allowed(addr); err != nil {
		p.refuse(w, addr, err)
		return
	}
	if r.Header.Get("Upgrade") != "" {
		p.refuse(w, addr, ErrPolicy)
		return
	}
	r.Host = r.URL.Host // the absolute form overrides the Host header (RFC 9112 §3.2.2)
	if r.Body != nil {
		r.Body = &metered{r.Body, p}
	}
	// Otherwise net/http would close the request's body at the response's first byte, and the transport, which reads on
	// to find the body's end, would abort the response.
	_ = http.NewResponseController(w).EnableFullDuplex()
	p.plain.ServeHTTP(w, r)
}

// tunnel connects and copies until both sides are done, the quota is used or ctx ends.
func (p *Proxy) tunnel(w http.ResponseWriter, r *http.Request) {
	addr := r.URL.Host
	if addr == "" {
		addr = r.Host
	}
	if err := p.allowed(addr); err != nil {
		p.refuse(w, addr, err)
		return
	}
	out, err := p.dial(r.Context(), "tcp", addr)
	if err != nil {
		p.refuse(w, addr, err)
		return
	}
	defer out.Close()
	in, buf, err := http.NewResponseController(w).Hijack()
	if err != nil {
		p.refuse(w, addr, err)
		return
	}
	defer in.Close()
	in.SetDeadline(time.Time{})
	if _, err := io.WriteString(in, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		return
	}
	stop := context.AfterFunc(r.Context(), func() { in.Close(); out.Close() })
	defer stop()
	// Both directions share one timeout, so a download isn't idle just because it sends nothing. A handshake without an
	// answer ends sooner: npm, for one, would wait forever.
	var greeted atomic.Bool
	touch := func() {
		t := time.Now().Add(p.c.Idle)
		in.SetDeadline(t)
		out.SetWriteDeadline(t)
		if greeted.Load() {
			out.SetReadDeadline(t)
		}
	}
	if strings.HasSuffix(addr, ":443") {
		out.SetReadDeadline(time.Now().Add(p.c.Greeting))
	} else {
		greeted.Store(true)
	}
	touch()
	up := make(chan struct{})
	// uncaught: copies bytes
	go func() { // ends when either connection is closed
		defer close(up)
		p.pump(out, buf.Reader, touch)
		half(out)
	}()
	p.pump(in, out, func() { greeted.Store(true); touch() })
	half(in)
	if !greeted.Load() || errors.Is(p.Refused(), ErrQuota) {
		in.Close()
	}
	<-up
}

func (p *Proxy) pump(dst io.Writer, src io.Reader, touch func()) {
	b := make([]byte, 32<<10)
	for {
		n, err := src.Read(b)
		if n > 0 {
			if p.spend(n) != nil {
				return
			}
			touch()
			if _, werr := dst.Write(b[:n]); werr != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func half(c net.Conn) {
	if t, ok := c.(interface{ CloseWrite() error }); ok {
		t.CloseWrite()
		return
	}
	c.Close()
}

// spend subtracts n bytes from the quota.
func (p *Proxy) spend(n int) error {
	if total := p.moved.Add(int64(n)); p.c.Quota > 0 && total > p.c.Quota {
		p.note(ErrQuota)
		if p.c.Refused != nil && total-int64(n) <= p.c.Quota {
			p.c.Refused("", ErrQuota)
		}
		return ErrQuota
	}
	return nil
}

// allowed checks host and port against the proxy's rules; dialing checks the address.
func (p *Proxy) allowed(addr string) error {
	if _, ok := p.c.Direct[addr]; ok {
		return nil
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil || host == "" {
		return ErrPolicy
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		return ErrPolicy
	}
	host = strings.ToLower(host)
	if p.c.Hosts != nil && slices.Contains(p.c.Hosts, net.JoinHostPort(host, port)) {
		return nil // listed with its port, so Ports doesn't apply
	}
	if !slices.Contains(p.c.Ports, n) {
		return ErrPolicy
	}
	return p.allowedHost(host)
}

// allowedHost checks a name against the rules, for any port.
func (p *Proxy) allowedHost(host string) error {
	host = strings.ToLower(host)
	if p.c.Hosts == nil || slices.Contains(p.c.Hosts, host) {
		return nil
	}
	for _, h := range p.c.Hosts {
		if suffix, ok := strings.CutPrefix(h, "*"); ok && strings.HasPrefix(suffix, ".") && strings.HasSuffix(host, suffix) {
			return nil
		}
	}
	return ErrPolicy
}

func (p *Proxy) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	p.c.Log.InfoContext(ctx, "outbound connection", "addr", addr)
	if to, ok := p.c.Direct[addr]; ok {
		d := net.Dialer{Timeout: p.e.c.Connect, Resolver: p.e.c.Resolver}
		return d.DialContext(ctx, network, to)
	}
	return p.e.DialContext(ctx, network, addr)
}

func (p *Proxy) note(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.first == nil {
		p.first = err
	}
}

// refuse answers with a reason but never with an address.
func (p *Proxy) refuse(w http.ResponseWriter, addr string, err error) {
	p.note(err)
	if p.c.Refused != nil {
		p.c.Refused(addr, err)
	}
	switch {
	case errors.Is(err, ErrBlocked):
		http.Error(w, ErrBlocked.Error(), http.StatusForbidden)
	case errors.Is(err, ErrPolicy), errors.Is(err, ErrQuota):
		http.Error(w, err.Error(), http.StatusForbidden)
	case errors.Is(err, ErrBusy):
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	default:
		http.Error(w, "host unreachable", http.StatusBadGateway)
	}
}

// metered subtracts a body's bytes from the quota.
type metered struct {
	io.ReadCloser
	p *Proxy
}

func (m *metered) Read(b []byte) (int, error) {
	n, err := m.ReadCloser.Read(b)
	if n > 0 {
		if serr := m.p.spend(n); serr != nil {
			return 0, serr
		}
	}
	return n, err
}
