package delivery

import (
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// rememberedNetworks is how many networks of a host are known: a provider answers with an
// address of one or the other, and who leads names to a victim may change them each time.
const rememberedNetworks = 4

// reached tells where connections to a host have ended, the last one first.
type reached struct {
	networks []string
	at       time.Time
}

// isNetwork tells a network from a host, in whose name there is no slash.
func isNetwork(destination string) bool { return strings.Contains(destination, "/") }

// networkOf returns what stands for an address and its neighbors: the /24 or the /64, or ""
// for what is no address. As with hosts, ports of this machine itself are told apart.
func networkOf(a net.Addr) string {
	tcp, ok := a.(*net.TCPAddr)
	if !ok || tcp == nil {
		return ""
	}
	ap := tcp.AddrPort()
	addr := ap.Addr().Unmap().WithZone("")
	if addr.IsLoopback() {
		return netip.AddrPortFrom(addr, ap.Port()).String() + "/port"
	}
	bits := 24
	if addr.Is6() {
		bits = 64
	}
	p, err := addr.Prefix(bits)
	if err != nil {
		return ""
	}
	return p.String()
}

// networks lists where connections to a host have ended lately. The caller holds the lock.
func (h *Hosts) networks(host string) []string {
	if r := h.reached[host]; r != nil {
		return r.networks
	}
	return nil
}

// lastNetwork returns where the latest connection to a host has ended, or "". The caller
// holds the lock.
func (h *Hosts) lastNetwork(host string) string {
	if list := h.networks(host); len(list) > 0 {
		return list[0]
	}
	return ""
}

// arrived notes in which network a request's connection ends, and counts it there.
func (h *Hosts) arrived(f *Request, network string, now time.Time) {
	if network == "" {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.reached[f.Host]
	if r == nil {
		r = &reached{}
		h.reached[f.Host] = r
	}
	if r.at = now; len(r.networks) == 0 || r.networks[0] != network {
		others := slices.DeleteFunc(r.networks, func(n string) bool { return n == network })
		r.networks = slices.Insert(others[:min(len(others), rememberedNetworks-1)], 0, network)
	}
	if f.Network == network {
		return
	}
	if f.Network != "" {
		h.hold(OwnerHost{f.Owner, f.Network}, -1, now).tokens++
	}
	h.hold(OwnerHost{f.Owner, network}, +1, now).tokens--
	f.Network = network
}
