package delivery

import (
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// rememberedNetworks caps the networks known per host: providers answer from several, and an attacker's host name may
// resolve to different ones each time.
const rememberedNetworks = 4

// reached holds the networks of a host's recent connections, latest first.
type reached struct {
	networks []string
	at       time.Time
}

// isNetwork reports whether a destination is a network, which contains a slash unlike a host.
func isNetwork(destination string) bool { return strings.Contains(destination, "/") }

// networkOf returns the /24 or /64 of an address, or "" if it isn't one. As in [HostOf], it includes the port for this
// machine.
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

// networks lists the networks of a host's recent connections. The caller holds the lock.
func (h *Hosts) networks(host string) []string {
	if r := h.reached[host]; r != nil {
		return r.networks
	}
	return nil
}

// lastNetwork returns the network of a host's latest connection, or "". The caller holds the lock.
func (h *Hosts) lastNetwork(host string) string {
	if list := h.networks(host); len(list) > 0 {
		return list[0]
	}
	return ""
}

// arrived records the network of a request's connection and counts the request there.
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
	r.at = now
	if len(r.networks) == 0 || r.networks[0] != network {
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
