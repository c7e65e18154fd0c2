package certs

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/mholt/acmez/v3/acme"
	"github.com/miekg/dns"
	"golang.org/x/sync/errgroup"

	"slipway/internal/platform/panics"
)

// DNS is a name server for one zone that holds only the answers to dns-01 challenges (RFC 8555 §8.4). Owners point a
// CNAME record at _acme-challenge.<name> there once; the operator delegates the zone to this server with an NS record.
type DNS struct {
	Zone    string         // such as acme.example.com
	Host    string         // name in the zone's NS record. Optional: empty means the zone itself.
	Packets net.PacketConn // opened by the caller; Run closes Packets and its TCP twin
	Stream  net.Listener
}

// dns reports whether this installation answers DNS challenges.
func (s *Certs) dns() bool { return s.c.DNS != nil }

// Delegation returns where a CNAME record at _acme-challenge.<name> must point. Wildcards need it; other names need it
// only to get a certificate before their visitors arrive here. It is empty if this installation answers no DNS
// challenges.
func (s *Certs) Delegation(host string) string {
	if !s.dns() {
		return ""
	}
	return Delegation(s.c.DNS.Zone, host)
}

// Delegation returns the name in zone that holds the answers for host. host may be a wildcard; the name doesn't reveal
// it.
func Delegation(zone, host string) string {
	sum := sha256.Sum256([]byte(strings.TrimPrefix(strings.ToLower(host), "*.")))
	label := strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:15]))
	return label + "." + strings.ToLower(strings.Trim(zone, "."))
}

const answerTTL = 1 // seconds; authorities query once

// serveDNS answers queries until ctx ends.
func (s *Certs) serveDNS(ctx context.Context) error {
	if !s.dns() {
		return nil
	}
	var g errgroup.Group
	servers := []*dns.Server{
		{PacketConn: s.c.DNS.Packets, Handler: dns.HandlerFunc(s.answer), UDPSize: 1232},
		{
			Listener: s.c.DNS.Stream, Handler: dns.HandlerFunc(s.answer), MaxTCPQueries: 16, ReadTimeout: 2 * time.Second,
			IdleTimeout: func() time.Duration { return 2 * time.Second },
		},
	}
	for _, srv := range servers {
		started := make(chan struct{})
		srv.NotifyStartedFunc = func() { close(started) }
		// uncaught: answer catches
		g.Go(func() error {
			if err := srv.ActivateAndServe(); err != nil && ctx.Err() == nil {
				return fmt.Errorf("answer dns: %w", err)
			}
			return nil
		})
		// uncaught: answer catches
		g.Go(func() error {
			<-ctx.Done()
			select {
			case <-started:
				srv.Shutdown()
			case <-time.After(time.Second): // the server never started
			}
			return nil
		})
	}
	return g.Wait()
}

// answer answers one query: TXT records of our own orders, the records that every zone has (RFC 1034 §4.2.1), and an
// authoritative "no data" for everything else.
func (s *Certs) answer(w dns.ResponseWriter, q *dns.Msg) {
	_ = panics.Call(func() error { s.reply(w, q); return nil })
}

func (s *Certs) reply(w dns.ResponseWriter, q *dns.Msg) {
	m := new(dns.Msg)
	if q.Response || q.Opcode != dns.OpcodeQuery || len(q.Question) != 1 {
		m.SetRcode(q, dns.RcodeNotImplemented)
		w.WriteMsg(m)
		return
	}
	m.SetReply(q)
	if q.IsEdns0() != nil {
		m.SetEdns0(1232, false)
	}
	question := q.Question[0]
	name := strings.ToLower(strings.TrimSuffix(question.Name, "."))
	zone := s.c.DNS.Zone
	server := dns.Fqdn(cmp.Or(s.c.DNS.Host, zone))
	header := func(kind uint16) dns.RR_Header {
		return dns.RR_Header{Name: question.Name, Rrtype: kind, Class: dns.ClassINET, Ttl: answerTTL}
	}
	soa := &dns.SOA{
		Hdr: dns.RR_Header{Name: dns.Fqdn(zone), Rrtype: dns.TypeSOA, Class: dns.ClassINET, Ttl: answerTTL},
		Ns:  server, Mbox: "hostmaster." + dns.Fqdn(zone), Serial: 1, Refresh: 3600, Retry: 600, Expire: 86400, Minttl: answerTTL,
	}
	label, inside := strings.CutSuffix(name, "."+zone)
	switch {
	case question.Qclass != dns.ClassINET || name != zone && !inside:
		m.Rcode = dns.RcodeRefused
		w.WriteMsg(m)
		return
	case name == zone && question.Qtype == dns.TypeSOA:
		m.Answer = append(m.Answer, soa)
	case name == zone && question.Qtype == dns.TypeNS:
		m.Answer = append(m.Answer, &dns.NS{Hdr: header(dns.TypeNS), Ns: server})
	case name == zone:
	case len(label) != 24 || strings.Contains(label, "."):
		m.Rcode = dns.RcodeNameError
	case question.Qtype == dns.TypeTXT:
		for _, value := range s.proofs(name) {
			m.Answer = append(m.Answer, &dns.TXT{Hdr: header(dns.TypeTXT), Txt: []string{value}})
		}
	}
	m.Authoritative = true
	if len(m.Answer) == 0 {
		m.Ns = append(m.Ns, soa)
	}
	w.WriteMsg(m)
}

// proofs returns the values of the TXT records at a name of our zone, from all nodes: a name and its wildcard share one
// name here, and two nodes may prove them at once.
func (s *Certs) proofs(name string) []string {
	var out []string
	own := &s.challenges
	own.mu.Lock()
	for _, c := range own.byToken {
		if c.Type == acme.ChallengeTypeDNS01 && s.Delegation(c.Identifier.Value) == name {
			out = append(out, c.DNS01KeyAuthorization())
		}
	}
	own.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	for _, answer := range s.elsewhere(ctx, acme.ChallengeTypeDNS01, name, "") {
		if value := (acme.Challenge{KeyAuthorization: answer}).DNS01KeyAuthorization(); !slices.Contains(out, value) {
			out = append(out, value)
		}
	}
	return out
}
