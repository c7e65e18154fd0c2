package certs

import (
	"fmt"
	"maps"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/mholt/acmez/v3/acme"
	"github.com/miekg/dns"

	"slipway/internal/tenant/domain"
)

// withDNS gives an installation a name server for a zone, which the test's DNS queries as a resolver would.
func withDNS(zoneName string) func(*world, *Config) {
	return func(w *world, c *Config) {
		pc, err := net.ListenPacket("udp", "127.0.0.1:0")
		if err != nil {
			w.t.Fatal(err)
		}
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			w.t.Fatal(err)
		}
		c.DNS = &DNS{Zone: zoneName, Packets: pc, Stream: l}
		w.zone.Delegate(zoneName, pc.LocalAddr().String())
	}
}

// A wildcard domain is verified with a CNAME record that its owner sets once. The sites' own addresses share one
// wildcard certificate in the same way.
func TestWildcards(t *testing.T) {
	t.Parallel()
	w := start(t, withDNS("acme.test"))
	w.site("blog")
	// The certificate is ordered once the record exists, and not before.
	d := w.add("*.customer.test", "blog")
	target := w.Delegation("*.customer.test")
	if len(d.Problems) != 1 || !strings.Contains(d.Problems[0].Message, "_acme-challenge.customer.test") ||
		!strings.Contains(d.Problems[0].Message, target) {
		t.Errorf("the missing record isn't shown: %+v", d.Problems)
	}
	w.until("the sites' wildcard was attempted", func() bool { return w.row("*.sites.test").err != "" })
	if said := w.row("*.sites.test").err; !strings.Contains(said, w.Delegation("sites.test")) || w.row("*.sites.test").failures != 0 {
		t.Errorf("the sites' wildcard has the error %q", said)
	}
	if _, err := w.compare(t.Context(), 0); err != nil || w.row("*.customer.test").host != "" || w.pebble.Orders.Load() != 0 {
		t.Errorf("%d orders without the record, row %+v, %v", w.pebble.Orders.Load(), w.row("*.customer.test"), err)
	}
	w.zone.Set("_acme-challenge.customer.test", "CNAME "+target+".")
	if d, err := w.domains.Verify(t.Context(), "ada", d.ID); err != nil || len(d.Problems) != 0 {
		t.Errorf("with the record: %+v, %v", d.Problems, err)
	}
	leaf := w.served("any.customer.test")
	if other := w.served("other.customer.test"); !other.Equal(leaf) || leaf.DNSNames[0] != "*.customer.test" {
		t.Errorf("names %v", leaf.DNSNames)
	}
	w.until("it is told", func() bool { return w.get(d.ID).SSL == domain.SSLActive })
	w.refused("a.b.customer.test")
	w.refused("customer.test")

	w.zone.Set("_acme-challenge.sites.test", "CNAME "+w.Delegation("sites.test")+".")
	w.exec("UPDATE certificates SET next_at = 1 WHERE host = '*.sites.test'")
	shared := w.served("abcdefghijk1--blog.sites.test")
	before := w.pebble.Orders.Load()
	for _, name := range []string{"blog.sites.test", "made-up.sites.test"} {
		if c := w.served(name); !c.Equal(shared) {
			t.Errorf("%s has a certificate of its own", name)
		}
	}
	if w.pebble.Orders.Load() != before {
		t.Error("it was ordered for")
	}
}

