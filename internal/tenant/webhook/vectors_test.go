package webhook

import (
	"context"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"

	"slipway/internal/platform/db"
	"slipway/internal/platform/dbtest"
	"slipway/internal/platform/egress"
	"slipway/internal/platform/wait"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/webhook/delivery"
	"slipway/internal/tenant/webhook/event"
)

// vectors are 46 addresses that no webhook may reach: loopback, private networks, cloud metadata and IPv6 notations of
// them.
var vectors = strings.Fields(`127.0.0.1 0.0.0.0 0.1.2.3 10.0.0.1 172.16.0.1 192.168.1.1 169.254.169.254 100.64.0.1
	100.100.100.200 192.0.0.192 192.0.2.1 198.18.0.1 198.51.100.1 203.0.113.1 224.0.0.1 240.0.0.1 255.255.255.255
	192.88.99.1 168.63.129.16 :: ::1 ::ffff:127.0.0.1 ::ffff:169.254.169.254 ::127.0.0.1 ::a9fe:a9fe 64:ff9b::7f00:1
	64:ff9b::a9fe:a9fe 64:ff9b:1::a9fe:a9fe 2002:7f00:1:: 2002:a9fe:a9fe:: 2001:0:4136:e378:8000:63bf:5601:5601
	fe80::1 fe80::5efe:7f00:1 fec0::1 fc00::1 fd00:ec2::254 fd7a:115c:a1e0::1 ff02::1 100::1 2001:db8::1 3fff::1
	5f00::1 2001:10::1 2001:20::1 2620:4f:8000::1 ::ffff:0:7f00:1`)

// trap accepts and counts connections on every address of this machine.
type trap struct {
	port string
	hits atomic.Int64
}

func newTrap(t *testing.T) *trap {
	l, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	x := &trap{}
	_, x.port, _ = net.SplitHostPort(l.Addr().String())
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			x.hits.Add(1)
			c.Close()
		}
	}()
	return x
}

// names answers DNS queries from a table that tests change.
type names struct {
	mu sync.Mutex // guards of
	of map[string]string
}

func (n *names) set(name, addr string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.of[name] = addr
}

// resolver serves the table on loopback with a TTL of 0.
func (n *names) resolver(t *testing.T) *net.Resolver {
	pc, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &dns.Server{PacketConn: pc, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg).SetReply(q)
		h := dns.RR_Header{Name: q.Question[0].Name, Rrtype: q.Question[0].Qtype, Class: dns.ClassINET}
		n.mu.Lock()
		a, err := netip.ParseAddr(n.of[strings.TrimSuffix(h.Name, ".")])
		n.mu.Unlock()
		switch {
		case err == nil && a.Is4() && h.Rrtype == dns.TypeA:
			m.Answer = []dns.RR{&dns.A{Hdr: h, A: a.AsSlice()}}
		case err == nil && a.Is6() && h.Rrtype == dns.TypeAAAA:
			m.Answer = []dns.RR{&dns.AAAA{Hdr: h, AAAA: a.AsSlice()}}
		}
		w.WriteMsg(m)
	})}
	go s.ActivateAndServe()
	t.Cleanup(func() { s.Shutdown() })
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "udp", pc.LocalAddr().String())
	}}
}

