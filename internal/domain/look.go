package domain

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/miekg/dns"

	"slipway/internal/egress"
)

// lookBudget bounds one look at a domain's DNS, all questions together.
const lookBudget = 10 * time.Second

const caaBudget = 4 * time.Second // of it

// sight is what the DNS shows of a claimed name at one moment. An error beside a value
// means that nobody answered: the value is not known, rather than empty.
type sight struct {
	tokens   []string // the TXT records at _slipway.<name>
	tokenErr error

	cname   string   // what the name itself is an alias of
	chain   []string // all aliases on the way to the addresses
	addrs   []netip.Addr
	addrErr error

	ours []netip.Addr // addresses of this service, as far as they are known

	challenge    []string // aliases from _acme-challenge.<name> on; for wildcards
	challengeErr error

	caa     []string // what CAA records permit, where there are any
	caaName string   // whose records they are; empty: there are none
	caaErr  error
	cas     []string // by which of them ours would be permitted, where they say so
}

// proofName is where the account's token belongs for a name, which may be a wildcard.
func proofName(name string) string { return "_slipway." + strings.TrimPrefix(name, "*.") }

// challengeName is where authorities look for the proof of a wildcard (RFC 8555, section 8.4).
func challengeName(name string) string { return "_acme-challenge." + strings.TrimPrefix(name, "*.") }

// delegation is where a name's challenge must lead, or nothing where it needs no record.
func (d *Domains) delegation(name string) string {
	if d.c.Delegation == nil || !strings.HasPrefix(name, "*.") {
		return ""
	}
	return strings.ToLower(d.c.Delegation(name))
}

// look asks the zone's own name servers, which know of a change at once, and the
// resolver where they can't be asked. target is the site's own host name.
func (d *Domains) look(ctx context.Context, name, target string) sight {
	ctx, cancel := context.WithTimeout(ctx, lookBudget)
	defer cancel()
	base := strings.TrimPrefix(name, "*.")
	servers := d.nameServers(ctx, base)
	var s sight
	var wg sync.WaitGroup
	wg.Go(func() { s.tokens, s.tokenErr = d.tokens(ctx, servers, proofName(name)) })
	wg.Go(func() { s.cname, s.chain, s.addrs, s.addrErr = d.addresses(ctx, servers, name) })
	wg.Go(func() { s.ours = d.ourAddrs(ctx, target) })
	wg.Go(func() {
		// Some resolvers keep silent about records that they don't know: all else goes on.
		ctx, cancel := context.WithTimeout(ctx, caaBudget)
		defer cancel()
		s.caa, s.caaName, s.caaErr = d.authorities(ctx, name)
	})
	if d.c.CAs != nil {
		wg.Go(func() { s.cas = d.c.CAs(ctx) })
	}
	if d.delegation(name) != "" {
		wg.Go(func() { s.challenge, s.challengeErr = d.aliases(ctx, servers, challengeName(name)) })
	}
	wg.Wait()
	return s
}

// nameServers finds who answers for the zone that name lies in, at most four addresses;
// none where that can't be found out. Registries themselves are not asked.
func (d *Domains) nameServers(ctx context.Context, name string) []netip.AddrPort {
	suffix, _ := suffixOf(name)
	for at := name; at != suffix && strings.Contains(at, "."); _, at, _ = strings.Cut(at, ".") {
		m, err := d.c.Resolver.Ask(ctx, netip.AddrPort{}, at, dns.TypeNS)
		if err != nil {
			return nil
		}
		var hosts []string
		for _, rr := range m.Answer {
			if ns, ok := rr.(*dns.NS); ok && strings.EqualFold(ns.Hdr.Name, dns.Fqdn(at)) {
				hosts = append(hosts, ns.Ns)
			}
		}
		if len(hosts) == 0 {
			continue
		}
		var out []netip.AddrPort
		for _, host := range hosts[:min(len(hosts), 4)] {
			for _, a := range d.resolve(ctx, host) {
				if len(out) < 4 && d.c.Allowed(a) {
					out = append(out, netip.AddrPortFrom(a, d.c.NSPort))
				}
			}
		}
		return out
	}
	return nil
}

