package domain

import (
	"context"
	"database/sql"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"slipway/internal/platform/db"
)

// A wildcard domain names the record that its certificate needs, and the certificate is ordered as soon as the record
// exists.
func TestWildcardNeedsItsChallenge(t *testing.T) {
	t.Parallel()
	var retried []string
	w := newWorld(t, func(c *Config) {
		c.Certificates = authority{zone: ".Acme.test", retry: func(tx *db.Tx, name string) {
			tx.AfterCommit(func() { retried = append(retried, name) })
		}}
	}, nil)
	dom := w.add(ann, "*.example.com")
	last := func() Record { return dom.DNS[len(dom.DNS)-1] }
	if r := last(); r.Type != "CNAME" || r.Name != "_acme-challenge.example.com" || r.Required != "example.com.acme.test" ||
		r.Status != RecordPending ||
		!has(dom.Problems, "challenge") {
		t.Errorf("at first: %+v", dom)
	}
	w.zone.Set("_slipway.example.com", w.txt(ann))
	w.zone.Set("*.example.com", here)
	w.zone.Set("_acme-challenge.example.com", "CNAME other.test.")
	if dom = w.verify(dom); dom.Status != Active || last().Status != RecordInvalid ||
		!slices.Equal(last().Current, []string{"other.test"}) ||
		!has(dom.Problems, "challenge") {
		t.Errorf("with an alias of something else: %+v", dom)
	}
	if in := dom.NextCheckAt.Sub(db.Now()); in > backoff[1] {
		t.Errorf("checked again in %v", in)
	}
	retried = nil
	w.zone.Set("other.test", "CNAME example.com.acme.test.") // through an alias at another name
	if dom = w.verify(dom); last().Status != RecordValid || len(dom.Problems) != 0 {
		t.Errorf("with the record: %+v", dom)
	}
	if in := dom.NextCheckAt.Sub(db.Now()); in < everyDay/2 || len(retried) == 0 || retried[0] != "*.example.com" {
		t.Errorf("checked again in %v, ordered for %v", in, retried)
	}
	// Alias loops and long alias chains end.
	w.zone.Set("other.test", "CNAME _acme-challenge.example.com.")
	dom = w.verify(dom)
	if last().Status != RecordInvalid {
		t.Errorf("a loop: %+v", last())
	}
	if plain := w.add(ann, "example.com"); len(plain.DNS) != 1 || len(plain.Problems) != 0 {
		t.Errorf("a name that needs none: %+v", plain)
	}
}

// A verified name with a delegated challenge is served before its DNS points here. Unanswered queries and elapsed time
// don't change that; a changed delegation or owner does.
func TestServedAhead(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *Config) { c.Certificates = authority{zone: ".acme.test"} }, nil)
	served := func() string {
		t.Helper()
		var site string
		err := w.db.QueryRow(t.Context(), "SELECT site_id FROM custom_hosts WHERE host = 'www.example.com' AND state = 'active'").Scan(&site)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			t.Fatal(err)
		}
		return site
	}
	const challenge = "_acme-challenge.www.example.com"
	w.zone.Set("www.example.com", "A 192.0.2.1")
	w.zone.Set(challenge, "CNAME www.example.com.acme.test.")
	dom := w.verify(w.add(ann, "www.example.com"))
	if dom.Challenge == nil || dom.Challenge.Status != RecordValid || served() != "" {
		t.Errorf("not proven: %+v, served by %q", dom.Challenge, served())
	}
	w.zone.Set("_slipway.www.example.com", w.txt(ann))
	if dom = w.verify(dom); dom.Status != Pending || served() != string(dom.SiteID) {
		t.Errorf("proven: %s, served by %q", dom.Status, served())
	}
	resolver := w.c.Resolver
	w.c.Resolver = deaf{resolver, dns.TypeCNAME}
	dom = w.verify(dom)
	if served() == "" {
		t.Error("not served while name servers are silent")
	}
	w.c.Resolver = resolver
	if err := w.db.Admin(t.Context(), "UPDATE domains SET pending_at = 1"); err != nil {
		t.Fatal(err)
	}
	if dom = w.verify(dom); dom.Status != Pending || served() == "" {
		t.Errorf("long after: %s, served by %q", dom.Status, served())
	}
	w.zone.Set(challenge, "CNAME other.test.")
	if dom = w.verify(dom); dom.Challenge.Status != RecordInvalid || served() != "" {
		t.Errorf("another challenge: %+v, served by %q", dom.Challenge, served())
	}
}

// On an installation that can't issue wildcard certificates, owners of wildcards read that at once.
func TestWildcardWithoutCertificates(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *Config) { c.Certificates = authority{} }, nil)
	if dom := w.add(ann, "*.example.com"); !has(dom.Problems, "no_wildcards") || len(dom.DNS) != 1 {
		t.Errorf("got %+v", dom)
	}
	if dom := w.add(ann, "www.example.com"); len(dom.Problems) != 0 {
		t.Errorf("got %+v", dom.Problems)
	}
}

