package fair

import (
	"fmt"
	"testing"
	"time"
)

// A visitor who continues after a refusal doesn't use up the attempts of others, and neither does a network with many
// addresses. Each site has its own limit.
func TestAttempts(t *testing.T) {
	t.Parallel()
	now := time.Unix(1e9, 0)
	a := NewAttempts(Limit{Window: time.Minute, Visitor: 3, Network: 6, Site: 10})
	try := func(site, visitor string) bool { return a.Try(site, visitor, now) == 0 }
	count := func(site string, visitors ...string) (n int) {
		for _, v := range visitors {
			for range 200 {
				if try(site, Visitor(v)) {
					n++
				}
			}
		}
		return n
	}
	if n := count("s", "192.0.2.1"); n != 3 {
		t.Errorf("a visitor had %d attempts, want 3", n)
	}
	var many []string
	for i := range 100 {
		many = append(many, fmt.Sprintf("[2001:db8:0:%x::1]:1", i))
	}
	if n := count("s", many...); n != 6 {
		t.Errorf("a network had %d attempts, want 6", n)
	}
	if n := count("s", "198.51.100.1"); n != 1 {
		t.Errorf("another visitor had %d tries, want the 1 that is left of the site's", n)
	}
	if wait := a.Wait("s", "203.0.113.1", now.Add(20*time.Second)); wait != 40*time.Second {
		t.Errorf("the site's next try is in %s, want 40s", wait)
	}
	if n := count("other", "192.0.2.1"); n != 3 {
		t.Errorf("at another site: %d tries, want 3", n)
	}
	now = now.Add(time.Minute)
	if !try("s", "192.0.2.1") {
		t.Error("an attempt was refused after the window had ended")
	}
}

// Visitors are forgotten when their window ends, and many visitors of one site don't displace those of another.
func TestAttemptsAreForgotten(t *testing.T) {
	t.Parallel()
	now := time.Unix(1e9, 0)
	a := NewAttempts(Limit{Window: time.Minute, Visitor: 1})
	a.Try("quiet", "192.0.2.1", now)
	for i := range 3 * visitorsOfSite {
		a.Try("flooded", fmt.Sprint(i), now)
	}
	if a.Wait("quiet", "192.0.2.1", now) == 0 {
		t.Error("attempts from many addresses removed those of another site")
	}
	if n := len(a.sites["flooded"].of); n > visitorsOfSite {
		t.Errorf("%d visitors of one site are remembered, want at most %d", n, visitorsOfSite)
	}
	a.Try("later", "x", now.Add(2*time.Minute))
	if len(a.sites) != 1 {
		t.Errorf("%d sites are remembered, want 1", len(a.sites))
	}
}
