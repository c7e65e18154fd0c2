package delivery

import (
	"fmt"
	"testing"
	"time"

	"slipway/internal/tenant/account"
)

// The number of requests in flight to a host is limited over all users, no user can hold all of them, and finished
// requests free their slots.
func TestHostHasABound(t *testing.T) {
	t.Parallel()
	const host = "example.test:443"
	h := NewHosts()
	claim := func(owner account.OwnerID, n int) int {
		q := h.Quota(time.Now())
		got, _ := q.Allow(OwnerHost{owner, host}, n)
		q.Plan(OwnerHost{owner, host}, got)
		q.Settle()
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
	if total != hostBounds.all || len(h.Full()) != 1 {
		t.Errorf("%d in flight, and full are %v; want %d", total, h.Full(), hostBounds.all)
	}
	if n := claim("usr_late", 1); n != 0 {
		t.Errorf("a full host got %d more", n)
	}
	h.Ended(Request{Owner: "usr_0", Host: host}, Result{Status: 200})
	if n := claim("usr_late", 4); n != 1 || len(h.Full()) != 1 {
		t.Errorf("after one has ended %d went, want 1", n)
	}
	for i := range 10 {
		for range 150 {
			h.Ended(Request{Owner: account.OwnerID(fmt.Sprint("usr_", i)), Host: host}, Result{Status: 200})
		}
	}
	if len(h.inFlight) != 0 || len(h.Full()) != 0 {
		t.Errorf("in the end %v are in flight", h.inFlight)
	}
}

// All ports and spellings of one host are one destination for a user. Another host or another user is another
// destination.
func TestPortsAreOneDestination(t *testing.T) {
	t.Parallel()
	for a, b := range map[string]string{
		"https://victim.test/a":              "https://victim.test:8443/b",
		"https://victim.test:1":              "https://victim.test:65535/?x",
		"https://192.0.2.1:1":                "https://192.0.2.1/",
		"https://[2001:db8::1]/":             "https://[2001:db8::1]:99/",
		"https://VICTIM.test":                "https://victim.test:443",
		"https://127.0.0.1:2/other-programs": "",
	} {
		if b == "" {
			if HostOf(a) == HostOf("https://127.0.0.1:3/") {
				t.Error("ports of this machine are one destination")
			}
			continue
		}
		x, errA := CheckURL(a)
		y, errB := CheckURL(b)
		if errA != nil || errB != nil || HostOf(x) != HostOf(y) || HostOf(x) == HostOf("https://other.test/") {
			t.Errorf("%s is %q, %s is %q", a, HostOf(x), b, HostOf(y))
		}
	}
	h := NewHosts()
	q := h.Quota(time.Now())
	taken := 0
	for port := range 100 {
		k := OwnerHost{"usr_anna", HostOf(fmt.Sprint("https://victim.test:", 1+port, "/"))}
		n, _ := q.Allow(k, 50)
		q.Plan(k, n)
		taken += n
	}
	if taken != hostBounds.own {
		t.Errorf("%d requests to one host at once, want %d", taken, hostBounds.own)
	}
	for _, k := range []OwnerHost{{"usr_bert", "victim.test"}, {"usr_anna", "other.test"}} {
		if n, _ := q.Allow(k, 50); n != 50 {
			t.Errorf("%v: %d of 50", k, n)
		}
	}
}
