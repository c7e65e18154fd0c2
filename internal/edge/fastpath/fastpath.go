// Package fastpath owns fast responses to plain requests over TLS: a GET or HEAD whose whole response is ready in
// memory, or a request that [Hosts.Pass] answers.
//
// It implements the part of HTTP/1.1 and HTTP/2 that such requests need: headers are encoded once per Answer, and a
// batch of responses is one write. All other requests go to net/http unchanged. On HTTP/1.1 the connection is handed
// over with the bytes already read. On HTTP/2 the request's frames go through a lane, an in-memory connection that
// net/http serves, while other requests of the connection stay here. So the package only decides whether a request is
// plain; net/http decides everything else.
//
// The package enforces the same limits as net/http on time, memory and work per connection: deadlines for handshakes,
// headers, idle connections and slow readers; sizes of header blocks; the number of streams; and the volume of frames
// without effect.
package fastpath

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"slipway/internal/platform/fair"
	"slipway/internal/platform/panics"
)

// Config holds the dependencies and settings of a Server.
type Config struct {
	// HTTP serves requests that aren't plain and holds the TLS configuration. New changes its Handler and ConnContext,
	// so it can't be used for anything else.
	HTTP *http.Server
	// Hosts provides the responses.
	Hosts Hosts
	// Draining says that each response closes its connection. Optional.
	Draining *atomic.Bool

	HeaderTime time.Duration // for a handshake, and for a request's header. Optional: 0 means 10s.
	IdleTime   time.Duration // between requests. Optional: 0 means 2 minutes.
	WriteTime  time.Duration // write timeout per chunk of a response. Optional: 0 means a minute.
}

// Hosts answers requests. Its methods are called from many goroutines.
type Hosts interface {
	// Takes reports whether this package should serve connections for a host from an address: it may have prepared
	// responses, or its requests are forwarded. Other connections go to HTTP at once.
	Takes(host string, from net.Addr) bool
	// Find returns the prepared response for a path, or nil to leave the request to HTTP. The result must depend only
	// on the arguments; Find must not keep path. Calls for one Place don't overlap.
	Find(at *Place, path []byte, accepts Encodings) *Answer
	// Admit reports whether a response that Find just returned may be sent with a body of size bytes; a call of Served
	// follows. It must not wait: HTTP answers requests that aren't admitted.
	Admit(at *Place, size int) bool
	// Passes reports whether Pass instead of Find answers requests at a place.
	Passes(at *Place) bool
	// Pass returns a function that answers the request, or nil to leave the request to HTTP. Pass must not wait; the
	// function may. It returns whether the response is complete; if not, the connection (over HTTP/2 the stream) is
	// aborted.
	Pass(r *Request) (answer func() (whole bool))
	// Served is called after each response. s is only valid during the call.
	Served(s *Sent)
}

// Place is the destination of a connection.
type Place struct {
	Host string // TLS server name: lower case, without port
	// Known and Since let Find cache what it knows about Host, and since when.
	Known any
	Since uint64
	// Client lets Served and Pass cache what they know about the client, and Told lets Pass cache what programs are
	// told about it. All requests of a connection share them.
	Client, Told atomic.Value
}

// Sent describes a response that was sent.
type Sent struct {
	Answer   *Answer
	Place    *Place
	Remote   net.Addr
	Protocol string // HTTP/1.1 or HTTP/2.0
	Status   int
	Head     bool  // HEAD; otherwise GET
	Size     int64 // size of the body
	plain    *plain
}

// Referrer returns the request's Referer header.
func (s *Sent) Referrer() string {
	if s.plain == nil {
		return ""
	}
	return s.plain.referrer.String()
}

// Agent returns the request's User-Agent header.
func (s *Sent) Agent() string {
	if s.plain == nil {
		return ""
	}
	return s.plain.agent.String()
}

// freshTime is how long a shutdown waits for a connection's first request, as net/http does.
const freshTime = 5 * time.Second

// Server serves connections. It has the methods of [http.Server] that its owner needs.
type Server struct {
	Config
	tls     *tls.Config
	lanes   *http.Server // HTTP/2 in memory, for requests that aren't plain
	toH1    *handover    // passes connections to Config.HTTP
	toH2    *handover    // passes connections to lanes
	date    atomic.Pointer[date]
	headers *fair.Pool // bytes of requests' headers

	accepting sync.WaitGroup // running Serve calls, which may accept one more connection

	mu sync.Mutex // guards the fields below
	ln net.Listener
	// share: total the connections of the listener, see connlimit; owner PerAddress of one network; edge refused
	conns   map[*conn]struct{}
	closing bool
}

