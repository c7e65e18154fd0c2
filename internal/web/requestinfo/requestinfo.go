// Package requestinfo owns what is known about a client before authentication: its network, the request ID, and the
// number of open streams per user. The address is that of package front.
//
// The API and the dashboard both use it, so that trust in requests is decided in one place.
package requestinfo

import (
	"net/http"
	"net/netip"

	"slipway/internal/platform/db"
	"slipway/internal/platform/lazyregexp"
)

var requestIDs = lazyregexp.New(`^[\w-]{8,64}$`)

// RequestID returns the client's X-Request-Id if it is safe to log, otherwise a new ID.
func RequestID(r *http.Request) string {
	if id := r.Header["X-Request-Id"]; len(id) == 1 && requestIDs.MatchString(id[0]) {
		return id[0]
	}
	return db.NewID("req")
}

// Networks returns the networks that one customer of a provider may control around an address, smallest first: an IPv4
// address, or an IPv6 /64, /56 and /48.
func Networks(ip netip.Addr) []string {
	if !ip.Is6() {
		return []string{ip.String()}
	}
	out := make([]string, 0, 3)
	for _, bits := range []int{64, 56, 48} {
		p, _ := ip.Prefix(bits)
		out = append(out, p.String())
	}
	return out
}

// Network returns the network that an address counts as: itself, or its IPv6 /64, since one machine can use all of its
// addresses.
func Network(ip netip.Addr) string {
	if ip.Is6() {
		p, _ := ip.Prefix(64)
		return p.String()
	}
	return ip.String()
}
