package connlimit

import (
	"io"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"
)

// served accepts connections from a limited listener and keeps them open.
type served struct {
	*Limiter
	addr string
	mu   sync.Mutex // guards all
	all  []*Conn
}

func serve(t *testing.T, c Config) *served {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &served{Limiter: New(c), addr: ln.Addr().String()}
	limited := s.Listen(ln)
	t.Cleanup(func() { limited.Close() })
	go func() {
		for {
			c, err := limited.Accept()
			if err != nil {
				return
			}
			s.mu.Lock()
			s.all = append(s.all, c.(*Conn))
			s.mu.Unlock()
			c.Write([]byte("!"))
		}
	}()
	return s
}

// dial connects from a loopback address. in reports whether the connection was accepted.
func (s *served) dial(t *testing.T, from string) (c net.Conn, in bool) {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: time.Minute}
	c, err := d.Dial("tcp", s.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetReadDeadline(time.Now().Add(10 * time.Second))
	n, _ := c.Read(make([]byte, 1))
	return c, n == 1
}

func (s *served) last() *Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all[len(s.all)-1]
}

func TestPerAddress(t *testing.T) {
	t.Parallel()
	s := serve(t, Config{Total: 100, PerAddress: 3, Exempt: []netip.Prefix{netip.MustParsePrefix("127.0.0.9/32")}})
	first, _ := s.dial(t, "127.0.0.2")
	for range 2 {
		if _, in := s.dial(t, "127.0.0.2"); !in {
			t.Fatal("refused below the limit")
		}
	}
	if _, in := s.dial(t, "127.0.0.2"); in {
		t.Error("a fourth connection of one address is let in")
	}
	if _, in := s.dial(t, "127.0.0.3"); !in {
		t.Error("another address is refused")
	}
	for range 5 {
		if _, in := s.dial(t, "127.0.0.9"); !in {
			t.Error("an exempt address is refused")
		}
	}
	first.Close()
	s.mu.Lock()
	io.Copy(io.Discard, s.all[0])
	s.all[0].Close()
	s.all[0].Close() // closing twice counts once
	s.mu.Unlock()
	if _, in := s.dial(t, "127.0.0.2"); !in {
		t.Error("a freed place stays taken")
	}
	if _, in := s.dial(t, "127.0.0.2"); in {
		t.Error("closing twice freed two places")
	}
}

func TestTotal(t *testing.T) {
	t.Parallel()
	s := serve(t, Config{Total: 4, PerAddress: 100, Spare: 1})
	for range 3 {
		if _, in := s.dial(t, "127.0.0.2"); !in || s.last().Spare() {
			t.Fatal("refused, or spare, below the limit")
		}
	}
	if _, in := s.dial(t, "127.0.0.2"); !in || !s.last().Spare() {
		t.Error("the spare place isn't given out as such")
	}
	if _, in := s.dial(t, "127.0.0.2"); in {
		t.Error("let in over the limit")
	}
	// The connection that has been idle the longest is closed. One that has just become idle isn't.
	s.mu.Lock()
	old, young := s.all[0], s.all[1]
	s.mu.Unlock()
	young.SetIdle(true)
	if _, in := s.dial(t, "127.0.0.2"); in {
		t.Error("a connection that was idle for a moment had to go")
	}
	old.idleSince.Store(time.Now().Add(-time.Hour).UnixNano())
	young.idleSince.Store(time.Now().Add(-time.Minute).UnixNano())
	if _, in := s.dial(t, "127.0.0.2"); !in {
		t.Error("no idle connection was closed")
	}
	if _, err := old.Write([]byte("x")); err == nil {
		t.Error("another than the one idle the longest had to go")
	}
	if n := s.Len(); n != 4 {
		t.Errorf("%d connections, want 4", n)
	}
}

func TestNetwork(t *testing.T) {
	t.Parallel()
	for addr, want := range map[string]string{
		"192.0.2.7:1":              "192.0.2.7/32",
		"[::ffff:192.0.2.7]:1":     "192.0.2.7/32",
		"[2001:db8:1:2:3:4:5:6]:1": "2001:db8:1:2::/64",
		"[fe80::1%lo]:1":           "fe80::/64",
	} {
		a, err := net.ResolveTCPAddr("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		if got := network(a).String(); got != want {
			t.Errorf("network(%s) = %s, want %s", addr, got, want)
		}
	}
}