// A name and its wildcard share one name in the ACME zone. When two nodes prove them at the same time, each node
// answers with both proofs.
func TestProofsOfTwoNodes(t *testing.T) {
	t.Parallel()
	zone := func(w *world, c *Config) { withDNS("acme.test")(w, c); w.nodes = true }
	front := start(t, zone)
	other := startNode(t, front, func(w *world, c *Config) {
		zone(w, c)
		c.CAs = []string{front.pebble.Directory()}
		c.Out = front.pebble.Client()
	})
	want := map[string]bool{}
	for n, node := range []*world{front, other, other} {
		c := acme.Challenge{
			Type: acme.ChallengeTypeDNS01, Token: fmt.Sprint("token", n), KeyAuthorization: fmt.Sprint("token", n, ".thumb"),
			Identifier: acme.Identifier{Type: "dns", Value: "customer.test"},
		}
		withdraw, err := node.present(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		defer withdraw()
		want[c.DNS01KeyAuthorization()] = true
	}
	for _, node := range []*world{front, other} {
		got := map[string]bool{}
		all := node.proofs(node.Delegation("*.customer.test"))
		for _, value := range all {
			got[value] = true
		}
		if len(all) != len(want) || !maps.Equal(got, want) {
			t.Errorf("proofs %q, want %v", all, want)
		}
	}
}

// A host whose DNS still points elsewhere gets its certificate once its owner has verified it and delegated the
// challenge. When its records then change, that certificate is served from the first visitor on, without another order.
// When the delegation record is removed, the certificate is dropped.
func TestCertificateAhead(t *testing.T) {
	t.Parallel()
	w := start(t, withDNS("acme.test"))
	w.site("blog")
	d, err := w.domains.Create(t.Context(), "ada", "blog", domain.NewDomain{Name: "www.customer.test"})
	if err != nil {
		t.Fatal(err)
	}
	verify := func() domain.Domain {
		t.Helper()
		d, err := w.domains.Verify(t.Context(), "ada", d.ID)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	const name = "_acme-challenge.www.customer.test"
	w.zone.Set("www.customer.test", "A 192.0.2.1")
	w.zone.Set(name, "CNAME "+w.Delegation("www.customer.test")+".")
	d = verify()
	if d.Proven() || d.Challenge == nil || d.Challenge.Status != domain.RecordValid {
		t.Fatalf("not proven: %+v", d)
	}
	w.refused("www.customer.test")
	w.zone.Set("_slipway.www.customer.test", `TXT "`+w.token()+`"`)
	d = verify()
	if d.Status != domain.Pending || !d.Proven() || d.Challenge.Required+"." != w.Delegation("www.customer.test")+"." {
		t.Fatalf("proven: %+v", d)
	}
	w.until("the certificate is there", func() bool { return w.get(d.ID).SSL == domain.SSLActive })
	leaf := w.served("www.customer.test")
	orders := w.pebble.Orders.Load()
	w.zone.Set("www.customer.test", "A 127.0.0.1")
	d = verify()
	if d.Status != domain.Active || d.SSL != domain.SSLActive {
		t.Fatalf("its visitors come: %+v", d)
	}
	if !w.served("www.customer.test").Equal(leaf) || w.pebble.Orders.Load() != orders {
		t.Errorf("%d orders, %d before its visitors came", w.pebble.Orders.Load(), orders)
	}
}

// Without the ACME name server a wildcard gets no certificate, and its owner reads why.
func TestWildcardWithoutDNS(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.site("blog")
	d := w.add("*.customer.test", "blog")
	w.until("it failed", func() bool { return w.get(d.ID).SSL == domain.SSLFailed })
	if said := w.get(d.ID).Certificate.LastError; !strings.Contains(said, "needs a DNS challenge") || w.pebble.Orders.Load() != 0 {
		t.Errorf("%q, %d orders", said, w.pebble.Orders.Load())
	}
	if w.Delegation("x.test") != "" {
		t.Error("a delegation without the name server")
	}
}

// The name server refuses questions about other zones and keeps its answers small.
func TestNameServer(t *testing.T) {
	t.Parallel()
	w := start(t, withDNS("Acme.test."), func(_ *world, c *Config) { c.DNS.Host = "panel.example.net" })
	addr := w.c.DNS.Packets.LocalAddr().String()
	ask := func(name string, kind uint16, change func(*dns.Msg)) *dns.Msg {
		t.Helper()
		q := new(dns.Msg)
		q.SetQuestion(name, kind)
		if change != nil {
			change(q)
		}
		c := &dns.Client{Timeout: time.Minute}
		a, _, err := c.ExchangeContext(t.Context(), q, addr)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	label := w.Delegation("customer.test")
	for name, tt := range map[string]struct {
		question string
		kind     uint16
		rcode    int
		answers  int
	}{
		"soa":            {"acme.test.", dns.TypeSOA, dns.RcodeSuccess, 1},
		"ns":             {"ACME.test.", dns.TypeNS, dns.RcodeSuccess, 1},
		"nothing there":  {"acme.test.", dns.TypeA, dns.RcodeSuccess, 0},
		"no order":       {label + ".", dns.TypeTXT, dns.RcodeSuccess, 0},
		"another kind":   {label + ".", dns.TypeAAAA, dns.RcodeSuccess, 0},
		"unknown":        {"x.acme.test.", dns.TypeTXT, dns.RcodeNameError, 0},
		"deeper":         {"_acme-challenge." + label + ".", dns.TypeTXT, dns.RcodeNameError, 0},
		"another zone":   {"example.com.", dns.TypeTXT, dns.RcodeRefused, 0},
		"similar zone":   {"xacme.test.", dns.TypeTXT, dns.RcodeRefused, 0},
		"the root":       {".", dns.TypeNS, dns.RcodeRefused, 0},
		"a zone's words": {"acme.test.", dns.TypeANY, dns.RcodeSuccess, 0},
	} {
		a := ask(tt.question, tt.kind, nil)
		if a.Rcode != tt.rcode || len(a.Answer) != tt.answers || a.RecursionAvailable ||
			a.Authoritative != (tt.rcode != dns.RcodeRefused) ||
			a.Len() > 200 {
			t.Errorf("%s: %v", name, a)
		}
		if tt.answers == 0 && tt.rcode != dns.RcodeRefused && (len(a.Ns) != 1 || a.Ns[0].Header().Rrtype != dns.TypeSOA) {
			t.Errorf("%s: no SOA record beside no answer", name)
		}
	}
	if ns, ok := ask("acme.test.", dns.TypeNS, nil).Answer[0].(*dns.NS); !ok || ns.Ns != "panel.example.net." {
		t.Errorf("the zone's server: %v", ns)
	}
	if a := ask("acme.test.", dns.TypeSOA, func(q *dns.Msg) { q.Opcode = dns.OpcodeNotify }); a.Rcode != dns.RcodeNotImplemented {
		t.Errorf("a notification: %v", a)
	}
	if a := ask("acme.test.", dns.TypeSOA, func(q *dns.Msg) {
		q.SetEdns0(4096, false)
	}); a.IsEdns0() == nil || a.IsEdns0().UDPSize() != 1232 {
		t.Errorf("with EDNS: %v", a)
	}
	if a := ask("acme.test.", dns.TypeTXT, func(q *dns.Msg) { q.Question[0].Qclass = dns.ClassCHAOS }); a.Rcode != dns.RcodeRefused {
		t.Errorf("another class: %v", a)
	}
}
