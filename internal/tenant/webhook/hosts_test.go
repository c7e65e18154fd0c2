package webhook

import (
	"fmt"
	"testing"
	"time"

	"slipway/internal/tenant/account"
)

// However many users send to a host, it has a bounded number of requests in flight, nobody
// holds all of them, and what ends makes room.
func TestHostHasABound(t *testing.T) {
	t.Parallel()
	const host = "example.test:443"
	h := newHosts()
	claim := func(owner account.OwnerID, n int) int {
		q := h.quota(time.Now())
		got, _ := q.allow(ownerHost{owner, host}, n)
		q.plan(ownerHost{owner, host}, make([]flight, got))
		q.settle()
		return got
	}
	total := 0
	for i := range 10 {
		n := claim(account.OwnerID(fmt.Sprint("usr_", i)), 150)
		if n > hostBounds.own {
			t.Errorf("one user has %d in flight, want %d at most", n, hostBounds.own)
		}
		total += n
	}
	if total != hostBounds.all || len(h.full()) != 1 {
		t.Errorf("%d in flight, and full are %v; want %d", total, h.full(), hostBounds.all)
	}
	if n := claim("usr_late", 1); n != 0 {
		t.Errorf("a full host got %d more", n)
	}
	h.ended(outcome{flight: flight{owner: "usr_0", host: host}, status: 200})
	if n := claim("usr_late", 4); n != 1 || len(h.full()) != 1 {
		t.Errorf("after one has ended %d went, want 1", n)
	}
	for i := range 10 {
		for range 150 {
			h.ended(outcome{flight: flight{owner: account.OwnerID(fmt.Sprint("usr_", i)), host: host}, status: 200})
		}
	}
	if len(h.inFlight) != 0 || len(h.full()) != 0 {
		t.Errorf("in the end %v are in flight", h.inFlight)
	}
}
