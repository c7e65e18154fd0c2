// Package http3 owns serving a handler over QUIC: its limits, the counting of its connections together with all others,
// and the refusal of unsupported parts of HTTP/3.
package http3

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quic-go/quic-go"
	h3 "github.com/quic-go/quic-go/http3"

	"slipway/internal/edge/connlimit"
)

// Server serves a handler over QUIC with the limits of the TCP servers where they apply: 10 s for a handshake, 32 KiB
// of header, 128 concurrent requests, 2 minutes of idle time, 1 MiB of unread request body. See docs/adr/0012-http3.md.
type Server struct {
	server *h3.Server
	quic   *quic.Config
	tls    *tls.Config
	limits *connlimit.Limiter
	idle   time.Duration // idle timeout

	shaking atomic.Int64 // handshakes in progress

	mu        sync.Mutex // guards the rest
	closing   bool
	transport *quic.Transport
	listener  *quic.EarlyListener
}

// With this many handshakes in progress, clients must prove their address first (QUIC Retry), so that packets with
// forged addresses cost little.
const proveFrom = 64

// New returns a server for a handler with the certificates of t. limits counts its connections together with others;
// nil means no limit.
func New(handler http.Handler, t *tls.Config, limits *connlimit.Limiter) *Server {
	s := &Server{limits: limits, idle: 2 * time.Minute, tls: h3.ConfigureTLSConfig(t), quic: &quic.Config{
		HandshakeIdleTimeout: 5 * time.Second, // for each step; the whole handshake may take twice as long
		MaxIdleTimeout:       time.Minute,
		MaxIncomingStreams:   128,
		// HTTP/3 clients open three of these streams; a few more do no harm.
		MaxIncomingUniStreams:          8,
		InitialStreamReceiveWindow:     64 << 10,
		MaxStreamReceiveWindow:         1 << 20,
		InitialConnectionReceiveWindow: 128 << 10,
		MaxConnectionReceiveWindow:     1 << 20,
	}}
	s.server = &h3.Server{
		Handler:        overQUIC(handler),
		MaxHeaderBytes: 32 << 10,
		ConnContext:    s.quicIdle,
		Logger:         slog.New(slog.DiscardHandler), // strangers' errors aren't logged
	}
	return s
}

// Serve serves a socket until Shutdown or Close, then returns [http.ErrServerClosed]. The socket is closed with the
// last connection.
func (s *Server) Serve(c net.PacketConn) error {
	s.mu.Lock()
	if s.closing {
		s.mu.Unlock()
		c.Close()
		return http.ErrServerClosed
	}
	s.transport = &quic.Transport{
		Conn:                c,
		ConnContext:         s.admit,
		VerifySourceAddress: func(net.Addr) bool { return s.shaking.Load() >= proveFrom },
	}
	ln, err := s.transport.ListenEarly(s.tls, s.quic)
	s.listener = ln
	s.mu.Unlock()
	if err != nil {
		return fmt.Errorf("listen for QUIC: %w", err)
	}
	return s.server.ServeListener(ln)
}

// Shutdown lets running requests finish and closes all connections.
func (s *Server) Shutdown(ctx context.Context) error {
	err := s.server.Shutdown(ctx)
	s.close()
	return err
}

// Close closes all connections at once.
func (s *Server) Close() error {
	s.close()
	return s.server.Close()
}

func (s *Server) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closing = true
	if s.transport != nil {
		if s.listener != nil {
			s.listener.Close()
		}
		s.transport.Close()
		s.transport.Conn.Close()
	}
}

var errTooMany = errors.New("too many connections")

// admit counts a connection before any computation for it. The returned context ends with the connection or its failed
// handshake.
func (s *Server) admit(ctx context.Context, info *quic.ClientInfo) (context.Context, error) {
	p := &quicPlace{addr: info.RemoteAddr, shaken: func() { s.shaking.Add(-1) }}
	if s.limits != nil {
		p.counted = s.limits.Admit(p)
		if p.counted == nil {
			return nil, errTooMany
		}
		if p.counted.Spare() { // the last places are reserved for the control plane
			p.counted.Close()
			return nil, errTooMany
		}
	}
	s.shaking.Add(1)
	context.AfterFunc(ctx, p.end)
	return context.WithValue(ctx, quicPlaceKey{}, p), nil
}

// quicPlace represents a QUIC connection in a connection limiter.
type quicPlace struct {
	net.Conn // nil: the limiter only calls RemoteAddr and Close
	addr     net.Addr
	counted  *connlimit.Conn

	mu     sync.Mutex // guards the rest
	conn   *quic.Conn // nil during the handshake
	active int        // running requests
	rest   time.Duration
	timer  *time.Timer // closes the connection after idle time; nil during the handshake
	shaken func()      // ends the counting of its handshake, once
}

type quicPlaceKey struct{}

func (p *quicPlace) RemoteAddr() net.Addr { return p.addr }

// Close closes the connection because its place is needed.
func (p *quicPlace) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conn == nil {
		return nil
	}
	return p.conn.CloseWithError(quic.ApplicationErrorCode(h3.ErrCodeNoError), "")
}

func (p *quicPlace) end() {
	p.mu.Lock()
	p.handshaken()
	if p.timer != nil {
		p.timer.Stop()
	}
	p.mu.Unlock()
	if p.counted != nil {
		p.counted.Close()
	}
}

// handshaken records the end of the handshake. The caller holds p.mu.
func (p *quicPlace) handshaken() {
	if p.shaken != nil {
		p.shaken()
		p.shaken = nil
	}
}

// std is stored in the request context under [http.ServerContextKey]: handlers such as [httputil.ReverseProxy] abort an
// incomplete response with a panic only if they find a server there, which will catch it.
var std = &http.Server{}

// quicIdle starts the idle timer of a connection before its first request. The timeout of the HTTP/3 server stops at
// each opened stream, so half a header would hold a connection forever.
func (s *Server) quicIdle(ctx context.Context, c *quic.Conn) context.Context {
	ctx = context.WithValue(ctx, http.ServerContextKey, std)
	p, ok := c.Context().Value(quicPlaceKey{}).(*quicPlace)
	if !ok {
		return ctx
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.handshaken()
	p.conn = c
	p.rest, p.timer = s.idle, time.AfterFunc(s.idle, p.expire)
	p.idle(true)
	return context.WithValue(ctx, quicPlaceKey{}, p)
}

// idle reports the connection's idleness to the limiter. The caller holds p.mu.
func (p *quicPlace) idle(is bool) {
	if p.counted != nil {
		p.counted.SetIdle(is)
	}
}

func (p *quicPlace) request(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.active += n
	p.idle(p.active == 0)
	if p.active == 0 && p.conn.Context().Err() == nil {
		p.timer.Reset(p.rest)
	}
}

// expire closes the connection unless a request has arrived meanwhile.
func (p *quicPlace) expire() {
	p.mu.Lock()
	busy := p.active > 0
	p.mu.Unlock()
	if !busy {
		p.Close()
	}
}

// overQUIC refuses features that only HTTP/3 has here, and tracks which connections are in use.
func overQUIC(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p, ok := r.Context().Value(quicPlaceKey{}).(*quicPlace); ok {
			p.request(1)
			defer p.request(-1)
		}
		if r.Method == http.MethodConnect { // tunnels, and WebSockets over HTTP/3 (RFC 9220)
			w.WriteHeader(http.StatusNotImplemented)
			return
		}
		next.ServeHTTP(w, r)
	})
}
