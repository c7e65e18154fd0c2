// Package upstream owns requests to programs that speak HTTP/1.1: connections that are
// kept between requests, the strict reading of an answer's head, and its body as it comes.
//
// It starts no goroutine and copies no header: a caller writes a request as bytes, and gets
// the fields of the answer and the parts of its body as slices of one buffer, which a
// connection has only while it is in use. What it reads was sent by a tenant: sizes are
// bounded, and whatever two readers could understand in two ways is an error.
package upstream

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Config holds the settings of a Pool.
type Config struct {
	Dial func(ctx context.Context) (net.Conn, error)
	Idle time.Duration // how long a connection waits for its next request. Optional: 0 means 3s.
	Most int           // connections that wait. Optional: 0 means 256.
	Age  time.Duration // after which a connection gets no further request. Optional: 0 means never.
}

// Pool keeps connections to one program. It is safe for concurrent use.
type Pool struct {
	c Config

	mu    sync.Mutex // guards what follows
	idle  []*Conn    // the one used last comes last
	timed bool       // a sweep is due
}

// New returns a Pool without connections.
func New(c Config) *Pool {
	c.Idle, c.Most = cmp.Or(c.Idle, 3*time.Second), cmp.Or(c.Most, 256)
	return &Pool{c: c}
}

// dialTime is how long a program may take to accept a connection.
const dialTime = 10 * time.Second

// Get returns a connection for one request, which ends with Put or Close. With fresh it is
// a new one.
func (p *Pool) Get(ctx context.Context, fresh bool) (*Conn, error) {
	for !fresh {
		p.mu.Lock()
		n := len(p.idle)
		if n == 0 {
			p.mu.Unlock()
			break
		}
		c := p.idle[n-1]
		p.idle[n-1], p.idle = nil, p.idle[:n-1]
		p.mu.Unlock()
		if c.alive() {
			return c, nil
		}
		_ = c.net.Close()
	}
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	raw, err := p.c.Dial(ctx)
	if err != nil {
		return nil, err
	}
	return newConn(raw, p), nil
}

// CloseIdle closes the connections that wait.
func (p *Pool) CloseIdle() {
	p.mu.Lock()
	idle := p.idle
	p.idle = nil
	p.mu.Unlock()
	for _, c := range idle {
		_ = c.net.Close()
	}
}

func (p *Pool) put(c *Conn) {
	c.since = time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.idle) >= p.c.Most || p.c.Age > 0 && c.since.Sub(c.made) >= p.c.Age {
		_ = c.net.Close()
		return
	}
	p.idle = append(p.idle, c)
	if !p.timed {
		p.timed = true
		time.AfterFunc(p.c.Idle, p.sweep)
	}
}

// sweep closes what has waited too long.
func (p *Pool) sweep() {
	p.mu.Lock()
	defer p.mu.Unlock()
	now, n := time.Now(), 0
	for n < len(p.idle) && now.Sub(p.idle[n].since) >= p.c.Idle {
		_ = p.idle[n].net.Close()
		n++
	}
	rest := copy(p.idle, p.idle[n:])
	clear(p.idle[rest:])
	p.idle = p.idle[:rest]
	p.timed = rest > 0
	if p.timed {
		time.AfterFunc(max(time.Millisecond, p.c.Idle-now.Sub(p.idle[0].since)), p.sweep)
	}
}

// Conn is a connection that one request has.
type Conn struct {
	net   net.Conn
	raw   syscall.RawConn // nil where the connection has none
	look  func(fd uintptr)
	open  bool // what look found
	pool  *Pool
	since time.Time // waiting
	made  time.Time
	used  bool // it has had a request before
	heard bool // something of the answer has come

	buf  *[]byte // nil while it waits
	r, w int     // what of buf has been read and not been taken
	seen int     // how far the end of a head has been looked for

	mode  mode
	left  int64 // of the body, or of the chunk
	total int   // bytes of trailers
	last  bool  // no request may follow
}

