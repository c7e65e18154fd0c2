// Package front owns what counts of a request that a trusted proxy forwards: the visitor's address and scheme.
//
// It never believes a header of a connection that doesn't come from a trusted proxy.
package front

import (
	"crypto/tls"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"slipway/internal/edge/fastpath"
)

// Proxies are the proxies that forward requests of visitors. The zero value trusts none.
type Proxies struct {
	Networks []netip.Prefix
	// Header is the header in which every request carries the visitor's address, such as CF-Connecting-IP, in place of
	// X-Forwarded-For. Optional.
	Header string
}

// From reports whether the peer at an address (host:port) is a trusted proxy.
func (p Proxies) From(remote string) bool {
	if len(p.Networks) == 0 {
		return false
	}
	peer, err := netip.ParseAddrPort(remote)
	return err == nil && p.trusts(plain(peer.Addr()))
}

func (p Proxies) trusts(ip netip.Addr) bool {
	return slices.ContainsFunc(p.Networks, func(n netip.Prefix) bool { return n.Contains(ip) })
}

// Addr returns the client's address: the connection's or, behind a trusted proxy, the one in Header or the last address
// in X-Forwarded-For that isn't a trusted proxy. It is invalid if the connection has no address.
func (p Proxies) Addr(r *http.Request) netip.Addr {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	addr := plain(peer.Addr())
	name := p.Header
	if name == "" {
		name = "X-Forwarded-For"
	}
	hops := strings.Split(strings.Join(r.Header.Values(name), ","), ",")
	if p.Header != "" && len(hops) != 1 {
		return addr // this header holds one address
	}
	for i := len(hops) - 1; i >= 0 && p.trusts(addr); i-- {
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
		addr = plain(ip)
	}
	return addr
}

func plain(ip netip.Addr) netip.Addr { return ip.Unmap().WithZone("") }

// Visitor returns the request as the visitor sent it: with the visitor's address and, if the proxy sets
// X-Forwarded-Proto, with or without TLS. forwarded is false, and the request unchanged, unless a trusted proxy sent it.
func (p Proxies) Visitor(r *http.Request) (_ *http.Request, forwarded bool) {
	if !p.From(r.RemoteAddr) {
		return r, false
	}
	peer := netip.MustParseAddrPort(r.RemoteAddr) // From has parsed it
	visitor := *r
	visitor.RemoteAddr = netip.AddrPortFrom(p.Addr(r), peer.Port()).String()
	// The last value is that of the proxy that we trust, should it add to what others sent.
	list := strings.Split(strings.Join(r.Header["X-Forwarded-Proto"], ","), ",")
	switch strings.ToLower(strings.TrimSpace(list[len(list)-1])) {
	case "https", "wss":
		if r.TLS == nil {
			visitor.TLS = &tls.ConnectionState{HandshakeComplete: true, ServerName: fastpath.Hostname(r.Host)}
		}
	case "http", "ws":
		visitor.TLS = nil
	}
	return &visitor, true
}