// New returns a Server. It starts nothing.
func New(c Config) *Server {
	c.HeaderTime = cmp.Or(c.HeaderTime, 10*time.Second)
	c.IdleTime = cmp.Or(c.IdleTime, 2*time.Minute)
	c.WriteTime = cmp.Or(c.WriteTime, time.Minute)
	c.Draining = cmp.Or(c.Draining, new(atomic.Bool))
	c.HTTP.Handler = withTLS(counted(c.HTTP.Handler))
	s := &Server{Config: c, conns: map[*conn]struct{}{}, toH1: newHandover(), toH2: newHandover(), headers: newHeaders()}
	c.HTTP.ConnContext = func(ctx context.Context, c net.Conn) context.Context { return s.counting(connContext(ctx, c), c) }
	s.tls = c.HTTP.TLSConfig.Clone()
	// Full-size TLS records cost less CPU, and responses are complete in memory; slow clients wait a little longer for
	// the first byte.
	s.tls.DynamicRecordSizingDisabled = true
	s.lanes = &http.Server{
		Handler:           c.HTTP.Handler,
		ConnContext:       connContext,
		MaxHeaderBytes:    min(cmp.Or(c.HTTP.MaxHeaderBytes, http.DefaultMaxHeaderBytes), maxFields/2),
		ReadHeaderTimeout: c.HeaderTime,
		ErrorLog:          c.HTTP.ErrorLog,
		Protocols:         new(http.Protocols),
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams:      maxStreams,
			MaxReceiveBufferPerStream: bodyWindow, MaxReceiveBufferPerConnection: bodyWindow,
		},
	}
	s.lanes.Protocols.SetUnencryptedHTTP2(true)
	return s
}

// Serve accepts TLS connections until Shutdown or Close, then returns [http.ErrServerClosed].
func (s *Server) Serve(ln net.Listener) error {
	s.mu.Lock()
	if s.closing {
		s.mu.Unlock()
		ln.Close()
		return http.ErrServerClosed
	}
	s.ln = ln
	s.accepting.Add(1)
	s.mu.Unlock()
	defer s.accepting.Done()
	s.toH1.addr, s.toH2.addr = ln.Addr(), ln.Addr()
	// uncaught: net/http catches
	go s.HTTP.Serve(s.toH1)
	// uncaught: net/http catches
	go s.lanes.Serve(s.toH2)
	var wait time.Duration
	for {
		raw, err := ln.Accept()
		if err != nil {
			if s.isClosing() {
				return http.ErrServerClosed
			}
			// Probably out of file descriptors: wait until others are closed.
			if ne, ok := err.(interface{ Temporary() bool }); ok && ne.Temporary() {
				wait = min(max(2*wait, 5*time.Millisecond), time.Second)
				time.Sleep(wait)
				continue
			}
			return err
		}
		wait = 0
		c := &conn{s: s, raw: raw, tls: tls.Server(raw, s.tls), idling: func(bool) {}}
		c.fresh.Store(true)
		s.add(c)
		// uncaught: survive catches
		go s.serve(c)
	}
}

func (s *Server) isClosing() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closing
}

// Shutdown lets running requests finish and closes all connections, as [http.Server.Shutdown] does. A new connection
// still gets one response: its client can't know that its request wasn't read.
func (s *Server) Shutdown(ctx context.Context) error {
	s.close()
	s.accepting.Wait()
	s.HTTP.SetKeepAlivesEnabled(false)
	for _, c := range s.all() {
		c.drain()
	}
	// After its shutdown net/http accepts no connections and may cut off a response on a connection it considers idle.
	// So HTTP/1.1 connections, which may still be handed over, end before HTTP, and HTTP/2 connections before their
	// lanes.
	brief, cancel := context.WithTimeout(ctx, s.HeaderTime)
	_ = s.ended(brief, func(c *conn) bool { return c.onDrain.Load() == nil && !c.passing.Load() })
	cancel()
	errs := make(chan error, 1)
	// uncaught: the end of the service
	go func() { errs <- s.HTTP.Shutdown(ctx) }()
	err := s.ended(ctx, func(*conn) bool { return true })
	return errors.Join(err, <-errs, s.lanes.Shutdown(ctx))
}

