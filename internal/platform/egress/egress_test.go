package egress

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"
)

func open(t testing.TB, c Config) *Egress {
	t.Helper()
	e, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}

// zone starts a DNS server on loopback. answer returns a name's current address.
func zone(t testing.TB, answer func(name string) string) *net.Resolver {
	t.Helper()
	pc, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := &dns.Server{PacketConn: pc, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg).SetReply(q)
		m.RecursionAvailable = true
		h := dns.RR_Header{Name: q.Question[0].Name, Rrtype: q.Question[0].Qtype, Class: dns.ClassINET}
		if a, err := netip.ParseAddr(answer(strings.TrimSuffix(h.Name, "."))); err == nil {
			if q4 := h.Rrtype == dns.TypeA; q4 && a.Is4() {
				m.Answer = []dns.RR{&dns.A{Hdr: h, A: a.AsSlice()}}
			} else if !q4 && a.Is6() {
				m.Answer = []dns.RR{&dns.AAAA{Hdr: h, AAAA: a.AsSlice()}}
			}
		}
		w.WriteMsg(m)
	})}
	go srv.ActivateAndServe()
	t.Cleanup(func() { srv.Shutdown() })
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "udp", pc.LocalAddr().String())
	}}
}

func TestDialRefusesVectors(t *testing.T) {
	t.Parallel()
	names := map[string]string{}
	var mu sync.Mutex
	e := open(t, Config{Resolver: zone(t, func(n string) string { mu.Lock(); defer mu.Unlock(); return names[n] })})
	for i, s := range refused {
		name := "v" + string(rune('a'+i/26)) + string(rune('a'+i%26)) + ".test"
		mu.Lock()
		names[name] = s
		mu.Unlock()
		for _, host := range []string{s, name} {
			c, err := e.DialContext(t.Context(), "tcp", net.JoinHostPort(host, "443"))
			if err == nil {
				c.Close()
			}
			if !errors.Is(err, ErrBlocked) {
				t.Errorf("dial %s (%s): %v, want ErrBlocked", host, s, err)
				continue
			}
			if host == name && strings.Contains(err.Error(), s) && s != "::" {
				t.Errorf("dial %s: error names the address: %v", host, err)
			}
		}
	}
	for _, network := range []string{"udp", "unix", "ip", "tcp5", ""} {
		if _, err := e.DialContext(t.Context(), network, "127.0.0.1:53"); !errors.Is(err, ErrBlocked) {
			t.Errorf("network %q: %v", network, err)
		}
	}
}

func TestDialRefusesRebinding(t *testing.T) {
	t.Parallel()
	var hits atomic.Int64
	inner := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { hits.Add(1) }))
	defer inner.Close()
	var turned atomic.Bool
	r := zone(t, func(string) string {
		if turned.Load() {
			return "127.0.0.1"
		}
		return "93.184.216.34"
	})
	if a, err := r.LookupHost(t.Context(), "rebind.test"); err != nil || a[0] != "93.184.216.34" {
		t.Fatalf("first look-up: %v, %v", a, err)
	}
	turned.Store(true)
	_, port, _ := net.SplitHostPort(inner.Listener.Addr().String())
	_, err := open(t, Config{Resolver: r}).Client(time.Second).Get("http://rebind.test:" + port)
	if !errors.Is(err, ErrBlocked) {
		t.Errorf("second look-up: %v, want ErrBlocked", err)
	}
	if hits.Load() != 0 {
		t.Error("the internal server was reached")
	}
}

func TestOwnAddresses(t *testing.T) {
	t.Parallel()
	own := netip.MustParseAddr("93.184.216.34")
	e := open(t, Config{OwnPorts: []uint16{443}})
	e.own = ownAddrs{read: time.Now(), set: map[netip.Addr]bool{own: true}}
	if e.permits(netip.AddrPortFrom(own, 22)) {
		t.Error("egress permits port 22 of this machine's public address")
	}
	if !e.permits(netip.AddrPortFrom(own, 443)) || !e.permits(netip.MustParseAddrPort("93.184.216.35:22")) {
		t.Error("the edge's port, or another machine, refused")
	}
	e.own.set = nil
	if !e.own.has(netip.MustParseAddr("127.0.0.1")) {
		t.Error("loopback isn't among this machine's addresses")
	}
}

func TestClient(t *testing.T) {
	var target atomic.Int64
	inner := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { target.Add(1) }))
	defer inner.Close()
	end := make(chan struct{})
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/redirect":
			http.Redirect(w, r, inner.URL, http.StatusFound)
		case "/slow":
			w.WriteHeader(200)
			w.(http.Flusher).Flush()
			<-end // not until the request's context ends, because the answer would then be complete
		case "/headers":
			w.Header().Set("X", strings.Repeat("x", 128<<10))
		}
	}))
	defer srv.Close()
	defer close(end)
	srv.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	// No connection may use a proxy from the environment. Go reads these variables once, hence no t.Parallel.
	t.Setenv("HTTP_PROXY", inner.URL)
	t.Setenv("HTTPS_PROXY", inner.URL)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := open(t, Config{}).Client(time.Second).Get(srv.URL); !errors.Is(err, ErrBlocked) {
		t.Errorf("loopback without leave: %v", err)
	}
	if _, err := open(t, Config{Allow: loopback, Roots: x509.NewCertPool()}).Client(time.Second).Get(srv.URL); err == nil {
		t.Error("an unknown authority was trusted")
	}
	c := open(t, Config{Allow: loopback, CAFile: ca, Roots: x509.NewCertPool()}).Client(300 * time.Millisecond)
	resp, err := c.Get(srv.URL + "/redirect")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusFound || target.Load() != 0 {
		t.Errorf("redirect: status %d, %d requests at its target or the environment's proxy", resp.StatusCode, target.Load())
	}
	resp, err = c.Get(srv.URL + "/slow")
	if err != nil {
		t.Fatal(err)
	}
	if _, err = io.ReadAll(resp.Body); err == nil {
		t.Error("the body could be read after the timeout")
	}
	resp.Body.Close()
	if _, err = c.Get(srv.URL + "/headers"); err == nil {
		t.Error("128 KiB of headers accepted")
	}
}

func TestNewRefusesBadCAFile(t *testing.T) {
	t.Parallel()
	empty := filepath.Join(t.TempDir(), "empty.pem")
	os.WriteFile(empty, []byte("no certificate"), 0o600)
	for _, f := range []string{empty, filepath.Join(t.TempDir(), "absent.pem")} {
		if _, err := New(Config{CAFile: f}); err == nil {
			t.Errorf("New with %s: no error", filepath.Base(f))
		}
	}
}

// A public address that NAT forwards to this machine counts as the machine's own, whatever its interfaces are. Only the
// edge's ports can be reached through it.
func TestNATAddressesAreOwn(t *testing.T) {
	t.Parallel()
	public := netip.MustParseAddr("1.1.1.1")
	e := open(t, Config{Own: []netip.Addr{public}, OwnPorts: []uint16{443}})
	for at, want := range map[string]bool{
		"1.1.1.1:22":          false,
		"1.1.1.1:8080":        false,
		"[::ffff:1.1.1.1]:22": false,
		"1.1.1.1:443":         true,
		"1.0.0.1:22":          true,
	} {
		if got := e.permits(netip.MustParseAddrPort(at)); got != want {
			t.Errorf("%s is permitted: %v, want %v", at, got, want)
		}
	}
}
