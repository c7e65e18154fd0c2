// Package requestinfo owns what is known of a client before it has authenticated: its address
// behind trusted proxies, its network, the request's id, and the number of streams that a
// user has open.
//
// Both transports use it, so trust in a request is decided in one place. It never
// believes a header unless a trusted proxy sent it.
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

// RequestID returns the client's X-Request-Id when it is harmless in logs, else a new id.
func RequestID(r *http.Request) string {
	if id := r.Header["X-Request-Id"]; len(id) == 1 && requestIDs.MatchString(id[0]) {
		return id[0]
	}
	return db.NewID("req")
}

// Addr returns the client's address: the connection's, or, behind a trusted proxy, the last
// one in X-Forwarded-For that is not a trusted proxy. It is invalid for a connection without
// an address.
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
			break // what stands left of nonsense is nonsense
		}
		addr = ip.Unmap().WithZone("")
	}
	return addr
}

// Networks returns the networks that one customer of a provider may hold around an address,
// the narrowest first: an IPv4 address alone, an IPv6 /64, /56 or /48.
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

// Network returns the network that an address counts as: itself, or its IPv6 /64, all of whose
// addresses one machine can use.
func Network(ip netip.Addr) string {
	if ip.Is6() {
		p, _ := ip.Prefix(64)
		return p.String()
	}
	return ip.String()
}
