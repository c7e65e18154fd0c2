// Package requestinfo owns what is known about a client before authentication: its address behind trusted proxies, its
// network, the request ID, and the number of open streams per user.
//
// The API and the dashboard both use it, so that trust in requests is decided in one place. It never trusts a header
// unless it comes from a trusted proxy.
package requestinfo

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"

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

// Addr returns the client's address: the connection's or, behind a trusted proxy, the last address in X-Forwarded-For
// that isn't a trusted proxy. It is invalid if the connection has no address.
func Addr(r *http.Request, proxies []netip.Prefix) netip.Addr {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	addr := peer.Addr().Unmap().WithZone("")
	trusted := func(ip netip.Addr) bool {
		return slices.ContainsFunc(proxies, func(p netip.Prefix) bool { return p.Contains(ip) })
	}
	hops := strings.Split(strings.Join(r.Header["X-Forwarded-For"], ","), ",")
	for i := len(hops) - 1; i >= 0 && trusted(addr); i-- {
		hop := strings.TrimSpace(hops[i])
		ip, err := netip.ParseAddr(hop)
		if err != nil {
			if withPort, err2 := netip.ParseAddrPort(hop); err2 == nil {
				ip, err = withPort.Addr(), nil
			}
		}
		if err != nil {
			break // addresses before an invalid one can't be trusted
		}
		addr = ip.Unmap().WithZone("")
	}
	return addr
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