// ask puts a question to the zone's name servers, and to the resolver when none of them
// answers with authority. fresh reports that the answer is the zone's own.
func (d *Domains) ask(ctx context.Context, servers []netip.AddrPort, name string, qtype uint16) (m *dns.Msg, fresh bool, err error) {
	for _, s := range servers[:min(len(servers), 3)] {
		if m, err := d.c.Resolver.Ask(ctx, s, name, qtype); err == nil && m.Authoritative {
			return m, true, nil
		}
	}
	m, err = d.c.Resolver.Ask(ctx, netip.AddrPort{}, name, qtype)
	return m, false, err
}

// tokens returns the TXT records at name itself. Aliases are not followed: whoever
// serves the target of some wildcard alias has not been given the name.
func (d *Domains) tokens(ctx context.Context, servers []netip.AddrPort, name string) ([]string, error) {
	m, _, err := d.ask(ctx, servers, name, dns.TypeTXT)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, rr := range m.Answer {
		if t, ok := rr.(*dns.TXT); ok && strings.EqualFold(t.Hdr.Name, dns.Fqdn(name)) && len(out) < 32 {
			out = append(out, strings.Trim(strings.TrimSpace(strings.Join(t.Txt, "")), `"`))
		}
	}
	return out, nil
}

// addresses follows name to its addresses. For a wildcard the wildcard record itself is
// asked for (RFC 4592 §2.3: it is a name like any other).
func (d *Domains) addresses(ctx context.Context, servers []netip.AddrPort, name string) (cname string, chain []string, addrs []netip.Addr, err error) {
	for _, qtype := range []uint16{dns.TypeA, dns.TypeAAAA} {
		m, fresh, err := d.ask(ctx, servers, name, qtype)
		if err != nil {
			return "", nil, nil, err
		}
		found, aliases := gather(m, name)
		// The zone's servers know where the alias leads, not always what is there.
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
	return cname, chain, addrs[:min(len(addrs), 32)], nil
}

// aliases follows name from alias to alias, whatever is at the end.
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
			break // what was found so far was found
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

// gather follows name through an answer: the aliases on the way, and the addresses at its
// end. What the answer says of other names is left alone.
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

// resolve returns up to eight addresses of a host.
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

// ourAddrs returns where names must point: the configured addresses and those of the
// site's own name, or where the edge listens when neither is known. What the operator said
// comes first, and what the internet reaches before what it does not.
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

const aimsFor = time.Minute

// aims is where names must point that can't be an alias, from a name that no site has. It
// is asked for once in a while, and for 2 s at most.
func (d *Domains) aims(ctx context.Context) []netip.Addr {
	d.aim.Lock()
	defer d.aim.Unlock()
	if time.Now().After(d.aimUntil) {
		bounded, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		found := d.ourAddrs(bounded, "www."+d.below())
		if ctx.Err() != nil { // whoever asked has gone, and the answer is worth nothing
			return nil
		}
		d.aimAt, d.aimUntil = found, time.Now().Add(aimsFor)
	}
	return d.aimAt
}

// scope is how far from the internet an address is.
func scope(a netip.Addr) int {
	switch {
	case egress.Public(a):
		return 0
	case a.IsLoopback():
		return 2
	}
	return 1
}

// authorities returns whom the CAA records for name permit (RFC 8659 §3: the closest
// name upwards that has any), by issuewild for a wildcard where that is said.
func (d *Domains) authorities(ctx context.Context, name string) (permitted []string, at string, err error) {
	base, wild := strings.CutPrefix(name, "*.")
	for at = base; at != ""; _, at, _ = strings.Cut(at, ".") {
		m, err := d.c.Resolver.Ask(ctx, netip.AddrPort{}, at, dns.TypeCAA)
		if err != nil {
			return nil, at, fmt.Errorf("look up CAA of %s: %w", at, err)
		}
		var issue, issuewild []string
		some, wilds := false, false
		for _, rr := range m.Answer {
			c, ok := rr.(*dns.CAA)
			if !ok {
				continue
			}
			some = true
			who, _, _ := strings.Cut(c.Value, ";")
			switch who = strings.ToLower(strings.TrimSpace(who)); strings.ToLower(c.Tag) {
			case "issue":
				issue = append(issue, who)
			case "issuewild":
				wilds, issuewild = true, append(issuewild, who)
			}
		}
		switch {
		case wild && wilds:
			return issuewild, at, nil
		case len(issue) > 0:
			return issue, at, nil
		case some: // iodef alone restricts nobody
			return nil, "", nil
		}
	}
	return nil, "", nil
}
