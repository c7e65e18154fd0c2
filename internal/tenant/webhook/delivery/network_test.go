package delivery

import (
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"slipway/internal/tenant/account"
)

// claimTo claims up to n deliveries for a host, as a turn does.
func (h *Hosts) claimTo(owner account.OwnerID, host string, n int, now time.Time) []Request {
	q, k := h.Quota(now), OwnerHost{owner, host}
	n, _ = q.Allow(k, n)
	network, list := q.Plan(k, n), make([]Request, n)
	for i := range list {
		list[i] = Request{Owner: owner, Host: host, Network: network}
	}
	q.Settle()
	return list
}

// Requests in flight to one network are limited per user and in total over all host names that resolve to it, even if a
// name resolved elsewhere before. Finished requests free their slots.
func TestNetworkHasABound(t *testing.T) {
	t.Parallel()
	const elsewhere, victim = "192.0.2.0/24", "198.51.100.0/24"
	h, now := NewHosts(), time.Now()
	var all []Request
	for user := range 10 {
		owner, held := account.OwnerID(fmt.Sprint("usr_", user)), 0
		for name := range 20 {
			host := fmt.Sprintf("%d.%d.example.test", name, user)
			for _, f := range h.claimTo(owner, host, 1, now) { // the first one reveals the network
				h.arrived(&f, victim, now)
				h.Ended(f, Result{Status: 200})
			}
			for _, f := range h.claimTo(owner, host, 1, now) { // and this one hides it
				h.arrived(&f, elsewhere, now)
				h.Ended(f, Result{Status: 200})
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
	if len(h.Full()) != 0 {
		t.Errorf("full are %v: the names are not", h.Full())
	}
	for _, f := range all {
		h.Ended(f, Result{Status: 200})
	}
	if len(h.inFlight) != 0 {
		t.Errorf("in the end %v are in flight", h.inFlight)
	}
	if n := len(h.claimTo("usr_0", "0.0.example.test", 5, now)); n != 5 {
		t.Errorf("%d of 5 went in the end", n)
	}
}

// A network that refuses a user's requests gets fewer and fewer of them over all of the user's host names. Other users,
// and other networks, keep their own pace.
func TestNetworkSetsThePace(t *testing.T) {
	t.Parallel()
	const victim = "2001:db8:1:2::/64"
	h, now := NewHosts(), time.Now()
	went := 0
	for range 120 { // seconds
		now = now.Add(time.Second)
		for name := range 50 {
			for _, f := range h.claimTo("usr_a", fmt.Sprintf("%d.example.test", name), 4, now) {
				h.arrived(&f, victim, now)
				h.Ended(f, Result{Err: ReasonTimeout})
				went++
			}
		}
	}
	// 50 names at the slowest pace per name would be 100 requests per second.
	if most := int(burst*networkBounds.first + 120*networkBounds.slowest); went > most {
		t.Errorf("%d requests went in two minutes, want %d at most", went, most)
	}
	if n := len(h.claimTo("usr_b", "0.example.test", 50, now)); n != 50 {
		t.Errorf("%d of another user's 50 went", n)
	}
	if n := len(h.claimTo("usr_a", "other.example.test", 50, now)); n != 50 {
		t.Errorf("%d of 50 to another network went", n)
	}
	h.Forget(now.Add(2 * time.Hour))
	if len(h.reached) != 0 {
		t.Errorf("%d hosts are remembered", len(h.reached))
	}
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
