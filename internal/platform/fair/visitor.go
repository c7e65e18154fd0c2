package fair

import (
	"net/netip"
)

// Visitor returns the network that a client is counted as: its IPv4 address, or the /64 of its IPv6 address, which one
// customer of a provider has. addr may have a port; anything else is returned unchanged.
func Visitor(addr string) string {
	ip, err := netip.ParseAddr(addr)
	if err != nil {
		at, err := netip.ParseAddrPort(addr)
		if err != nil {
			return addr
		}
		ip = at.Addr()
	}
	ip = ip.Unmap().WithZone("")
	if ip.Is4() {
		return ip.String()
	}
	network, _ := ip.Prefix(64)
	return network.String()
}
