package ports

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/pires/go-proxyproto"

	"slipway/internal/platform/panics"
)

const (
	headerTime   = 10 * time.Second // time limit for a proxy's header
	maxLine      = 107              // bytes of a version 1 header
	maxAddresses = 4 << 10          // bytes of addresses and extensions in version 2
	unnamed      = 1024             // connections whose header hasn't arrived
)

// proxied is a listener behind proxies that forward connections unchanged. Each connection from a proxy must begin with
// a PROXY protocol header, version 1 or 2, that names the visitor (HAProxy's proxy-protocol.txt, §2.1 and §2.2).
// Without one it is closed, as §2 requires, so that nobody can pose as the proxy. Other clients connect as usual; a
// header from them is invalid input.
//
// Headers are read concurrently, so a slow proxy delays no one else.
type proxied struct {
	net.Listener
	proxies []netip.Prefix
	wait    time.Duration
	places  chan struct{} // limits connections whose header hasn't arrived
	named   chan accepted
	ended   chan struct{}
}

type accepted struct {
	conn net.Conn
	err  error
}

// behind returns a listener that reads visitors' addresses from proxies.
func behind(ln net.Listener, proxies []netip.Prefix, wait time.Duration) *proxied {
	l := &proxied{
		Listener: ln, proxies: proxies, wait: wait,
		// share: total unnamed connections that wait for their header; owner the operator's proxies alone; edge closed
		places: make(chan struct{}, unnamed),
		named:  make(chan accepted), ended: make(chan struct{}),
	}
	// uncaught: accepts; name reads
	go l.run()
	return l
}

// Accept returns the next connection with a known visitor.
func (l *proxied) Accept() (net.Conn, error) {
	select {
	case a := <-l.named:
		return a.conn, a.err
	case <-l.ended:
		return nil, net.ErrClosed
	}
}

// run accepts until the listener is closed.
func (l *proxied) run() {
	defer close(l.ended)
	for {
		c, err := l.Listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		tcp, ok := c.(*net.TCPConn)
		if err != nil || !ok || !l.proxy(tcp) {
			l.named <- accepted{c, err}
			continue
		}
		select {
		case l.places <- struct{}{}:
			panics.Go(func() { l.name(tcp) })
		default:
			c.Close()
		}
	}
}

// proxy reports whether a connection comes from a proxy. The program's own connections, which check its sites, don't.
func (l *proxied) proxy(c *net.TCPConn) bool {
	from, to := addr(c.RemoteAddr()), addr(c.LocalAddr())
	return from != to && slices.ContainsFunc(l.proxies, func(p netip.Prefix) bool { return p.Contains(from) })
}

func addr(a net.Addr) netip.Addr {
	t, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	return t.AddrPort().Addr().Unmap().WithZone("")
}

// name reads a proxy's header and passes the connection to Accept.
func (l *proxied) name(c *net.TCPConn) {
	defer func() { <-l.places }()
	named, err := visitorOf(c, l.wait)
	if err != nil {
		c.Close()
		return
	}
	select {
	case l.named <- accepted{conn: named}:
	case <-l.ended:
		c.Close()
	}
}

// visitor is a connection that a proxy forwarded.
type visitor struct {
	*net.TCPConn
	addr net.Addr
}

// RemoteAddr returns the visitor's address instead of the proxy's.
func (v *visitor) RemoteAddr() net.Addr { return v.addr }

var errHeader = errors.New("no header of the PROXY protocol for TCP")

// visitorOf reads the header and no byte after it, since those belong to the connection.
func visitorOf(c *net.TCPConn, wait time.Duration) (net.Conn, error) {
	if err := c.SetReadDeadline(time.Now().Add(wait)); err != nil {
		return nil, err
	}
	raw, err := readHeader(c)
	if err != nil {
		return nil, err
	}
	if err := c.SetReadDeadline(time.Time{}); err != nil {
		return nil, err
	}
	h, err := proxyproto.Read(bufio.NewReader(bytes.NewReader(raw)))
	if err != nil {
		return nil, err
	}
	if h.Command.IsLocal() { // the proxy's own health check
		return c, nil
	}
	from, _, ok := h.TCPAddrs()
	if !ok {
		return nil, errHeader
	}
	return &visitor{c, from}, nil
}

// readHeader reads one header: a line in version 1; in version 2 as many bytes as its 15th and 16th byte say.
func readHeader(r io.Reader) ([]byte, error) {
	b := make([]byte, 1, 128)
	if _, err := io.ReadFull(r, b); err != nil {
		return nil, err
	}
	more := func(n int) error {
		b = append(b, make([]byte, n)...)
		_, err := io.ReadFull(r, b[len(b)-n:])
		return err
	}
	switch b[0] {
	case proxyproto.SIGV1[0]:
		for b[len(b)-1] != '\n' {
			if len(b) == maxLine {
				return nil, errHeader
			}
			if err := more(1); err != nil {
				return nil, err
			}
		}
		return b, nil
	case proxyproto.SIGV2[0]:
		if err := more(15); err != nil {
			return nil, err
		}
		n := int(binary.BigEndian.Uint16(b[14:]))
		if !bytes.HasPrefix(b, proxyproto.SIGV2) || n > maxAddresses {
			return nil, errHeader
		}
		return b, more(n)
	}
	return nil, errHeader
}
