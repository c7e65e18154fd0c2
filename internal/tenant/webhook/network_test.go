package webhook

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"time"

	"slipway/internal/platform/dbtest"
	"slipway/internal/platform/egress"
	"slipway/internal/platform/wait"
	"slipway/internal/tenant/account"
)

// claimTo claims up to n deliveries for a host, as a turn does.
func (h *hosts) claimTo(owner account.OwnerID, host string, n int, now time.Time) []flight {
	q, k := h.quota(now), ownerHost{owner, host}
	n, _ = q.allow(k, n)
	list := make([]flight, n)
	for i := range list {
		list[i].owner, list[i].host = owner, host
	}
	q.plan(k, list)
	q.settle()
	return list
}

// However many names lead to one network, what is in flight there is bounded for a user and
// for all of them, also where a name was somewhere else the last time. What ends makes room.
func TestNetworkHasABound(t *testing.T) {
	t.Parallel()
	const elsewhere, victim = "192.0.2.0/24", "198.51.100.0/24"
	h, now := newHosts(), time.Now()
	var all []flight
	for user := range 10 {
		owner, held := account.OwnerID(fmt.Sprint("usr_", user)), 0
		for name := range 20 {
			host := fmt.Sprintf("%d.%d.example.test", name, user)
			for _, f := range h.claimTo(owner, host, 1, now) { // the first one shows where it leads
				h.arrived(&f, victim, now)
				h.ended(outcome{flight: f, status: 200})
			}
			for _, f := range h.claimTo(owner, host, 1, now) { // and this one hides it
				h.arrived(&f, elsewhere, now)
				h.ended(outcome{flight: f, status: 200})
			}
			for _, f := range h.claimTo(owner, host, 20, now) {
				h.arrived(&f, victim, now)
				all, held = append(all, f), held+1
			}
		}
		if held > networkBounds.own {
			t.Errorf("one user has %d in flight, want %d at most", held, networkBounds.own)
		}
	}
	if len(all) != networkBounds.all || h.inFlight[victim] != len(all) || h.inFlight[elsewhere] != 0 {
		t.Errorf(
			"%d are in flight, counted as %d there and %d elsewhere, want %d",
			len(all),
			h.inFlight[victim],
			h.inFlight[elsewhere],
			networkBounds.all,
		)
	}
	if len(h.full()) != 0 {
		t.Errorf("full are %v: the names are not", h.full())
	}
	for _, f := range all {
		h.ended(outcome{flight: f, status: 200})
	}
	if len(h.inFlight) != 0 {
		t.Errorf("in the end %v are in flight", h.inFlight)
	}
	if n := len(h.claimTo("usr_0", "0.0.example.test", 5, now)); n != 5 {
		t.Errorf("%d of 5 went in the end", n)
	}
}

// A network that refuses what a user's names send it is asked less and less, all of them
// together; another user's pace there is their own, and so is that towards other networks.
func TestNetworkSetsThePace(t *testing.T) {
	t.Parallel()
	const victim = "2001:db8:1:2::/64"
	h, now := newHosts(), time.Now()
	went := 0
	for range 120 { // seconds
		now = now.Add(time.Second)
		for name := range 50 {
			for _, f := range h.claimTo("usr_a", fmt.Sprintf("%d.example.test", name), 4, now) {
				h.arrived(&f, victim, now)
				h.ended(outcome{flight: f, err: errTimeout})
				went++
			}
		}
	}
	// 50 names at the slowest pace of a name would be 100 a second.
	if most := int(burst*networkBounds.first + 120*networkBounds.slowest); went > most {
		t.Errorf("%d requests went in two minutes, want %d at most", went, most)
	}
	if n := len(h.claimTo("usr_b", "0.example.test", 50, now)); n != 50 {
		t.Errorf("%d of another user's 50 went", n)
	}
	if n := len(h.claimTo("usr_a", "other.example.test", 50, now)); n != 50 {
		t.Errorf("%d of 50 to another network went", n)
	}
	h.forget(now.Add(2 * time.Hour))
	if len(h.reached) != 0 {
		t.Errorf("%d hosts are remembered", len(h.reached))
	}
}

// The dispatcher learns where names lead from the connections it makes, and from those it
// can't make.
func TestNamesOfOneAddress(t *testing.T) {
	t.Parallel()
	ca, table := newAuthority(t), &names{of: map[string]string{}}
	roots := x509.NewCertPool()
	roots.AddCert(ca.cert)
	held, release := make(chan struct{}, 8), make(chan struct{})
	r := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { held <- struct{}{}; <-release }))
	r.TLS = &tls.Config{Certificates: []tls.Certificate{ca.named(t, "*.name.test")}}
	r.StartTLS()
	t.Cleanup(r.Close)
	at := r.Listener.Addr().(*net.TCPAddr)
	closed, err := net.Listen("tcp", "127.0.0.1:0") // nobody answers there
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	out, err := egress.New(egress.Config{
		Allow:    []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
		Roots:    roots,
		Resolver: table.resolver(t),
		Connect:  time.Minute,
	})
	if err != nil {
		t.Fatal(err)
	}
	w := newWebhooks(t, dbtest.New(t), nil, func(c *Config) { c.Out, c.Timeout = out.PooledClient(time.Minute, 4), time.Minute })
	for i := range 4 {
		host := fmt.Sprintf("%d.name.test", i)
		table.set(host, "127.0.0.1")
		create(t, w, fmt.Sprintf("https://%s:%d/", host, at.Port), "site.created")
	}
	table.set("refused.name.test", "127.0.0.1")
	create(t, w, fmt.Sprintf("https://refused.name.test:%d/", closed.Addr().(*net.TCPAddr).Port), "site.created")
	start(t, w)
	defer close(release)
	emit(t, w, SiteCreated(someSite))
	for range 4 {
		<-held
	}
	count := func(destination string) int {
		w.hosts.mu.Lock()
		defer w.hosts.mu.Unlock()
		return w.hosts.inFlight[destination]
	}
	if n := count(networkOf(at)); n != 4 {
		t.Errorf("%d in flight to the address of 4 names, want 4", n)
	}
	learned := func() bool {
		w.hosts.mu.Lock()
		defer w.hosts.mu.Unlock()
		return w.hosts.lastNetwork("refused.name.test") == networkOf(closed.Addr())
	}
	wait.Until(t, "it is known where a refused connection went", learned)
}

func TestNetworkOf(t *testing.T) {
	t.Parallel()
	for addr, want := range map[string]string{
		"203.0.113.77:443": "203.0.113.0/24", "[::ffff:203.0.113.77]:443": "203.0.113.0/24", "[2001:db8:1:2:3::4]:443": "2001:db8:1:2::/64",
		"127.0.0.1:8443": "127.0.0.1:8443/port", "[::1]:8443": "[::1]:8443/port",
	} {
		if got := networkOf(net.TCPAddrFromAddrPort(netip.MustParseAddrPort(addr))); got != want || !isNetwork(got) {
			t.Errorf("%s: %q, want %q", addr, got, want)
		}
	}
	if got := networkOf(&net.UnixAddr{Name: "/x"}); got != "" {
		t.Errorf("a socket's path: %q", got)
	}
}
