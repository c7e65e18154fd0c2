package domain

import (
	"cmp"
	"context"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/miekg/dns"

	"slipway/internal/platform/egress"
)

// addresses resolves name, following aliases. For a wildcard it queries the wildcard record itself (RFC 4592 §2.3), and
// then a name that the record would match if it seems absent. mute is the record type (A or AAAA) whose queries failed.
func (d *Domains) addresses(
	ctx context.Context, servers []netip.AddrPort, name string,
) (cname string, chain []string, addrs []netip.Addr, ttl uint32, mute string, err error) {
	cname, chain, addrs, ttl, mute, err = d.follow(ctx, servers, name)
	if base, wild := strings.CutPrefix(name, "*."); wild && err == nil && cname == "" && len(addrs) == 0 {
		return d.follow(ctx, servers, "slipway-check."+base)
	}
	return cname, chain, addrs, ttl, mute, err
}

func (d *Domains) follow(
	ctx context.Context, servers []netip.AddrPort, name string,
) (cname string, chain []string, addrs []netip.Addr, ttl uint32, mute string, err error) {
	for _, qtype := range []uint16{dns.TypeA, dns.TypeAAAA} {
		m, fresh, failure := d.ask(ctx, servers, name, qtype)
		if failure != nil {
			mute, err = dns.TypeToString[qtype], failure
			continue
		}
		found, aliases := gather(m, name)
		if m.Authoritative { // a resolver's TTL is only the remaining one
			ttl = max(ttl, longest(m, name))
		}
		// The zone's servers know the alias but may not know its target.
		if fresh && len(found) == 0 && len(aliases) > 0 {
			m, err := d.c.Resolver.Ask(ctx, netip.AddrPort{}, aliases[len(aliases)-1], qtype)
			if err == nil {
				more, further := gather(m, aliases[len(aliases)-1])
				found, aliases = more, append(aliases, further...)
			}
		}
		addrs = append(addrs, found...)
		for _, a := range aliases {
			if !slices.Contains(chain, a) && len(chain) < aliasesMax {
				chain = append(chain, a)
			}
		}
		if len(aliases) > 0 {
			cname = aliases[0]
		}
	}
	if len(chain) == 0 && len(addrs) == 0 && err != nil {
		return "", nil, nil, 0, "", err
	}
	return cname, chain, addrs[:min(len(addrs), 32)], ttl, mute, nil
}

// longest returns the longest TTL in seconds among an answer's records of name.
func longest(m *dns.Msg, name string) (ttl uint32) {
	for _, rr := range m.Answer {
		if strings.EqualFold(rr.Header().Name, dns.Fqdn(name)) {
			ttl = max(ttl, rr.Header().Ttl)
		}
	}
	return ttl
}

// aliases follows name's CNAME records.
func (d *Domains) aliases(ctx context.Context, servers []netip.AddrPort, name string) ([]string, error) {
	m, _, err := d.ask(ctx, servers, name, dns.TypeCNAME)
	if err != nil {
		return nil, err
	}
	_, chain := gather(m, name)
	for range aliasesMax {
		if len(chain) == 0 || len(chain) >= aliasesMax {
			break
		}
		m, err := d.c.Resolver.Ask(ctx, netip.AddrPort{}, chain[len(chain)-1], dns.TypeCNAME)
		if err != nil {
			break // keep the aliases found so far
		}
		_, further := gather(m, chain[len(chain)-1])
		if len(further) == 0 || slices.Contains(chain, further[0]) {
			break
		}
		chain = append(chain, further...)
	}
	return chain, nil
}

const aliasesMax = 16

// gather follows name through an answer and returns the aliases and the final addresses. It ignores records of other
// names.
func gather(m *dns.Msg, name string) (addrs []netip.Addr, aliases []string) {
	for at := name; ; {
		next := ""
		for _, rr := range m.Answer {
			if !strings.EqualFold(rr.Header().Name, dns.Fqdn(at)) {
				continue
			}
			switch rr := rr.(type) {
			case *dns.A:
				if a, ok := netip.AddrFromSlice(rr.A); ok {
					addrs = append(addrs, a.Unmap())
				}
			case *dns.AAAA:
				if a, ok := netip.AddrFromSlice(rr.AAAA); ok {
					addrs = append(addrs, a.Unmap())
				}
			case *dns.CNAME:
				next = strings.ToLower(strings.TrimSuffix(rr.Target, "."))
			}
		}
		if next == "" || next == at || slices.Contains(aliases, next) || len(aliases) == aliasesMax {
			return addrs, aliases
		}
		aliases = append(aliases, next)
		at = next
	}
}

func (d *Domains) resolve(ctx context.Context, host string) []netip.Addr {
	var out []netip.Addr
	for _, qtype := range []uint16{dns.TypeA, dns.TypeAAAA} {
		m, err := d.c.Resolver.Ask(ctx, netip.AddrPort{}, host, qtype)
		if err != nil {
			continue
		}
		found, _ := gather(m, host)
		out = append(out, found[:min(len(found), 4)]...)
	}
	return out
}

// ourAddrs returns the addresses that names must point to: the configured ones and those of the site's host name. If
// both are unknown, it returns the addresses the edge listens on. Configured addresses come first, then public before
// private ones.
func (d *Domains) ourAddrs(ctx context.Context, target string) []netip.Addr {
	out := slices.Clone(d.c.Addrs)
	if target == "localhost" || strings.HasSuffix(target, ".localhost") { // RFC 6761 §6.3
		out = append(out, netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback())
	} else {
		out = append(out, d.resolve(ctx, target)...)
	}
	if len(out) == 0 {
		out = slices.Clone(d.c.Listens)
	}
	if len(out) == 0 {
		out = machineAddrs()
	}
	for i := range out {
		out[i] = out[i].Unmap()
	}
	said := len(d.c.Addrs)
	slices.SortStableFunc(out[said:], func(a, b netip.Addr) int {
		return cmp.Or(cmp.Compare(scope(a), scope(b)), a.Compare(b))
	})
	var once []netip.Addr
	for _, a := range out {
		if !slices.Contains(once, a) {
			once = append(once, a)
		}
	}
	return once
}

const targetsFor = time.Minute

// targets returns the addresses for names that can't be aliases, by resolving a host name below the sites' domain. It
// caches the result and takes at most 2 s.
func (d *Domains) targets(ctx context.Context) []netip.Addr {
	d.targetMu.Lock()
	defer d.targetMu.Unlock()
	if time.Now().After(d.targetUntil) {
		bounded, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		found := d.ourAddrs(bounded, "www."+d.below())
		if ctx.Err() != nil { // the caller is gone, so the result is incomplete
			return nil
		}
		d.targetAddrs, d.targetUntil = found, time.Now().Add(targetsFor)
	}
	return d.targetAddrs
}

// scope ranks addresses: 0 for public, 1 for private, 2 for loopback.
func scope(a netip.Addr) int {
	switch {
	case egress.Public(a):
		return 0
	case a.IsLoopback():
		return 2
	}
	return 1
}