// A name server that ignores one record type delays nothing, and neither does one that doesn't support wildcards.
func TestHalfDeafServers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil, nil)
	w.c.Resolver = deaf{w.c.Resolver, dns.TypeAAAA}
	if dom := w.active(ann, "example.com"); !has(dom.Problems, "no_answer") {
		t.Errorf("got %+v", dom)
	}
	w.c.Resolver = deaf{w.c.Resolver, dns.TypeA}
	if dom := w.verify(w.add(ann, "nothing.example.com")); !strings.Contains(dom.DNS[0].Reason, "are not responding") {
		t.Errorf("got %+v", dom.DNS)
	}
	w = newWorld(t, nil, nil)
	w.zone.Set("_slipway.example.com", w.txt(ann))
	w.zone.Set("slipway-check.example.com", here) // as the zone's wildcard would answer
	if dom := w.verify(w.add(ann, "*.example.com")); dom.Status != Active {
		t.Errorf("got %+v", dom)
	}
}

// deaf is a resolver that doesn't answer for one record type.
type deaf struct {
	Resolver
	kind uint16
}

func (d deaf) Ask(ctx context.Context, server netip.AddrPort, name string, kind uint16) (*dns.Msg, error) {
	if kind == d.kind {
		return nil, errors.New("SERVFAIL")
	}
	return d.Resolver.Ask(ctx, server, name, kind)
}

// Only records of the queried name and of its alias targets count.
func TestGatherFollowsTheName(t *testing.T) {
	t.Parallel()
	m := new(dns.Msg)
	for _, text := range []string{
		"other.test. A 192.0.2.1", "b.test. A 192.0.2.2", "a.test. CNAME B.test.", "c.test. CNAME d.test.",
		"A.test. AAAA 2001:db8::1",
	} {
		rr, err := dns.NewRR(text)
		if err != nil {
			t.Fatal(err)
		}
		m.Answer = append(m.Answer, rr)
	}
	found, aliases := gather(m, "a.test")
	if !slices.Equal(aliases, []string{"b.test"}) || !slices.Equal(found, []netip.Addr{
		netip.MustParseAddr("2001:db8::1"),
		netip.MustParseAddr("192.0.2.2"),
	}) {
		t.Errorf("got %v over %v", found, aliases)
	}
	loop := new(dns.Msg)
	for _, text := range []string{"a.test. CNAME b.test.", "b.test. CNAME a.test.", "x.test. CNAME x.test."} {
		rr, _ := dns.NewRR(text)
		loop.Answer = append(loop.Answer, rr)
	}
	if found, aliases := gather(loop, "a.test"); len(found) != 0 || len(aliases) > aliasesMax {
		t.Errorf("got %v over %v", found, aliases)
	}
	if _, aliases := gather(loop, "x.test"); len(aliases) != 0 {
		t.Errorf("an alias of itself: %v", aliases)
	}
}

// CAA records block issuance even if an authority's CAA name is unknown.
func TestCAAOfUnnamedAuthorities(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		local bool
		s     observed
		want  string
	}{
		"none":           {false, observed{}, ""},
		"others":         {false, observed{caaName: "example.com", caa: []string{"other.example"}}, "permit other.example alone"},
		"nobody":         {false, observed{caaName: "example.com", caa: []string{""}}, "permit no authority"},
		"silence":        {false, observed{caaErr: errors.New("x")}, "not responding to CAA"},
		"others, local":  {true, observed{caaName: "example.com", caa: []string{"other.example"}}, "this installation's local authority"},
		"nobody, local":  {true, observed{caaName: "example.com", caa: []string{""}}, "permit nobody"},
		"silence, local": {true, observed{caaErr: errors.New("x")}, ""},
	} {
		j := diagnose(claim{name: "example.com", proven: true, public: !tt.local}, tt.s)
		if tt.want == "" && has(
			j.Problems,
			"caa",
		) || tt.want != "" && (!has(j.Problems, "caa") || !strings.Contains(j.Problems[0].Message, tt.want)) {
			t.Errorf("%s: %+v", name, j.Problems)
		}
	}
}

// The required value of a record is a single address that can be copied: the operator's address if set, otherwise the
// one that the edge listens on, otherwise a public address of the sites' domain.
func TestRequiredAddress(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *Config) { c.Addrs = nil }, nil)
	w.zone.Set("*.sites.test", "A 10.0.0.1", "A 127.0.0.1", "A 198.51.100.200", "A 8.8.8.8")
	dom := w.add(ann, "example.com")
	if r := dom.DNS[0]; r.Type != "A" || r.Required != "8.8.8.8" {
		t.Errorf("at first: %+v", r)
	}
	if dom = w.verify(dom); dom.DNS[0].Required != "8.8.8.8" {
		t.Errorf("checked: %+v", dom.DNS[0])
	}
	w = newWorld(t, func(c *Config) {
		c.Addrs, c.Listens = nil, []netip.Addr{netip.MustParseAddr("127.0.0.7")}
	}, nil)
	if dom := w.add(ann, "example.com"); dom.DNS[0].Required != "127.0.0.7" {
		t.Errorf("where the edge listens: %+v", dom.DNS[0])
	}
	w = newWorld(t, func(c *Config) { c.Addrs = addrs("10.1.1.1", "2001:db8::1") }, nil)
	w.zone.Set("*.sites.test", "A 8.8.8.8")
	if dom := w.add(ann, "example.com"); dom.DNS[0].Required != "10.1.1.1" {
		t.Errorf("what the operator says: %+v", dom.DNS[0])
	}
}
