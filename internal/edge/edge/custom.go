package edge

import (
	"context"
	"fmt"
	"strings"

	"slipway/internal/platform/id"

	"slipway/internal/platform/db"
)

// claim is a verified custom host, or "*." and such a host, with the site it belongs to. It is immutable; a change
// replaces it.
type claim struct {
	host       string
	site       id.Site
	redirectTo string // host to redirect visitors to; empty: the site answers
	state      string // active or deleted
	version    int64
}

const claimActive = "active"

// claim returns the claim of a host: an exact match first, then a wildcard, which covers exactly one label (RFC 4592
// allows more, certificates don't: RFC 9525 §6.3).
func (h *hosts) claim(host string) *claim {
	if found, ok := h.custom.Get(host); ok {
		return found
	}
	_, above, ok := strings.Cut(host, ".")
	if !ok || strings.HasPrefix(host, "*.") || strings.HasPrefix(host, ".") {
		return nil
	}
	found, _ := h.custom.Get("*." + above)
	return found
}

// claims applies rows read above a version and returns the highest version. With above = 0 the rows are complete. Rows
// older than the known ones are ignored.
func (c *changes) claims(rows []*claim, above int64) int64 {
	seen, highest := map[string]bool{}, above
	for _, n := range rows {
		seen[n.host] = true
		highest = max(highest, n.version)
		have, ok := c.custom.Get(n.host)
		switch {
		case ok && (have.version > n.version || *have == *n):
		case n.state != claimActive:
			c.custom.Drop(n.host)
		default:
			c.custom.Set(n.host, n)
		}
	}
	if above == 0 {
		before := c.custom.Trie
		for host := range before.All {
			if !seen[host] {
				c.custom.Drop(host)
			}
		}
	}
	return highest
}

// readClaims returns the custom hosts above a version; 0 returns all.
func (e *Edge) readClaims(ctx context.Context, above int64) ([]*claim, error) {
	floor := above
	if above == 0 {
		floor = -1
	}
	rows, err := e.DB.Query(ctx, `
		SELECT host, site_id, redirect_to, state, version FROM custom_hosts
		WHERE version > $1 ORDER BY version`, floor)
	out, err := db.Collect(rows, err, func(s db.Scanner) (*claim, error) {
		var c claim
		err := s.Scan(&c.host, &c.site, &c.redirectTo, &c.state, &c.version)
		return &c, err
	})
	if err != nil {
		return nil, fmt.Errorf("read custom hosts: %w", err)
	}
	return out, nil
}