// ended waits until no connection that kind reports is left.
func (s *Server) ended(ctx context.Context, kind func(*conn) bool) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		left := false
		s.mu.Lock()
		for c := range s.conns {
			left = kind(c)
			if left {
				break
			}
		}
		s.mu.Unlock()
		if !left {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// Close closes all connections at once.
func (s *Server) Close() error {
	s.close()
	s.accepting.Wait()
	for _, c := range s.all() {
		c.raw.Close()
	}
	return errors.Join(s.HTTP.Close(), s.lanes.Close())
}

func (s *Server) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closing = true
	if s.ln != nil {
		s.ln.Close()
	}
}

func (s *Server) all() []*conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.conns))
}

// conn is a connection that this package serves.
type conn struct {
	s     *Server
	raw   net.Conn // the connection below TLS
	tls   *tls.Conn
	state *tls.ConnectionState
	place Place
	memo

	sent            Sent
	readBy, writeBy time.Time              // current deadlines
	idling          func(bool)             // reports idleness to a connection limiter
	drained         atomic.Bool            // no more requests are accepted
	passing         atomic.Bool            // Hosts.Pass is answering a request
	fresh           atomic.Bool            // no request has arrived yet
	onDrain         atomic.Pointer[func()] // wakes the reader to drain; nil on HTTP/1.1

	leaving sync.Mutex // guards left
	left    bool       // net/http owns the connection, including its deadlines
}

// serve performs the handshake and chooses the protocol's server.
func (s *Server) serve(c *conn) {
	raw, kept := c.raw, false
	defer func() {
		if !kept {
			s.remove(c)
		}
	}()
	if l, ok := raw.(interface{ SetIdle(bool) }); ok {
		c.idling = l.SetIdle
	}
	defer s.survive(raw)
	raw.SetDeadline(time.Now().Add(s.HeaderTime))
	if err := c.tls.HandshakeContext(context.Background()); err != nil {
		// Answer plain HTTP on the TLS port as net/http does.
		if re, ok := err.(tls.RecordHeaderError); ok && re.Conn != nil && looksLikeHTTP(re.RecordHeader) {
			io.WriteString(re.Conn, "HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n")
		}
		raw.Close()
		return
	}
	raw.SetDeadline(time.Time{})
	state := c.tls.ConnectionState()
	c.state, c.place.Host = &state, Hostname(state.ServerName)
	if c.place.Host == "" || !modern(state) || !s.Hosts.Takes(c.place.Host, raw.RemoteAddr()) {
		s.toH1.give(c.tls) // net/http serves the TLS connection itself
		return
	}
	c.sent = Sent{Place: &c.place, Remote: raw.RemoteAddr(), Protocol: "HTTP/1.1"}
	var answer func()
	switch state.NegotiatedProtocol {
	case "h2":
		c.sent.Protocol = "HTTP/2.0"
		answer = newH2(c).serve
	case "http/1.1", "":
		answer = func() { serveH1(c) }
	default:
		s.toH1.give(c.tls)
		return
	}
	kept = true
	// The handshake has grown the stack. Continue in a new goroutine, so that an idle connection holds a small one.
	// uncaught: survive catches
	go func() {
		defer s.survive(raw)
		defer s.remove(c)
		answer()
	}()
}

// survive limits a panic to one connection.
func (s *Server) survive(raw net.Conn) {
	if v := recover(); v != nil {
		_ = panics.Caught(v)
		raw.Close()
		if s.HTTP.ErrorLog != nil {
			s.HTTP.ErrorLog.Printf("fastpath: panic serving %v: %v", raw.RemoteAddr(), v)
		}
	}
}

func (s *Server) add(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns[c] = struct{}{}
}

func (s *Server) remove(c *conn) {
	s.mu.Lock()
	delete(s.conns, c)
	s.mu.Unlock()
}

// drain closes the connection once no request is running.
func (c *conn) drain() {
	c.drained.Store(true)
	if c.fresh.Load() {
		time.AfterFunc(min(freshTime, c.s.HeaderTime), func() {
			c.fresh.Store(false)
			c.wakeUp()
		})
		return
	}
	c.wakeUp()
}

// wakeUp makes the reader see that the connection ends.
func (c *conn) wakeUp() {
	if drain := c.onDrain.Load(); drain != nil {
		(*drain)()
		return
	}
	c.leaving.Lock()
	defer c.leaving.Unlock()
	if !c.left {
		c.raw.SetReadDeadline(time.Now())
	}
}

