package fair

import (
	"net/netip"
	"sync"
	"time"
)

// Limit caps attempts within a window that starts with the first one. Refused attempts aren't counted, so that one
// visitor can't use up the others' quota.
type Limit struct {
	Window  time.Duration
	Visitor int // attempts of one visitor at a site
	Network int // attempts of one IPv4 /24 or IPv6 /48 at a site. Optional: 0 means Site.
	Site    int // attempts at a site. Optional: 0 means no limit.
}

// Attempts counts attempts by site, network and visitor. It is safe for concurrent use.
type Attempts struct {
	limit Limit
	mu    sync.Mutex // guards the rest
	// share: total every site with tries in the last window; owner of each site as many visitors as its limit lets try, or 4096; edge tries are refused until the window ends; beyond 4096 visitors the site's own counts begin anew
	sites map[string]*tries
	swept time.Time
}

// tries counts one site's attempts in the current window.
type tries struct {
	since time.Time
	all   int
	of    map[string]int // by visitor and by network
}

// visitorsOfSite caps how many visitors and networks are tracked for a site without a limit of its own.
const visitorsOfSite = 4096

// NewAttempts returns Attempts without counts.
func NewAttempts(l Limit) *Attempts {
	if l.Network == 0 {
		l.Network = l.Site
	}
	return &Attempts{limit: l, sites: map[string]*tries{}}
}

// Try counts an attempt of a visitor (see [Visitor]). If that is one too many, it returns how long to wait, otherwise
// 0.
func (a *Attempts) Try(site, visitor string, now time.Time) (wait time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.sweep(now)
	t := a.sites[site]
	if t == nil || now.Sub(t.since) >= a.limit.Window || len(t.of) >= visitorsOfSite {
		t = &tries{since: now, of: map[string]int{}}
		a.sites[site] = t
	}
	if wait := a.wait(t, visitor, now); wait > 0 {
		return wait
	}
	t.all++
	t.of[visitor]++
	if n := wider(visitor); n != "" {
		t.of[n]++
	}
	return 0
}

// Wait returns how long a visitor must wait before the next attempt, without counting one.
func (a *Attempts) Wait(site, visitor string, now time.Time) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	t := a.sites[site]
	if t == nil || now.Sub(t.since) >= a.limit.Window {
		return 0
	}
	return a.wait(t, visitor, now)
}

// wait is Wait; the caller holds mu.
func (a *Attempts) wait(t *tries, visitor string, now time.Time) time.Duration {
	l := a.limit
	if t.of[visitor] >= l.Visitor || l.Site > 0 && (t.all >= l.Site || t.of[wider(visitor)] >= l.Network) {
		return t.since.Add(l.Window).Sub(now)
	}
	return 0
}

// sweep drops sites whose window has ended, at most once per window. The caller holds mu.
func (a *Attempts) sweep(now time.Time) {
	if now.Sub(a.swept) < a.limit.Window {
		return
	}
	a.swept = now
	for site, t := range a.sites {
		if now.Sub(t.since) >= a.limit.Window {
			delete(a.sites, site)
		}
	}
}

// wider returns the larger network of a visitor: an IPv4 /24, or an IPv6 /48, which is what one customer may have; ""
// for anything else.
func wider(visitor string) string {
	if p, err := netip.ParsePrefix(visitor); err == nil && p.Addr().Is6() {
		n, _ := p.Addr().Prefix(48)
		return n.String()
	}
	if ip, err := netip.ParseAddr(visitor); err == nil && ip.Is4() {
		n, _ := ip.Prefix(24)
		return n.String()
	}
	return ""
}
