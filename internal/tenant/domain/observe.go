package domain

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"slipway/internal/platform/egress"
	"slipway/internal/platform/panics"

	"github.com/miekg/dns"
)

// observeBudget bounds one check of a domain's DNS, all queries together.
const observeBudget = 10 * time.Second

const caaBudget = 4 * time.Second // of it

// observed holds the DNS records of a claimed name at one time. An error beside a value
// means that nobody answered: the value is not known, rather than empty.
type observed struct {
	tokens   []string // the TXT records at _slipway.<name>
	tokenErr error
	strayAt  string // another name that holds the account's token; empty: none was found

	cname   string   // what the name itself is an alias of
	chain   []string // all aliases on the way to the addresses
	addrs   []netip.Addr
	ttl     uint32 // for how many seconds resolvers keep the name's own records; 0: not known
	mute    string // A or AAAA: nobody answers about that kind
	addrErr error
	hidden  string // a wildcard of the zone that would answer for the name if nothing stood below it

	ours []netip.Addr // addresses of this service, as far as they are known

	challenge    []string // aliases from _acme-challenge.<name> on
	challengeErr error

	caa     []string // what CAA records permit, where there are any
	caaName string   // whose records they are; empty: there are none
	caaErr  error
	cas     []string // by which of them ours would be permitted, where they say so
}

// proofName is where the account's token belongs for a name, which may be a wildcard.
func proofName(name string) string { return "_slipway." + strings.TrimPrefix(name, "*.") }

// mayAsk reports whether a name server of a stranger's zone may be asked.
func (d *Domains) mayAsk(a netip.Addr) bool {
	return egress.Public(a) || slices.ContainsFunc(d.c.Allow, func(p netip.Prefix) bool { return p.Contains(a.Unmap()) })
}

// challengeName is where authorities look for a proof in the DNS (RFC 8555, section 8.4).
func challengeName(name string) string { return "_acme-challenge." + strings.TrimPrefix(name, "*.") }

// delegation is where a name's challenge leads for a proof in the DNS, or nothing where this installation gives none.
func (d *Domains) delegation(name string) string {
	if d.c.Certificates == nil {
		return ""
	}
	return strings.ToLower(d.c.Certificates.Delegation(name))
}

// look asks the zone's own name servers, which know of a change at once, and the
// resolver where they can't be asked. target is the site's own host name, token the
// account's.
func (d *Domains) observe(ctx context.Context, name, target, token string) observed {
	ctx, cancel := context.WithTimeout(ctx, observeBudget)
	defer cancel()
	base := strings.TrimPrefix(name, "*.")
	servers := d.nameServers(ctx, base)
	var s observed
	var wg panics.Group
	wg.Go(func() {
		if s.tokens, s.tokenErr = d.tokens(ctx, servers, proofName(name)); s.tokenErr == nil && !slices.Contains(s.tokens, token) {
			s.strayAt = d.stray(ctx, servers, name, token)
		}
	})
	wg.Go(func() {
		s.cname, s.chain, s.addrs, s.ttl, s.mute, s.addrErr = d.addresses(ctx, servers, name)
		if s.addrErr == nil && s.cname == "" && len(s.addrs) == 0 {
			s.hidden = d.hidden(ctx, servers, name)
		}
	})
	wg.Go(func() { s.ours = d.ourAddrs(ctx, target) })
	wg.Go(func() {
		// Some resolvers keep silent about records that they don't know: all else goes on.
		ctx, cancel := context.WithTimeout(ctx, caaBudget)
		defer cancel()
		s.caa, s.caaName, s.caaErr = d.authorities(ctx, name)
	})
	if d.c.Certificates != nil {
		wg.Go(func() { s.cas = d.c.Certificates.CAs(ctx) })
	}
	if d.delegation(name) != "" {
		wg.Go(func() { s.challenge, s.challengeErr = d.aliases(ctx, servers, challengeName(name)) })
	}
	wg.Wait()
	return s
}

// Delegated reports whether authorities would find a proof in the DNS for a name, as the DNS has it now. An error means that
// nobody answered.
func (d *Domains) Delegated(ctx context.Context, name string) (bool, error) {
	target := d.delegation(name)
	if target == "" {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, observeBudget)
	defer cancel()
	chain, err := d.aliases(ctx, d.nameServers(ctx, strings.TrimPrefix(name, "*.")), challengeName(name))
	if err != nil {
		return false, fmt.Errorf("look up challenge of %s: %w", name, err)
	}
	return slices.Contains(chain, target), nil
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
				if len(out) < 4 && d.mayAsk(a) {
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
			out = append(out, unquote(strings.Join(t.Txt, "")))
		}
	}
	return out, nil
}

// TXT returns the TXT records at a name, as the name servers of its zone have them. An error means that nobody answered.
func (d *Domains) TXT(ctx context.Context, name string) ([]string, error) {
	return d.tokens(ctx, d.nameServers(ctx, name), name)
}

// unquote takes off what people and control panels put around a value: blanks and
// quotation marks, which the DNS library shows with a backslash.
func unquote(s string) string { return strings.Trim(s, " \t\\\"'“”„") }

// stray looks for the account's token where people put it by mistake: at the name itself,
// at _slipway.<registrable name>, and where a control panel has added the zone once more.
func (d *Domains) stray(ctx context.Context, servers []netip.AddrPort, name, token string) string {
	base, right := strings.TrimPrefix(name, "*."), proofName(name)
	zone := zoneOf(base)
	tried := []string{right}
	for _, at := range []string{base, right + "." + zone, "_slipway." + zone} {
		if slices.Contains(tried, at) || len(at) > 253 {
			continue
		}
		tried = append(tried, at)
		if found, err := d.tokens(ctx, servers, at); err == nil && slices.Contains(found, token) {
			return at
		}
	}
	return ""
}

// hidden returns the wildcard record beside a name that has no address of its own. It
// does not answer for a name that something stands below, such as the TXT record of the
// proof (RFC 4592, section 2.2.2).
func (d *Domains) hidden(ctx context.Context, servers []netip.AddrPort, name string) string {
	_, above, ok := strings.Cut(name, ".")
	if !ok || strings.HasPrefix(name, "*.") || name == zoneOf(name) {
		return ""
	}
	wildcard := "*." + above
	cname, _, addrs, _, _, err := d.follow(ctx, servers, wildcard)
	if err != nil || cname == "" && len(addrs) == 0 {
		return ""
	}
	return wildcard
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
			who = strings.ToLower(strings.TrimSpace(who))
			switch strings.ToLower(c.Tag) {
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
