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

// Resolver asks the DNS one question. It is a seam: *DNS asks the real one.
//
// With the zero server the question goes to a recursive resolver, otherwise to that
// name server without asking for recursion. The answer's Rcode is NOERROR or NXDOMAIN
// and its question the one that was asked. Everything else (SERVFAIL, REFUSED, silence)
// is an error: nobody answered, and nothing follows from it.
type Resolver interface {
	Ask(ctx context.Context, server netip.AddrPort, name string, qtype uint16) (*dns.Msg, error)
}

// DNS is the Resolver that asks over the network: UDP with EDNS (1,232 bytes), and TCP
// for answers that do not fit.
type DNS struct {
	Server  string        // host:port of the recursive resolver. Optional: empty means those of /etc/resolv.conf.
	Timeout time.Duration // of one question to one server. Optional: 0 means 1s.
}

// Ask asks the server, or each recursive resolver in turn, twice.
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
		// Only silence is worth asking again: a refusal will be the same.
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

// delegated asks the DNS whether name is registered: a delegation says yes, NXDOMAIN
// says no, and anything else says nothing.
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
		// Denied by the root: this resolver does not see the top-level domain at all.
		if soa, ok := rr.(*dns.SOA); ok && soa.Hdr.Name == "." {
			return false, fmt.Errorf("ask dns about %s: the resolver does not know its top-level domain", name)
		}
	}
	return false, nil
}
