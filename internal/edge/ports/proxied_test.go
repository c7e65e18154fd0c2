package ports

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/pires/go-proxyproto"
	"github.com/prometheus/client_golang/prometheus"
)

// header returns a PROXY protocol version 2 header for a visitor's address.
func header(t *testing.T, h proxyproto.Header, from string) string {
	t.Helper()
	h.Version, h.TransportProtocol = 2, proxyproto.TCPv4
	if strings.Contains(from, "[") {
		h.TransportProtocol = proxyproto.TCPv6
	}
	if h.Command == 0 {
		h.Command = proxyproto.PROXY
	}
	addr := net.TCPAddrFromAddrPort(netip.MustParseAddrPort(from))
	h.SourceAddr, h.DestinationAddr = addr, addr
	var b bytes.Buffer
	if _, err := h.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// listen starts a server that trusts a proxy at 127.0.0.2 and answers with the address it sees.
func listen(t *testing.T, wait time.Duration) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "you are "+r.RemoteAddr)
	})}
	p := behind(ln, []netip.Prefix{netip.MustParsePrefix("127.0.0.2/32")}, wait)
	go srv.Serve(p)
	t.Cleanup(func() { srv.Close() })
	return ln.Addr().String()
}

// dial connects from a local address.
func dial(t *testing.T, from, to string) net.Conn {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	c, err := d.DialContext(t.Context(), "tcp", to)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	return c
}