func newConn(raw net.Conn, p *Pool) *Conn {
	c := &Conn{net: raw, pool: p, made: time.Now()}
	if s, ok := raw.(syscall.Conn); ok {
		c.raw, _ = s.SyscallConn()
		c.look = func(fd uintptr) {
			var b [1]byte
			_, _, err := unix.Recvfrom(int(fd), b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
			c.open = err == unix.EAGAIN // an end is as bad as bytes that nobody asked for
		}
	}
	return c
}

// Quiet reports whether a connection that waits for its first request can have one: its other end is open, and has said nothing.
func Quiet(raw net.Conn) bool {
	c := newConn(raw, nil)
	if c.raw == nil {
		return true
	}
	return c.raw.Control(c.look) == nil && c.open
}

// alive reports whether a connection that waited may be used: the program may have closed
// it, and a request on it would be lost.
func (c *Conn) alive() bool {
	if time.Since(c.since) >= c.pool.c.Idle {
		return false
	}
	if c.raw == nil {
		return true
	}
	c.open = false
	return c.raw.Control(c.look) == nil && c.open
}

// Write sends a part of a request.
func (c *Conn) Write(p []byte) (int, error) { return c.net.Write(p) }

// SetReadDeadline bounds what is read next. What failed because of it can be tried again.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.net.SetReadDeadline(t) }

// SetWriteDeadline bounds what is written next.
func (c *Conn) SetWriteDeadline(t time.Time) error { return c.net.SetWriteDeadline(t) }

// Abort makes everything that is under way on the connection fail at once.
func (c *Conn) Abort() { _ = c.net.SetDeadline(time.Unix(1, 0)) }

// Unread reports whether a request that failed with err, before anything of its answer
// came, has provably not been read: the connection was a kept one, and the program's end
// of it was closed with the request still unread, which the kernel tells by a reset.
func (c *Conn) Unread(err error) bool { return c.used && c.reset(err) }

// reset reports whether the program's end was reset before anything of an answer came. On a new connection that is most often one
// that waited to be accepted when the program stopped listening; one that accepts it may also send a reset on purpose.
func (c *Conn) reset(err error) bool {
	if c.heard {
		return false
	}
	if errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) {
		return true
	}
	if c.raw == nil {
		return false
	}
	reset := false
	_ = c.raw.Control(func(fd uintptr) {
		code, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR)
		reset = err == nil && (unix.Errno(code) == unix.EPIPE || unix.Errno(code) == unix.ECONNRESET)
	})
	return reset
}

// Lost reports whether a request that failed with err, before anything of its answer came, has gone with the machine that it was
// sent to. Nobody knows whether that one read it: what is idempotent may be sent again (RFC 9110, section 9.2.2).
func (c *Conn) Lost(err error) bool {
	return !c.heard && errors.Is(err, io.ErrUnexpectedEOF)
}

// Again reports whether a request that failed with err, and is there whole, may be sent once more, by its method. What may have been read
// is sent only once more: repeated, false at first, keeps that.
func (c *Conn) Again(err error, method string, repeated *bool) bool {
	if c.Unread(err) {
		return true
	}
	if *repeated || !Idempotent(method) || !c.Lost(err) && !c.reset(err) {
		return false
	}
	*repeated = true
	return true
}

// Idempotent reports whether a request with a method may be sent twice (RFC 9110, section 9.2.2).
func Idempotent(method string) bool {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodPut, http.MethodDelete:
		return true
	}
	return false
}

// Put ends a request: the connection is kept where its answer has been read whole.
func (c *Conn) Put() {
	reusable := !c.last && c.mode == modeDone && c.r == c.w
	c.release()
	if !reusable {
		_ = c.net.Close()
		return
	}
	c.used, c.heard, c.mode = true, false, modeNone
	c.pool.put(c)
}

// Close ends a request and its connection.
func (c *Conn) Close() {
	c.release()
	_ = c.net.Close()
}

// bufferSize bounds the head of an answer, and is how much of a body is read at once.
const bufferSize = 32 << 10

// share: total one for each connection to a program in use; owner see the pools of programs; edge more are made
var buffers = sync.Pool{New: func() any { b := make([]byte, bufferSize); return &b }}

func (c *Conn) release() {
	if c.buf != nil {
		buffers.Put(c.buf)
		c.buf = nil
	}
	c.r, c.w, c.seen = 0, 0, 0
}

// errTooLarge is the error of a head or a line of a body that is longer than a buffer.
var errTooLarge = errors.New("read the program's answer: its header is too large")

// fill reads more of what the program sends.
func (c *Conn) fill() error {
	if c.buf == nil {
		c.buf = buffers.Get().(*[]byte)
	}
	if c.r == c.w {
		c.r, c.w, c.seen = 0, 0, 0
	} else if c.w == len(*c.buf) {
		if c.r == 0 {
			return errTooLarge
		}
		c.seen -= c.r
		c.w = copy(*c.buf, (*c.buf)[c.r:c.w])
		c.r = 0
	}
	n, err := c.net.Read((*c.buf)[c.w:])
	c.w += n
	if n > 0 {
		c.heard = true
		return nil
	}
	return err
}
