// Package connlimit owns how many connections a process accepts: in total and per client
// network, with some reserved for clients that must always be able to connect.
//
// A wrapped listener immediately closes connections over a limit, so that neither the
// backlog nor the table of file descriptors fills up. When all places are taken, the
// connection that has been idle the longest is closed. The package knows neither TLS nor
// HTTP: servers report which connections are idle.
package connlimit

import (
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Config holds the limits.
type Config struct {
	Total      int // open connections
	PerAddress int // connections of one IPv4 address or IPv6 /64. Optional: 0 means Total.
	// Spare is how many of Total are reserved. A connection on a reserved place reports it ([Conn.Spare]), and its
	// server closes it unless the client must always be able to connect. Optional.
	Spare int
	// Exempt lists addresses without the PerAddress limit, such as proxies that many clients use. Optional.
	Exempt []netip.Prefix
	// OnRefused is called with why a connection was refused: "total" or "address". Optional.
	OnRefused func(reason string)
}

// Limiter counts the connections of any number of listeners. It is safe for concurrent use.
type Limiter struct {
	Config
	mu sync.Mutex // guards conns, of
	// share: total Config.Total connections, a part of the file descriptors for each listener; owner see of; edge refused
	conns map[*Conn]struct{}
	// share: total the networks that are connected; owner PerAddress connections of one IPv4 address or IPv6 /64; edge refused
	of map[netip.Prefix]int
}

// New returns a Limiter without connections.
func New(c Config) *Limiter {
	if c.PerAddress == 0 {
		c.PerAddress = c.Total
	}
	return &Limiter{Config: c, conns: map[*Conn]struct{}{}, of: map[netip.Prefix]int{}}
}

// Listen returns a listener that counts its connections, which are of type *Conn.
func (l *Limiter) Listen(ln net.Listener) net.Listener { return &listener{ln, l} }

// Len returns the number of open connections.
func (l *Limiter) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.conns)
}

type listener struct {
	net.Listener
	limiter *Limiter
}

// Accept returns the next connection that is within the limits.
func (l *listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if conn := l.limiter.Admit(c); conn != nil {
			return conn, nil
		}
		c.Close()
	}
}

// Admit counts a connection and returns it, or nil if it exceeds a limit. Listeners call it themselves; use it for
// other connections, such as those of QUIC.
func (l *Limiter) Admit(c net.Conn) *Conn {
	conn := &Conn{Conn: c, limiter: l, network: network(c.RemoteAddr())}
	l.mu.Lock()
	if l.of[conn.network] >= l.PerAddress && !l.exempt(conn.network.Addr()) {
		l.mu.Unlock()
		l.refused("address")
		return nil
	}
	var out *Conn
	if len(l.conns) >= l.Total-l.Spare {
		out = l.idlest()
		if out != nil {
			l.forget(out)
		}
	}
	n := len(l.conns)
	if n >= l.Total {
		l.mu.Unlock()
		l.refused("total")
		return nil
	}
	conn.spare = n >= l.Total-l.Spare
	l.conns[conn] = struct{}{}
	l.of[conn.network]++
	l.mu.Unlock()
	if out != nil {
		out.Conn.Close()
	}
	return conn
}

func (l *Limiter) exempt(a netip.Addr) bool {
	for _, p := range l.Exempt {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

func (l *Limiter) refused(reason string) {
	if l.OnRefused != nil {
		l.OnRefused(reason)
	}
}

// minIdle is how long a connection must be idle before it may be closed for a new one.
const minIdle = 2 * time.Second

// idlest returns the connection with the longest idle time from a sample: map order is random enough, and sorting a
// hundred thousand connections would cost more. The caller holds l.mu.
func (l *Limiter) idlest() *Conn {
	var found *Conn
	oldest := time.Now().Add(-minIdle).UnixNano()
	seen := 0
	for c := range l.conns {
		if since := c.idleSince.Load(); since != 0 && since < oldest {
			found, oldest = c, since
		}
		seen++
		if seen >= 256 && (found != nil || rand.IntN(64) == 0) {
			break
		}
	}
	return found
}

// forget removes a connection from the counts, once. The caller holds l.mu.
func (l *Limiter) forget(c *Conn) {
	if _, ok := l.conns[c]; !ok {
		return
	}
	delete(l.conns, c)
	l.of[c.network]--
	if l.of[c.network] == 0 {
		delete(l.of, c.network)
	}
}

// Conn is a counted connection. Closing it frees its place.
type Conn struct {
	net.Conn
	limiter   *Limiter
	network   netip.Prefix
	spare     bool
	idleSince atomic.Int64 // Unix nanoseconds; 0 while in use
}

// Spare reports whether the connection is on a reserved place.
func (c *Conn) Spare() bool { return c.spare }

// SetIdle says whether the connection waits for its next request. An idle connection may be closed for a new one.
func (c *Conn) SetIdle(idle bool) {
	if idle {
		c.idleSince.Store(time.Now().UnixNano())
	} else {
		c.idleSince.Store(0)
	}
}

// Close closes the connection and frees its place.
func (c *Conn) Close() error {
	c.limiter.mu.Lock()
	c.limiter.forget(c)
	c.limiter.mu.Unlock()
	return c.Conn.Close()
}

// CloseWrite shuts down the writing side, as [net.TCPConn.CloseWrite] does.
func (c *Conn) CloseWrite() error {
	if t, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return t.CloseWrite()
	}
	return nil
}

// SyscallConn returns the underlying socket, as [net.TCPConn.SyscallConn] does.
func (c *Conn) SyscallConn() (syscall.RawConn, error) {
	if s, ok := c.Conn.(syscall.Conn); ok {
		return s.SyscallConn()
	}
	return nil, syscall.ENOTSUP
}

// network returns the prefix that counts as one client: an IPv4 address or an IPv6 /64, which one household or virtual
// machine has.
func network(a net.Addr) netip.Prefix {
	var t netip.AddrPort
	switch a := a.(type) {
	case *net.TCPAddr:
		t = a.AddrPort()
	case *net.UDPAddr:
		t = a.AddrPort()
	default:
		return netip.Prefix{}
	}
	ip := t.Addr().Unmap().WithZone("")
	bits := ip.BitLen()
	if ip.Is6() {
		bits = 64
	}
	p, _ := ip.Prefix(bits)
	return p
}