// The visitor's address comes from the proxy's header, in either version, and the bytes after it are the request. A
// proxy's connection without a header is closed without an answer. Other clients keep their own address and can't send
// a header.
func TestProxyProtocol(t *testing.T) {
	t.Parallel()
	const request = "GET / HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n"
	addr := listen(t, time.Minute)
	var tlv proxyproto.Header
	if err := tlv.SetTLVs([]proxyproto.TLV{{Type: proxyproto.PP2_TYPE_AUTHORITY, Value: bytes.Repeat([]byte("a"), 3000)}}); err != nil {
		t.Fatal(err)
	}
	const proxy, other = "127.0.0.2", "127.0.0.3"
	for name, tt := range map[string]struct{ from, header, want string }{
		"version 1":         {proxy, "PROXY TCP4 203.0.113.9 198.51.100.1 51000 443\r\n", "you are 203.0.113.9:51000"},
		"version 1, IPv6":   {proxy, "PROXY TCP6 2001:db8::9 2001:db8::1 51000 443\r\n", "you are [2001:db8::9]:51000"},
		"version 1, itself": {proxy, "PROXY UNKNOWN\r\n", "you are 127.0.0.2:"},
		"version 2":         {proxy, header(t, proxyproto.Header{}, "203.0.113.9:51000"), "you are 203.0.113.9:51000"},
		"version 2, IPv6":   {proxy, header(t, proxyproto.Header{}, "[2001:db8::9]:51000"), "you are [2001:db8::9]:51000"},
		"version 2, itself": {proxy, header(t, proxyproto.Header{Command: proxyproto.LOCAL}, "203.0.113.9:51000"), "you are 127.0.0.2:"},
		"with more":         {proxy, header(t, tlv, "203.0.113.9:51000"), "you are 203.0.113.9:51000"},
		"none":              {proxy, "", ""},
		"a line too long":   {proxy, "PROXY TCP4 " + strings.Repeat("1", 200) + "\r\n", ""},
		"no address":        {proxy, "PROXY TCP4 203.0.113 198.51.100.1 51000 443\r\n", ""},
		"UDP":               {proxy, "\r\n\r\n\x00\r\nQUIT\n\x21\x12\x00\x0c" + strings.Repeat("\x01", 12), ""},
		"64 KiB of it":      {proxy, "\r\n\r\n\x00\r\nQUIT\n\x21\x11\xff\xff", ""},
		"another signature": {proxy, "\r\n\r\n\x00\r\nQUIP\n\x21\x11\x00\x0c" + strings.Repeat("\x01", 12), ""},
		"no proxy":          {other, "", "you are 127.0.0.3:"},
		"of no proxy":       {other, "PROXY TCP4 203.0.113.9 198.51.100.1 51000 443\r\n", "400 Bad Request"},
		"the machine":       {"127.0.0.1", "", "you are 127.0.0.1:"},
	} {
		c := dial(t, tt.from, addr)
		io.WriteString(c, tt.header+request) // fails on a connection that was closed
		got, _ := io.ReadAll(c)
		if tt.want == "" && len(got) > 0 || !strings.Contains(string(got), tt.want) {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

// A header that arrives byte by byte is accepted. A proxy that sends none blocks no other connection and times out.
func TestSlowProxy(t *testing.T) {
	t.Parallel()
	addr := listen(t, 2*time.Second)
	silent := dial(t, "127.0.0.2", addr)
	slow := dial(t, "127.0.0.2", addr)
	for _, b := range []byte("PROXY TCP4 203.0.113.9 198.51.100.1 51000 443\r\nGET / HTTP/1.0\r\n\r\n") {
		if _, err := slow.Write([]byte{b}); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := io.ReadAll(slow); err != nil || !strings.Contains(string(got), "you are 203.0.113.9:51000") {
		t.Errorf("%q, %v", got, err)
	}
	if n, err := silent.Read(make([]byte, 1)); n > 0 || !errors.Is(err, io.EOF) {
		t.Errorf("read %d: %v, want the connection closed", n, err)
	}
}

// Closing the listener ends Accept and the connections whose header is still awaited.
func TestProxiedClose(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := behind(ln, []netip.Prefix{netip.MustParsePrefix("127.0.0.2/32")}, time.Minute)
	named := dial(t, "127.0.0.2", ln.Addr().String())
	if _, err := io.WriteString(named, "PROXY TCP4 203.0.113.9 198.51.100.1 51000 443\r\n"); err != nil {
		t.Fatal(err)
	}
	c, err := p.Accept()
	if err != nil || c.RemoteAddr().String() != "203.0.113.9:51000" {
		t.Fatal(c, err)
	}
	c.Close()
	ended := make(chan error)
	go func() { _, err := p.Accept(); ended <- err }()
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept: %v", err)
	}
}

// The limit per address counts visitors, not the proxy in front of them.
func TestVisitorsBehindAProxyAreLimited(t *testing.T) {
	t.Parallel()
	p, err := Open(Config{HTTP: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	to := p.HTTP.Addr().String()
	if err := p.Limit(Limits{
		Total: 100, PerAddress: 1, Exempt: []netip.Prefix{netip.MustParsePrefix("127.0.0.2/32")}, Forwarding: true,
		Metrics: prometheus.NewRegistry(),
	}); err != nil {
		t.Fatal(err)
	}
	come := func(visitor string) net.Conn {
		c := dial(t, "127.0.0.2", to)
		if _, err := io.WriteString(c, "PROXY TCP4 "+visitor+" 198.51.100.1 51000 443\r\n"); err != nil {
			t.Fatal(err)
		}
		return c
	}
	came := make(chan net.Conn)
	go func() {
		defer close(came)
		for {
			c, err := p.HTTP.Accept()
			if err != nil {
				return
			}
			came <- c
		}
	}()
	accepted := func(want string) {
		t.Helper()
		c := <-came
		if c == nil || c.RemoteAddr().String() != want+":51000" {
			t.Fatal(c)
		}
		t.Cleanup(func() { c.Close() })
	}
	come("203.0.113.9")
	accepted("203.0.113.9")
	if n, err := come("203.0.113.9").Read(make([]byte, 1)); n > 0 || !errors.Is(err, io.EOF) {
		t.Errorf("read %d: %v, want the visitor's second connection closed", n, err)
	}
	come("203.0.113.10")
	accepted("203.0.113.10")
}
