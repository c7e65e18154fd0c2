// Package http3 owns serving a handler over QUIC: its limits, counting its connections together
// with all others, and rejecting parts of HTTP/3 that are not supported.
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

// Server serves a handler over QUIC, with the limits of the servers over TCP as far as QUIC
// has the same things: 10 s for a handshake, 32 KiB of header, 128 requests at a time, 2
// minutes of idleness, 1 MiB of a body that nobody reads. See docs/adr/0012-http3.md.
type Server struct {
	server *h3.Server
	quic   *quic.Config
	tls    *tls.Config
	limits *connlimit.Limiter
	idle   time.Duration // without a request under way

	shaking atomic.Int64 // handshakes under way

	mu        sync.Mutex // guards the rest
	closing   bool
	transport *quic.Transport
	listener  *quic.EarlyListener
}

// From so many handshakes under way on, a client must prove its address first: who sends
// packets under addresses of others costs us nothing more than a packet then.
const proveFrom = 64

// New returns a server for a handler, with the certificates of a configuration for TLS. limits
// counts its connections beside the others; optional.
func New(handler http.Handler, t *tls.Config, limits *connlimit.Limiter) *Server {
	s := &Server{limits: limits, idle: 2 * time.Minute, tls: h3.ConfigureTLSConfig(t), quic: &quic.Config{
		HandshakeIdleTimeout: 5 * time.Second, // and twice that for all of it
		MaxIdleTimeout:       time.Minute,
		MaxIncomingStreams:   128,
		// A client has three streams of its own; a few more are no harm.
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
		Logger:         slog.New(slog.DiscardHandler), // strangers' mistakes
	}
	return s
}

// Serve serves a socket until Shutdown or Close; then it returns http.ErrServerClosed.
// The socket is closed with the last connection.
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

// Shutdown lets requests under way finish and ends all connections.
func (s *Server) Shutdown(ctx context.Context) error {
	err := s.server.Shutdown(ctx)
	s.close()
	return err
}

// Close ends everything at once.
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

// admit counts a connection before anything is computed for it. The context ends with the
// connection or with its failed handshake.
func (s *Server) admit(ctx context.Context, info *quic.ClientInfo) (context.Context, error) {
	p := &quicPlace{addr: info.RemoteAddr, shaken: func() { s.shaking.Add(-1) }}
	if s.limits != nil {
		p.counted = s.limits.Admit(p)
		if p.counted == nil {
			return nil, errTooMany
		}
		if p.counted.Spare() { // the last places are for the control plane
			p.counted.Close()
			return nil, errTooMany
		}
	}
	s.shaking.Add(1)
	context.AfterFunc(ctx, p.end)
	return context.WithValue(ctx, quicPlaceKey{}, p), nil
}

// quicPlace is a QUIC connection as a limiter of connections sees it.
type quicPlace struct {
	net.Conn // nil: a limiter asks for the address and closes
	addr     net.Addr
	counted  *connlimit.Conn

	mu     sync.Mutex // guards the rest
	conn   *quic.Conn // nil during the handshake
	active int        // requests under way
	rest   time.Duration
	timer  *time.Timer // ends the connection after so long a rest; nil during the handshake
	shaken func()      // ends the counting of its handshake, once
}

type quicPlaceKey struct{}

func (p *quicPlace) RemoteAddr() net.Addr { return p.addr }

// Close ends the connection because its place is needed.
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

// handshaken notes that the handshake is over. p.mu is held.
func (p *quicPlace) handshaken() {
	if p.shaken != nil {
		p.shaken()
		p.shaken = nil
	}
}

// std stands in the context of requests where net/http has its server: handlers such as
// httputil.ReverseProxy end half an answer by a panic only where a server will catch it, and
// would let it pass for a whole one.
var std = &http.Server{}

// quicIdle notes that a connection waits for its first request. The HTTP/3 server's own timeout
// stops at each stream that is opened: one with half a header would hold a connection for ever.
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

// idle tells the limiter. p.mu is held.
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

// expire ends the connection unless a request has come meanwhile.
func (p *quicPlace) expire() {
	p.mu.Lock()
	busy := p.active > 0
	p.mu.Unlock()
	if !busy {
		p.Close()
	}
}

// overQUIC refuses what HTTP/3 has and the other versions here have not, and notes which
// connections are in use.
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
