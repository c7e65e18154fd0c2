// Package requestinfo owns who is at the other end of a request, as far as it can be known
// before anybody is asked: the address, what that counts as, the request's id, and how
// many streams somebody holds open.
//
// Both transports ask here, so that what is trusted of a request is decided once. It never
// believes a header unless a trusted proxy sent it.
package requestinfo

import (
	"net/http"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"slipway/internal/db"
)

var requestIDs = regexp.MustCompile(`^[\w-]{8,64}$`)

// RequestID takes the client's id when it is harmless in logs, else makes one.
func RequestID(r *http.Request) string {
	if id := r.Header["X-Request-Id"]; len(id) == 1 && requestIDs.MatchString(id[0]) {
		return id[0]
	}
	return db.NewID("req")
}

// Addr returns the address of who is asking: the connection's, or, when a trusted proxy
// is at the other end, the last one in X-Forwarded-For that is no trusted proxy. It is
// invalid for a connection without an address.
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

// Networks are the networks an address may share with other addresses of whoever holds it, the
// narrowest first: providers give out an IPv6 /64, /56 or /48 to one customer.
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

// Network returns the network that an address counts as: one machine has as many IPv6 addresses of a /64
// as it likes.
func Network(ip netip.Addr) string {
	if ip.Is6() {
		p, _ := ip.Prefix(64)
		return p.String()
	}
	return ip.String()
}