// end closes the connection. If told is true, the client knows that it ends, and end lets it read the last response
// first: closing while the client still sends makes the kernel send a reset, which discards unread data.
func (c *conn) end(told bool) {
	if told && c.tls.CloseWrite() == nil {
		if half, ok := c.raw.(interface{ CloseWrite() error }); ok {
			_ = half.CloseWrite()
		}
		by := time.Now().Add(min(lingerTime, c.s.HeaderTime))
		c.raw.SetReadDeadline(by)
		buf := ins.Get().(*[]byte)
		defer ins.Put(buf)
		for n := 0; n < 16<<20; { // stop reading after 16 MiB
			m, err := c.raw.Read(*buf)
			n += m
			if ne, ok := err.(net.Error); ok && ne.Timeout() && time.Now().Before(by) {
				c.raw.SetReadDeadline(by) // wakeUp may have changed the deadline
			} else if err != nil {
				break
			}
		}
	}
	c.tls.Close()
}

// lingerTime is how long a client may take to close a connection that it knows to end.
const lingerTime = 2 * time.Second

// served reports a response to Hosts.
func (c *conn) served(a *Answer, r *plain, h *head, size int) {
	s := &c.sent
	s.Answer, s.Status, s.Head, s.Size, s.plain = a, http.StatusOK, r.head, int64(size), r
	if h == &a.unchanged {
		s.Status = http.StatusNotModified
	}
	c.s.Hosts.Served(s)
	s.plain = nil // its strings point into a buffer
}

// writeTime returns the time limit for a client to read size bytes: a minute plus size at 16 KiB/s, as elsewhere in the
// edge.
func (s *Server) writeTime(size int) time.Duration {
	return s.WriteTime + s.WriteTime*time.Duration(size>>14)/60
}

// within sets the write deadline for the next size bytes. It changes the deadline only if the difference matters,
// because that is expensive.
func (c *conn) within(size int) {
	now, time := time.Now(), c.s.writeTime(size)
	if left := c.writeBy.Sub(now); left < time*3/4 || left > time {
		c.writeBy = now.Add(time)
		c.raw.SetWriteDeadline(c.writeBy)
	}
}

// modern reports whether HTTP/2 is allowed (RFC 9113 §9.2.2). net/http refuses it to old clients; they are so few that
// this package leaves their HTTP/1.1 to net/http too.
func modern(state tls.ConnectionState) bool {
	switch state.CipherSuite {
	case tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
		tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
		tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
		tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
		tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
		tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256:
		return true
	}
	return state.Version >= tls.VersionTLS13
}

func looksLikeHTTP(hdr [5]byte) bool {
	return slices.Contains([]string{"GET /", "HEAD ", "POST ", "PUT /", "OPTIO"}, string(hdr[:]))
}

// date is the Date header of one second (RFC 9110 §6.6.1).
type date struct {
	second int64
	h1     []byte // header line
	h2     []byte // literal field without indexing; the name is entry 33 of the static table
}

// now returns the Date header of the current second.
func (s *Server) now() *date {
	now := time.Now()
	if d := s.date.Load(); d != nil && d.second == now.Unix() {
		return d
	}
	text := now.UTC().AppendFormat(nil, http.TimeFormat)
	d := &date{
		second: now.Unix(),
		h1:     slices.Concat([]byte("Date: "), text, []byte("\r\n")),
		h2:     slices.Concat([]byte{0x0f, 0x12, byte(len(text))}, text),
	}
	s.date.Store(d)
	return d
}

// Sizes of buffers for reading and for batches of responses.
const (
	inSize = 9 + 16<<10 // one HTTP/2 frame
	// A batch is one TLS record: a longer batch would be several writes, and a slow client would hold more memory.
	outSize = 16 << 10
)

var (
	// share: total one for each connection that is read; owner see connlimit; edge more are made
	ins = sync.Pool{New: func() any { b := make([]byte, inSize); return &b }}
	// share: total one for each connection that is written; owner see connlimit; edge more are made
	outs = sync.Pool{New: func() any { b := make([]byte, 0, outSize); return &b }}
)

// Hostname returns a host in lower case, without port and trailing dot, or "" if the port isn't a number: programs get
// what follows the host unchanged.
func Hostname(host string) string {
	if h, port, err := net.SplitHostPort(host); err == nil {
		if len(port) > 5 || strings.Trim(port, "0123456789") != "" {
			return ""
		}
		host = h
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	return strings.ToLower(strings.TrimSuffix(host, "."))
}
