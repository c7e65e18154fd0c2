package domain

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/miekg/dns"
)

// Resolver queries the DNS. Tests replace it; [DNS] is the real one.
//
// With the zero server the query goes to a recursive resolver, otherwise to that name server without recursion. The
// result's Rcode is NOERROR or NXDOMAIN, and its question is the one asked. Any other outcome (SERVFAIL, REFUSED,
// timeout) is an error and says nothing about the name.
type Resolver interface {
	Ask(ctx context.Context, server netip.AddrPort, name string, qtype uint16) (*dns.Msg, error)
}

// DNS is a Resolver over UDP with EDNS (1,232 bytes), falling back to TCP for truncated answers.
type DNS struct {
	Server  string        // host:port of the recursive resolver. Optional: empty means those of /etc/resolv.conf.
	Timeout time.Duration // per query and server. Optional: 0 means 1s.
}

// Ask queries the server, or each recursive resolver in turn, up to twice.
func (d *DNS) Ask(ctx context.Context, server netip.AddrPort, name string, qtype uint16) (*dns.Msg, error) {
	if server.IsValid() {
		return d.one(ctx, server.String(), name, qtype, false)
	}
	servers := []string{d.Server}
	if d.Server == "" {
		c, err := dns.ClientConfigFromFile("/etc/resolv.conf")
		if err != nil {
			return nil, fmt.Errorf("ask dns: %w", err)
		}
		servers = servers[:0]
		for _, s := range c.Servers {
			servers = append(servers, net.JoinHostPort(s, c.Port))
		}
	}
	err := errors.New("ask dns: no resolver is configured")
	for try := range 2 {
		for _, s := range servers {
			var m *dns.Msg
			if m, err = d.one(ctx, s, name, qtype, true); err == nil {
				return m, nil
			}
			if ctx.Err() != nil {
				return nil, err
			}
		}
		// Only timeouts are retried; a refusal won't change.
		var timeout net.Error
		if try == 0 && !(errors.As(err, &timeout) && timeout.Timeout()) {
			break
		}
	}
	return nil, err
}

func (d *DNS) one(ctx context.Context, server, name string, qtype uint16, recurse bool) (*dns.Msg, error) {
	q := new(dns.Msg)
	q.SetQuestion(dns.Fqdn(name), qtype)
	q.RecursionDesired = recurse
	q.SetEdns0(1232, false)
	c := &dns.Client{Net: "udp", Timeout: cmp.Or(d.Timeout, time.Second), UDPSize: 1232}
	m, _, err := c.ExchangeContext(ctx, q, server)
	if err == nil && m.Truncated {
		c.Net = "tcp"
		m, _, err = c.ExchangeContext(ctx, q, server)
	}
	if err != nil {
		return nil, fmt.Errorf("ask %s about %s %s: %w", server, name, dns.TypeToString[qtype], err)
	}
	if !m.Response || len(m.Question) != 1 || m.Question[0].Qtype != qtype ||
		!strings.EqualFold(m.Question[0].Name, q.Question[0].Name) {
		return nil, fmt.Errorf("ask %s about %s: it answered another question", server, name)
	}
	if m.Rcode != dns.RcodeSuccess && m.Rcode != dns.RcodeNameError {
		return nil, fmt.Errorf("ask %s about %s: %s", server, name, cmp.Or(dns.RcodeToString[m.Rcode], strconv.Itoa(m.Rcode)))
	}
	return m, nil
}

// delegated asks the DNS whether name is registered: a delegation means yes and NXDOMAIN means no. Any other answer is
// an error.
func delegated(ctx context.Context, r Resolver, name string) (bool, error) {
	m, err := r.Ask(ctx, netip.AddrPort{}, name, dns.TypeNS)
	if err != nil {
		return false, err
	}
	for _, rr := range append(m.Answer, m.Ns...) {
		if ns, ok := rr.(*dns.NS); ok && strings.EqualFold(ns.Hdr.Name, dns.Fqdn(name)) {
			return true, nil
		}
	}
	if m.Rcode != dns.RcodeNameError {
		return false, fmt.Errorf("ask dns about %s: neither a delegation nor its absence", name)
	}
	for _, rr := range m.Ns {
		// The root denies the name, so this resolver can't see the top-level domain.
		if soa, ok := rr.(*dns.SOA); ok && soa.Hdr.Name == "." {
			return false, fmt.Errorf("ask dns about %s: the resolver does not know its top-level domain", name)
		}
	}
	return false, nil
}