// No webhook connects to any of the vectors: as a literal address, as a DNS answer, as the second answer of a name that
// was harmless at first, or through a redirect. A proxy from the environment isn't used either, for which the test runs
// itself again with one set.
func TestVectors(t *testing.T) {
	t.Parallel()
	if os.Getenv("SLIPWAY_TEST_PROXY") == "" {
		proxy := newTrap(t)
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestVectors$", "-test.v")
		at := "http://127.0.0.1:" + proxy.port
		cmd.Env = append(
			os.Environ(),
			"SLIPWAY_TEST_PROXY=1",
			"SLIPWAY_TEST_DSN=",
			"HTTP_PROXY="+at,
			"HTTPS_PROXY="+at,
			"ALL_PROXY="+at,
			"http_proxy="+at,
			"https_proxy="+at,
			"all_proxy="+at,
		)
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: TestVectors") {
			t.Errorf("with a proxy in the environment: %v\n%s", err, out)
		}
		if n := proxy.hits.Load(); n != 0 {
			t.Errorf("the proxy of the environment was used %d times", n)
		}
		return
	}
	if len(vectors) != 46 {
		t.Fatalf("%d vectors, want 46", len(vectors))
	}
	inner, table := newTrap(t), &names{of: map[string]string{}}
	// An allowed endpoint, at 127.0.0.2 only. The rebinding names resolve to it at first, and it redirects to the
	// vectors.
	ca := newAuthority(t)
	roots := x509.NewCertPool()
	roots.AddCert(ca.cert)
	l, err := net.Listen("tcp", "127.0.0.2:0")
	if err != nil {
		t.Fatal(err)
	}
	good := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if to, ok := strings.CutPrefix(r.URL.Path, "/to/"); ok {
			http.Redirect(w, r, "https://"+net.JoinHostPort(to, inner.port)+"/", http.StatusTemporaryRedirect)
			return
		}
		w.Header().Set("Connection", "close") // the next request must dial again
	}))
	good.Listener.Close()
	good.Listener, good.TLS = l, &tls.Config{Certificates: []tls.Certificate{ca.named(t, "*.name.test", "good.test")}}
	good.StartTLS()
	t.Cleanup(good.Close)
	_, goodPort, _ := net.SplitHostPort(l.Addr().String())
	table.set("good.test", "127.0.0.2")

	out, err := egress.New(egress.Config{
		Allow:    []netip.Prefix{netip.MustParsePrefix("127.0.0.2/32")},
		Roots:    roots,
		Resolver: table.resolver(t),
		Connect:  time.Minute,
	})
	if err != nil {
		t.Fatal(err)
	}
	// A long timeout, so that a busy machine causes none.
	w := newWebhooks(t, dbtest.Bubble(t), nil, func(c *Config) { c.Out, c.Timeout = out.PooledClient(time.Minute, 4), time.Minute })
	start(t, w)

	type probe struct {
		owner account.OwnerID
		hook  ID
		what  string
		want  string
	}
	var probes []probe
	add := func(way, vector, url, want string) {
		owner := account.OwnerID("usr_" + way)
		h, err := w.Create(t.Context(), owner, NewWebhook{URL: url, Events: []string{"site.created"}})
		if err != nil {
			t.Fatalf("%s %s: %v", way, url, err)
		}
		probes = append(probes, probe{owner, h.ID, way + " " + vector, want})
	}
	for i, v := range vectors {
		name := fmt.Sprintf("v%d.name.test", i)
		table.set(name, v)
		add("literal", v, "https://"+net.JoinHostPort(v, inner.port)+"/", delivery.ReasonBlocked)
		add("dns", v, "https://"+name+":"+inner.port+"/", delivery.ReasonBlocked)
		table.set("r"+name, "127.0.0.2")
		add("rebinding", v, "https://r"+name+":"+goodPort+"/", "")
		add("redirect", v, "https://good.test:"+goodPort+"/to/"+v, delivery.ReasonRedirect)
	}
	// last waits for the result of each probe's newest delivery.
	last := func(want func(probe) string) {
		t.Helper()
		for _, p := range probes {
			var list []Delivery
			wait.Until(t, p.what+" is tried", func() bool {
				var err error
				if list, _, err = w.Deliveries(t.Context(), p.owner, p.hook, 1, 1); err != nil {
					t.Fatal(err)
				}
				return len(list) == 1 && len(list[0].Attempts) > 0
			})
			a := list[0].Attempts[0]
			if a.Error != want(p) || want(p) == delivery.ReasonBlocked && (a.Status != 0 || a.Response != "" || a.Answer != "") {
				t.Errorf("%s: %+v, want %q", p.what, a, want(p))
			}
		}
	}
	tell := func(owners ...account.OwnerID) {
		t.Helper()
		err := w.c.DB.Write(t.Context(), func(tx *db.Tx) error {
			for _, o := range owners {
				if err := w.EmitTx(t.Context(), tx, o, event.SiteCreated(someSite)); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	tell("usr_literal", "usr_dns", "usr_rebinding", "usr_redirect")
	last(func(p probe) string { return p.want })
	for i, v := range vectors { // the harmless names now resolve to the vectors
		table.set(fmt.Sprintf("rv%d.name.test", i), v)
	}
	tell("usr_rebinding")
	var rebound []probe
	for _, p := range probes {
		if p.owner == "usr_rebinding" {
			rebound = append(rebound, p)
		}
	}
	probes = rebound
	last(func(probe) string { return delivery.ReasonBlocked })
	if n := inner.hits.Load(); n != 0 {
		t.Errorf("%d connections to what must not be reached", n)
	}
}

// named issues a certificate for host names.
func (a authority) named(t testing.TB, hosts ...string) tls.Certificate {
	t.Helper()
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(3),
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(time.Hour),
		DNSNames:     hosts,
	}
	der, err := x509.CreateCertificate(rand.Reader, leaf, a.cert, a.key.Public().(*ecdsa.PublicKey), a.key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: a.key}
}
