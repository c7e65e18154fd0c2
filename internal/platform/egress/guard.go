package egress

import (
	"fmt"
	"net/netip"
	"strings"
)

// The tables invert the IANA special-purpose address registries (RFC 6890 and successors): IPv6 is refused unless it is
// global unicast, so ranges reserved in the future are already refused.
var (
	v4deny = prefixes("0.0.0.0/8 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 169.254.0.0/16 172.16.0.0/12 " +
		"192.0.0.0/24 192.0.2.0/24 192.31.196.0/24 192.52.193.0/24 192.88.99.0/24 192.168.0.0/16 " +
		"192.175.48.0/24 198.18.0.0/15 198.51.100.0/24 203.0.113.0/24 224.0.0.0/4 240.0.0.0/4 " +
		"168.63.129.16/32") // the last one is Azure's metadata service
	v6allow = netip.MustParsePrefix("2000::/3")
	v6deny  = prefixes("2001::/23 2001:db8::/32 2002::/16 2620:4f:8000::/48 3fff::/20")
)

// Public reports whether an address is an ordinary internet address: not private, not this host, not link-local, and
// not an IPv4 address embedded in IPv6 (6to4, NAT64, Teredo, IPv4-compatible). An address with a zone is never public.
func Public(a netip.Addr) bool {
	if !a.IsValid() || a.Zone() != "" {
		return false
	}
	a = a.Unmap()
	if a.Is4() {
		return !within(v4deny, a)
	}
	return v6allow.Contains(a) && !within(v6deny, a)
}

// ParseNetworks parses a list of CIDRs and single addresses.
func ParseNetworks(list []string) ([]netip.Prefix, error) {
	var out []netip.Prefix
	for _, s := range list {
		p, err := netip.ParsePrefix(s)
		if err != nil {
			a, aerr := netip.ParseAddr(s)
			if aerr != nil || a.Zone() != "" {
				return nil, fmt.Errorf("%q is not a network such as 10.0.0.0/8", s)
			}
			p = netip.PrefixFrom(a, a.BitLen())
		}
		if a := p.Addr(); a.Is4In6() { // ::ffff:10.0.0.0/104 means 10.0.0.0/8
			if p.Bits() < 96 {
				return nil, fmt.Errorf("%q mixes IPv4 and IPv6", s)
			}
			p = netip.PrefixFrom(a.Unmap(), p.Bits()-96)
		}
		out = append(out, p.Masked())
	}
	return out, nil
}

func within(list []netip.Prefix, a netip.Addr) bool {
	for _, p := range list {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

func prefixes(s string) []netip.Prefix {
	var out []netip.Prefix
	for f := range strings.FieldsSeq(s) {
		out = append(out, netip.MustParsePrefix(f))
	}
	return out
}
