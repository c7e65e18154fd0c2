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

// observeBudget limits all queries of one check of a domain.
const observeBudget = 10 * time.Second

const caaBudget = 4 * time.Second // part of observeBudget

// observed holds the DNS records of a claimed name. If a value's error is set, the query failed and the value is
// unknown rather than empty.
type observed struct {
	tokens   []string // TXT records at _slipway.<name>
	tokenErr error
	strayAt  string // another name with the account's token; empty: none found

	cname   string   // target of the name's CNAME record
	chain   []string // all aliases up to the addresses
	addrs   []netip.Addr
	ttl     uint32 // TTL of the name's own records in seconds; 0: unknown
	mute    string // record type (A or AAAA) whose query failed
	addrErr error
	hidden  string // a wildcard that would match the name if no name existed below it

	ours []netip.Addr // this installation's addresses, as far as known

	challenge    []string // aliases from _acme-challenge.<name> on
	challengeErr error

	caa     []string // authorities that the CAA records permit
	caaName string   // name with the CAA records; empty: none exist
	caaErr  error
	cas     []string // our authorities' CAA names, if known
}

// proofName returns the name of the TXT record that proves name, which may be a wildcard.
func proofName(name string) string { return "_slipway." + strings.TrimPrefix(name, "*.") }

// mayAsk reports whether a customer's name server may be queried.
func (d *Domains) mayAsk(a netip.Addr) bool {
	return egress.Public(a) || slices.ContainsFunc(d.c.Allow, func(p netip.Prefix) bool { return p.Contains(a.Unmap()) })
}

// challengeName returns the name of the DNS challenge (RFC 8555 §8.4).
func challengeName(name string) string { return "_acme-challenge." + strings.TrimPrefix(name, "*.") }

// delegation returns the required target of a name's challenge, or "" if this installation doesn't use DNS challenges.
func (d *Domains) delegation(name string) string {
	if d.c.Certificates == nil {
		return ""
	}
	return strings.ToLower(d.c.Certificates.Delegation(name))
}

// observe queries the zone's own name servers, which know changes at once, and falls back to the resolver. target is
// the site's host name and token the account's.
func (d *Domains) observe(ctx context.Context, name, target, token string) observed {
	ctx, cancel := context.WithTimeout(ctx, observeBudget)
	defer cancel()
	base := strings.TrimPrefix(name, "*.")
	servers := d.nameServers(ctx, base)
	var s observed
	var wg panics.Group
	wg.Go(func() {
		s.tokens, s.tokenErr = d.tokens(ctx, servers, proofName(name))
		if s.tokenErr == nil && !slices.Contains(s.tokens, token) {
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
		// Some resolvers don't answer queries of unknown types, so CAA has a budget of its own.
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

// Delegated reports whether authorities would currently find a DNS challenge for a name. An error means that queries
// failed.
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

// nameServers returns up to four addresses of the name servers of name's zone, or none if they can't be found.
// Registries' own name servers are excluded.
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

// ask queries the zone's name servers, and the resolver if none of them gives an authoritative answer. fresh is true
// for an authoritative answer.
func (d *Domains) ask(ctx context.Context, servers []netip.AddrPort, name string, qtype uint16) (m *dns.Msg, fresh bool, err error) {
	for _, s := range servers[:min(len(servers), 3)] {
		if m, err := d.c.Resolver.Ask(ctx, s, name, qtype); err == nil && m.Authoritative {
			return m, true, nil
		}
	}
	m, err = d.c.Resolver.Ask(ctx, netip.AddrPort{}, name, qtype)
	return m, false, err
}

// tokens returns the TXT records at name itself. It doesn't follow aliases, since the target of a wildcard alias may
// belong to someone else.
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

// TXT returns a name's TXT records from its zone's name servers. An error means that queries failed.
func (d *Domains) TXT(ctx context.Context, name string) ([]string, error) {
	return d.tokens(ctx, d.nameServers(ctx, name), name)
}

// unquote strips the blanks and quotation marks that people and control panels put around a value. The DNS library
// escapes the latter with a backslash.
func unquote(s string) string { return strings.Trim(s, " \t\\\"'“”„") }

// stray looks for the account's token in common wrong places: the name itself, _slipway.<registrable name>, and the
// right name with the zone appended twice.
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

// hidden returns the wildcard record that would match a name without an address of its own. A wildcard doesn't match
// names with other names below them, such as the proof's TXT record (RFC 4592 §2.2.2).
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

// authorities returns the CAs that name's CAA records permit, from the closest ancestor with CAA records (RFC 8659 §3).
// Wildcards use issuewild if present.
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
		case some: // iodef alone restricts no authority
			return nil, "", nil
		}
	}
	return nil, "", nil
}
