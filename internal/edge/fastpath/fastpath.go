// Package fastpath owns the quick way to answer plain requests over TLS: a GET or HEAD
// for something whose whole answer is ready in memory, or for something that Hosts.Pass answers.
//
// It speaks HTTP/1.1 and HTTP/2 itself, as far as such requests need it: header fields
// are made once per answer, in the form that goes over the wire, and a batch of answers
// is one write. Whatever is not plain goes to net/http with nothing lost: on HTTP/1.1 the
// connection is handed over with the bytes that were read; on HTTP/2 the request's frames
// go through a lane, a connection in memory that net/http serves, while other requests of
// the same connection stay here. So the package decides nothing about a request but
// whether it is plain, and net/http decides about everything else.
//
// Time, memory and work per connection are bounded here as they are there: deadlines for
// handshakes, headers, idleness and readers who don't read; sizes of header blocks; how
// many streams there are; and what a client may send that leads to nothing.
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
	// HTTP serves what is not plain, and has the TLS configuration. It must not be used
	// for anything else; New changes its Handler and ConnContext.
	HTTP *http.Server
	// Hosts says what is answered here.
	Hosts Hosts
	// Draining says whether every answer is to be its connection's last. Optional.
	Draining *atomic.Bool

	HeaderTime time.Duration // for a handshake, and for a request's header. Optional: 0 means 10s.
	IdleTime   time.Duration // between requests. Optional: 0 means 2 minutes.
	WriteTime  time.Duration // for any part of an answer to be taken. Optional: 0 means a minute.
}

// Hosts answer what connections ask for. Methods are called from many goroutines.
type Hosts interface {
	// Takes reports whether connections for a host are worth this package: it may have answers
	// that are ready, or its requests are passed on. Others are HTTP's from the beginning.
	Takes(host string) bool
	// Find returns the answer that is ready for a path at a place, or nil to leave the
	// request to HTTP. It must depend on nothing else, and doesn't keep the path. For one place
	// it is called by one goroutine at a time.
	Find(at *Place, path []byte, accepts Encodings) *Answer
	// Admit reports whether an answer that Find has just returned for a place may be sent, with so many bytes of a body; Served follows.
	// It must not wait: a request that isn't admitted is left to HTTP.
	Admit(at *Place, size int) bool
	// Passes reports whether requests for a place are Pass's instead of Find's.
	Passes(at *Place) bool
	// Pass returns what answers a request, or nil where it leaves the request to HTTP. It must not
	// wait: what it returns may, which reports whether the answer is whole. Where it is not the connection
	// ends, or over HTTP/2 the stream.
	Pass(r *Request) (answer func() (whole bool))
	// Served hears of every answer that was sent. What it is given changes with the next one.
	Served(s *Sent)
}

// Place is where a connection leads.
type Place struct {
	Host string // that TLS was made for: lower case, without a port
	// Known and Since are for Find to remember what it found out about Host, and as of when.
	Known any
	Since uint64
	// Client is for Served and Pass to remember what they found out about the other end, and
	// Told for Pass what a program is told of it. Requests of one connection share both.
	Client, Told atomic.Value
}

// Sent is an answer that was sent.
type Sent struct {
	Answer   *Answer
	Place    *Place
	Remote   net.Addr
	Protocol string // HTTP/1.1 or HTTP/2.0
	Status   int
	Head     bool  // the method was HEAD, else GET
	Size     int64 // of the body
	plain    *plain
}

// Referrer returns the request's Referer field.
func (s *Sent) Referrer() string {
	if s.plain == nil {
		return ""
	}
	return s.plain.referrer.String()
}

// Agent returns the request's User-Agent field.
func (s *Sent) Agent() string {
	if s.plain == nil {
		return ""
	}
	return s.plain.agent.String()
}

// freshTime is how long a shutdown waits for the first request of a connection; net/http's is the same.
const freshTime = 5 * time.Second

// Server serves connections. It has the methods of http.Server that its owner needs.
type Server struct {
	Config
	tls     *tls.Config
	lanes   *http.Server // HTTP/2 in memory, for what is not plain
	toH1    *handover    // to Config.HTTP
	toH2    *handover    // to lanes
	date    atomic.Pointer[date]
	headers *fair.Pool // bytes of requests' fields

	accepting sync.WaitGroup // Serve, which may have accepted one more than it was to

	mu sync.Mutex // guards the rest
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
	// Answers are whole in memory, and larger records cost less; clients with little
	// bandwidth wait a little longer for the first byte.
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

// Serve accepts connections, over which TLS is spoken, until Shutdown or Close; then it
// returns http.ErrServerClosed.
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
			// Out of descriptors, most likely: others will close theirs.
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

// Shutdown lets requests under way finish and ends all connections, as http.Server's does. A
// connection that was accepted and has asked for nothing yet is answered once: its client can't
// know that nobody has read its request.
func (s *Server) Shutdown(ctx context.Context) error {
	s.close()
	s.accepting.Wait()
	s.HTTP.SetKeepAlivesEnabled(false)
	for _, c := range s.all() {
		c.drain()
	}
	// net/http takes no connection once it is shut down, and cuts the end of an answer if
	// it thinks the connection idle. So those of HTTP/1.1, which may still be handed over,
	// end before HTTP, and those of HTTP/2 before their lanes.
	brief, cancel := context.WithTimeout(ctx, s.HeaderTime)
	_ = s.ended(brief, func(c *conn) bool { return c.onDrain.Load() == nil && !c.passing.Load() })
	cancel()
	errs := make(chan error, 1)
	// uncaught: the end of the service
	go func() { errs <- s.HTTP.Shutdown(ctx) }()
	err := s.ended(ctx, func(*conn) bool { return true })
	return errors.Join(err, <-errs, s.lanes.Shutdown(ctx))
}

// ended waits until no connection of a kind is left.
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

// Close ends everything at once.
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

// all returns the connections.
func (s *Server) all() []*conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.conns))
}

