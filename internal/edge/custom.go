package edge

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"slipway/internal/db"
)

// claim is a custom host: the name somebody proved, or "*." and such a name, and the
// site it belongs to. It is immutable; a change replaces it.
type claim struct {
	host       string
	site       string
	redirectTo string // host that visitors are sent to; empty: the site itself answers
	state      string // active, deleted
	version    int64
}

const claimActive = "active"

// claims are the custom hosts, like the view custom_hosts. The zero value holds none.
type claims struct {
	mu    sync.RWMutex // guards hosts
	hosts map[string]*claim
}

// find returns whose a host is: the very name before a wildcard, which stands for
// exactly one label (RFC 4592 allows more; certificates don't, RFC 9525, section 6.3).
func (c *claims) find(host string) *claim {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if found := c.hosts[host]; found != nil {
		return found
	}
	_, above, ok := strings.Cut(host, ".")
	if !ok || strings.HasPrefix(host, "*.") || strings.HasPrefix(host, ".") {
		return nil
	}
	return c.hosts["*."+above]
}

// set takes a row over; one older than what is known changes nothing.
func (c *claims) set(n *claim) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if have := c.hosts[n.host]; have != nil && have.version > n.version {
		return
	}
	if n.state != claimActive {
		delete(c.hosts, n.host)
		return
	}
	if c.hosts == nil {
		c.hosts = map[string]*claim{}
	}
	c.hosts[n.host] = n
}

// keep drops every host that is not in the set.
func (c *claims) keep(hosts map[string]bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for host := range c.hosts {
		if !hosts[host] {
			delete(c.hosts, host)
		}
	}
}

func (c *claims) len() int {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return len(c.hosts)
}

// readClaims takes over the custom hosts above a version and returns the highest seen;
// at 0 they are everything there is.
func (e *Edge) readClaims(ctx context.Context, above int64) (int64, error) {
	floor := above
	if above == 0 {
		floor = -1
	}
	rows, err := e.DB.Query(ctx, `
		SELECT host, site_id, redirect_to, state, version FROM custom_hosts
		WHERE version > $1 ORDER BY version`, floor)
	changes, err := db.Collect(rows, err, func(s db.Scanner) (*claim, error) {
		var c claim
		err := s.Scan(&c.host, &c.site, &c.redirectTo, &c.state, &c.version)
		return &c, err
	})
	if err != nil {
		return above, fmt.Errorf("read custom hosts: %w", err)
	}
	seen := map[string]bool{}
	highest := above
	for _, c := range changes {
		e.claims.set(c)
		e.moves.Add(1)
		seen[c.host] = true
		highest = max(highest, c.version)
	}
	if above == 0 {
		e.claims.keep(seen)
		e.moves.Add(1)
	}
	return highest, nil
}
