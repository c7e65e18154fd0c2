package access

import (
	"cmp"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"
)

// visitor is an address for counting: an IPv4 address, or an IPv6 /64.
func visitor(r *http.Request) string {
	host, _, _ := net.SplitHostPort(r.RemoteAddr)
	addr, err := netip.ParseAddr(cmp.Or(host, r.RemoteAddr))
	if err != nil {
		return r.RemoteAddr
	}
	if addr = addr.Unmap(); addr.Is6() {
		p, _ := addr.WithZone("").Prefix(64)
		return p.String()
	}
	return addr.String()
}

// guesses counts password checks within a minute.
type guesses struct {
	mu    sync.Mutex // guards the rest
	since time.Time
	n     map[string]int
}

const (
	guessesPerVisitor = 10  // a minute and site
	guessesPerSite    = 120 // a minute
)

func (g *guesses) forget(now time.Time) {
	if g.n == nil || now.Sub(g.since) >= time.Minute || len(g.n) > 100_000 {
		g.n, g.since = map[string]int{}, now
	}
}

// wrong counts a user and password of a rule that nobody has; tired reports whether a
// visitor gave too many of them. Checking one costs nothing, so sites have no limit.
func (g *guesses) wrong(site, visitor string, now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.forget(now)
	g.n["basic "+site+" "+visitor]++
}

func (g *guesses) tired(site, visitor string, now time.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.forget(now)
	return g.n["basic "+site+" "+visitor] >= 3*guessesPerVisitor
}

func (g *guesses) allow(site, visitor string, now time.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.forget(now)
	g.n[site]++
	g.n[site+" "+visitor]++
	return g.n[site] <= guessesPerSite && g.n[site+" "+visitor] <= guessesPerVisitor
}