// conn is a connection that is served here.
type conn struct {
	s     *Server
	raw   net.Conn // below TLS
	tls   *tls.Conn
	state *tls.ConnectionState
	place Place
	memo

	sent            Sent
	readBy, writeBy time.Time              // the deadlines that are set
	idling          func(bool)             // tells a limiter of connections
	drained         atomic.Bool            // no further requests
	passing         atomic.Bool            // Hosts.Pass has a request
	fresh           atomic.Bool            // it has asked for nothing yet
	onDrain         atomic.Pointer[func()] // wakes it up for that; nil on HTTP/1.1

	leaving sync.Mutex // guards left
	left    bool       // it is net/http's, deadlines and all
}

// serve does the handshake and decides who serves the connection.
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
		// As net/http does for a browser that was told the wrong scheme.
		if re, ok := err.(tls.RecordHeaderError); ok && re.Conn != nil && looksLikeHTTP(re.RecordHeader) {
			io.WriteString(re.Conn, "HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n")
		}
		raw.Close()
		return
	}
	raw.SetDeadline(time.Time{})
	state := c.tls.ConnectionState()
	c.state, c.place.Host = &state, Hostname(state.ServerName)
	if c.place.Host == "" || !modern(state) || !s.Hosts.Takes(c.place.Host) {
		s.toH1.give(c.tls) // it is HTTP's whole: net/http sees the TLS connection itself
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
	// A handshake makes a stack grow that a waiting connection would hold on to: the rest
	// goes on in a goroutine whose stack is small.
	// uncaught: survive catches
	go func() {
		defer s.survive(raw)
		defer s.remove(c)
		answer()
	}()
}

// survive ends one connection, not the process, where something here is wrong.
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

// drain ends the connection when nothing is under way on it any more.
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

// wakeUp makes the connection see that it is to end.
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

// end closes the connection. If the client was told that it ends, everything else that
// it was told must arrive, although it may still be sending: closing at once would make
// the kernel answer that with a reset, which destroys what the client hasn't read yet.
func (c *conn) end(told bool) {
	if told && c.tls.CloseWrite() == nil {
		if half, ok := c.raw.(interface{ CloseWrite() error }); ok {
			_ = half.CloseWrite()
		}
		by := time.Now().Add(min(lingerTime, c.s.HeaderTime))
		c.raw.SetReadDeadline(by)
		buf := ins.Get().(*[]byte)
		defer ins.Put(buf)
		for n := 0; n < 16<<20; { // who sends more has no interest in the answer
			m, err := c.raw.Read(*buf)
			n += m
			if ne, ok := err.(net.Error); ok && ne.Timeout() && time.Now().Before(by) {
				c.raw.SetReadDeadline(by) // somebody woke up the reader that was here before
			} else if err != nil {
				break
			}
		}
	}
	c.tls.Close()
}

// lingerTime is how long a client that was told that its connection ends may take to
// close it.
const lingerTime = 2 * time.Second

// served tells of an answer.
func (c *conn) served(a *Answer, r *plain, h *head, size int) {
	s := &c.sent
	s.Answer, s.Status, s.Head, s.Size, s.plain = a, http.StatusOK, r.head, int64(size), r
	if h == &a.unchanged {
		s.Status = http.StatusNotModified
	}
	c.s.Hosts.Served(s)
	s.plain = nil // its texts lie in a buffer
}

// writeTime returns how long size bytes may take to be read: as long as the edge gives
// them elsewhere, a minute and more at 16 KiB/s.
func (s *Server) writeTime(size int) time.Duration {
	return s.WriteTime + s.WriteTime*time.Duration(size>>14)/60
}

// within sees to it that what is written next, size bytes in all, has its time and not
// much more. The deadline is moved only where it matters: moving it costs.
func (c *conn) within(size int) {
	now, time := time.Now(), c.s.writeTime(size)
	if left := c.writeBy.Sub(now); left < time*3/4 || left > time {
		c.writeBy = now.Add(time)
		c.raw.SetWriteDeadline(c.writeBy)
	}
}

// modern reports whether HTTP/2 may be spoken (RFC 9113, section 9.2.2): net/http refuses
// it to others, and there are so few that HTTP/1.1 isn't worth a distinction.
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

// date is the Date field of a second (RFC 9110, section 6.6.1).
type date struct {
	second int64
	h1     []byte // a line
	h2     []byte // a literal field without indexing; 33 in the static table is its name
}

// now returns the Date field of this second.
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

// buffers are for reading and for batches of answers.
const (
	inSize = 9 + 16<<10 // a frame of HTTP/2
	// A batch is one record of TLS: a longer one would be as many writes, and a client
	// that doesn't read would hold more.
	outSize = 16 << 10
)

var (
	// share: total one for each connection that is read; owner see connlimit; edge more are made
	ins = sync.Pool{New: func() any { b := make([]byte, inSize); return &b }}
	// share: total one for each connection that is written; owner see connlimit; edge more are made
	outs = sync.Pool{New: func() any { b := make([]byte, 0, outSize); return &b }}
)

// Hostname takes the port and the last dot off a host, and makes it lower case. It returns
// nothing where the port is not a number: what follows the host goes to programs as it is.
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
