package domain

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/id"
	"slipway/internal/platform/wait"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/domain/dnstest"
)

const (
	ann, bob account.OwnerID = "ann", "bob"
	here                     = "A 203.0.113.7"
)

func (w *world) add(owner account.OwnerID, name string) Domain {
	w.t.Helper()
	dom, err := w.Create(context.Background(), owner, id.Site(string(owner)+"-1"), NewDomain{Name: name})
	if err != nil {
		w.t.Fatalf("%s adds %s: %v", owner, name, err)
	}
	return dom
}

func (w *world) verify(dom Domain) Domain {
	w.t.Helper()
	dom, err := w.Verify(context.Background(), dom.Owner, dom.ID)
	if err != nil {
		w.t.Fatalf("verify %s: %v", dom.Name, err)
	}
	return dom
}

// txt returns the TXT record that verifies a name for an account.
func (w *world) txt(owner account.OwnerID) string {
	w.t.Helper()
	var token string
	if err := w.db.Write(context.Background(), func(tx *db.Tx) (err error) {
		token, err = tokenOf(context.Background(), tx, owner)
		return err
	}); err != nil {
		w.t.Fatal(err)
	}
	return "TXT " + token
}

// active adds a name with its TXT record and address, and verifies that it becomes active.
func (w *world) active(owner account.OwnerID, name string) Domain {
	w.t.Helper()
	w.zone.Set(proofName(name), w.txt(owner))
	w.zone.Set(name, here)
	dom := w.verify(w.add(owner, name))
	if dom.Status != Active {
		w.t.Fatalf("%s is %s: %s", name, dom.Status, dom.Reason)
	}
	return dom
}

func (w *world) remove(dom Domain) {
	w.t.Helper()
	if err := w.db.Write(context.Background(), func(tx *db.Tx) error {
		_, err := w.DeleteTx(context.Background(), tx, dom.Owner, dom.ID)
		return err
	}); err != nil {
		w.t.Fatal(err)
	}
}

// route returns the edge's route of a host and its version.
func (w *world) route(host string) (string, int64) {
	w.t.Helper()
	var site, redirect, state string
	var version int64
	err := w.db.QueryRow(context.Background(), "SELECT site_id, redirect_to, state, version FROM custom_hosts WHERE host = $1", host).Scan(
		&site,
		&redirect,
		&state,
		&version,
	)
	if err != nil {
		return "none", 0
	}
	return strings.TrimSpace(state + " " + site + " " + redirect), version
}

func (w *world) exec(q string, args ...any) {
	w.t.Helper()
	if err := w.db.Write(context.Background(), func(tx *db.Tx) error {
		_, err := tx.Exec(context.Background(), q, args...)
		return err
	}); err != nil {
		w.t.Fatal(err)
	}
}

func has(problems []Problem, code string) bool {
	return slices.ContainsFunc(problems, func(p Problem) bool { return p.Code == code && p.Message != "" })
}

// A domain shows what is missing, becomes verified and served once that is fixed, and can be removed.
func TestAWayToActive(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil, nil)
	dom := w.add(ann, " Shop.Example.COM ")
	if dom.Name != "shop.example.com" || dom.Status != Pending || dom.SSL != SSLPending || !dom.Primary || dom.Proven() {
		t.Fatalf("got %+v", dom)
	}
	token := strings.TrimPrefix(w.txt(ann), "TXT ")
	if v := dom.Verification; len(v) != 2 || v[0].Name != "_slipway.shop.example.com" || v[0].Required != token ||
		v[1].Type != "CNAME" || v[1].Required != "ann-1.sites.test" || v[0].Status != RecordPending {
		t.Fatalf("verification: %+v", v)
	}
	if len(dom.DNS) != 1 || dom.DNS[0].Required != "ann-1.sites.test" {
		t.Fatalf("dns: %+v", dom.DNS)
	}
	wake, stop := w.db.Listen("live")
	defer stop()

	w.zone.Set("_slipway.shop.example.com", `TXT "google-site-verification=x"`, `TXT "slipway-notours"`)
	w.zone.Set("shop.example.com", "A 198.51.100.9")
	dom = w.verify(dom)
	if dom.Status != Pending || dom.Verification[0].Status != RecordInvalid || len(dom.Verification[0].Current) != 2 ||
		!strings.Contains(dom.Reason, "does not hold") || !has(dom.Problems, "wrong_target") || dom.CheckedAt == 0 || dom.NextCheckAt == 0 {
		t.Fatalf("a wrong record: %+v", dom)
	}
	w.zone.Set("_slipway.shop.example.com", "TXT "+token[:5]+" "+token[5:]) // split into two strings (RFC 1035 §3.3.14)
	dom = w.verify(dom)
	if dom.Status != Pending || !dom.Proven() || dom.Verification[0].Status != RecordValid ||
		dom.DNS[0].Type != "A" || dom.DNS[0].Status != RecordInvalid || !slices.Equal(dom.DNS[0].Current, []string{"198.51.100.9"}) ||
		dom.DNS[0].Required != "203.0.113.7" || !strings.Contains(dom.Reason, "198.51.100.9") {
		t.Fatalf("proven, pointing elsewhere: %+v", dom)
	}
	if r, _ := w.route("shop.example.com"); r != "none" {
		t.Fatalf("routed already: %s", r)
	}
	w.zone.Set("shop.example.com", here)
	dom = w.verify(dom)
	if dom.Status != Active || dom.Reason != "" || len(dom.Problems) != 0 || dom.DNS[0].Status != RecordValid {
		t.Fatalf("got %+v", dom)
	}
	r, v1 := w.route("shop.example.com")
	if r != "active ann-1" || v1 == 0 {
		t.Fatalf("route: %s %d", r, v1)
	}
	select {
	case <-wake:
	default:
		t.Error("the edge was not woken")
	}
	if next := dom.NextCheckAt.Sub(db.Now()); next < 20*time.Hour || next > 28*time.Hour {
		t.Errorf("the next check is in %s", next)
	}
	w.remove(dom)
	if r, v2 := w.route("shop.example.com"); r != "deleted ann-1" || v2 <= v1 {
		t.Fatalf("after removal: %s %d", r, v2)
	}
	if got := w.events.names("shop.example.com"); !slices.Equal(got, []string{"ann domain.added", "ann domain.verified"}) {
		t.Errorf("events: %v", got)
	}
	if _, err := w.Get(t.Context(), w.db, ann, dom.ID); !fault.Is(err, fault.NotFound) {
		t.Errorf("after removal: %v", err)
	}
}

// A CNAME to the site itself both verifies and routes a name. A CNAME to another site doesn't verify it.
func TestAliasProves(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil, nil)
	w.zone.Set("www.example.com", "CNAME ann-1.sites.test.")
	if dom := w.verify(w.add(ann, "www.example.com")); dom.Status != Active || dom.Verification[1].Status != RecordValid {
		t.Errorf("got %+v", dom)
	}
	for name, record := range map[string]string{
		"a.example.org": "CNAME ann-2.sites.test.",           // another site of ann's
		"b.example.org": "CNAME bob-1.sites.test.",           // another owner's site
		"c.example.org": "CNAME hop.example.org.",            // ann's site behind an alias of another zone
		"d.example.org": "CNAME ann-1.sites.test.evil.test.", // a similar name
		"e.example.org": here,                                // an address doesn't verify ownership
	} {
		w.zone.Set("hop.example.org", "CNAME ann-1.sites.test.")
		w.zone.Set(name, record)
		if dom := w.verify(w.add(ann, name)); dom.Status != Pending || dom.Proven() {
			t.Errorf("%s %s: %+v", name, record, dom)
		}
		if r, _ := w.route(name); r != "none" {
			t.Errorf("%s is routed: %s", name, r)
		}
	}
}

// A TXT record found through an alias doesn't verify the name.
func TestTokenBehindAnAliasProvesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil, nil)
	w.zone.Set("evil.test", w.txt(bob), here)
	w.zone.Set("*.victim.com", "CNAME evil.test.")
	if dom := w.verify(w.add(bob, "shop.victim.com")); dom.Proven() || dom.Status != Pending {
		t.Errorf("got %+v", dom)
	}
}

// Answers of the zone's own servers count more than a resolver's cache.
func TestZonesOwnServersKnowFirst(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil, nil)
	own := dnstest.New(t)
	own.Authoritative(true)
	dom := w.add(ann, "example.com")
	own.Set("_slipway.example.com", w.txt(ann))
	own.Set("example.com", here, "NS ns.example.com.")
	w.zone.Set("example.com", "A 198.51.100.9", "NS ns.example.com.")
	w.zone.Set("ns.example.com", "A 127.0.0.1")
	w.c.NSPort = mustPort(t, own.Addr)
	if dom = w.verify(dom); dom.Status != Active {
		t.Fatalf("got %s: %s", dom.Status, dom.Reason)
	}
	// Servers at addresses that may not be contacted are skipped, and the resolver's answer is used.
	before := own.Questions("_slipway.example.com TXT")
	guarded := newWorld(t, func(c *Config) { c.Allow = nil; c.NSPort = w.c.NSPort }, nil)
	guarded.zone.Set("example.com", here, "NS ns.example.com.")
	guarded.zone.Set("ns.example.com", "A 127.0.0.1")
	guarded.zone.Set("_slipway.example.com", guarded.txt(ann))
	if dom := guarded.verify(guarded.add(ann, "example.com")); dom.Status != Active || own.Questions("_slipway.example.com TXT") != before {
		t.Errorf("got %s, a private name server was asked %d times", dom.Status, own.Questions("_slipway.example.com TXT")-before)
	}
	// A lame server is skipped.
	own.Authoritative(false)
	w.zone.Set("example.com", here, "NS ns.example.com.")
	w.zone.Set("_slipway.example.com", w.txt(ann))
	if dom = w.verify(dom); dom.Status != Active || dom.Verification[0].Status != RecordValid {
		t.Errorf("got %+v", dom)
	}
}

func TestTwin(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"example.com":          "www.example.com",
		"www.example.com":      "example.com",
		"example.co.uk":        "www.example.co.uk",
		"www.example.co.uk":    "example.co.uk",
		"blog.example.com":     "",
		"www.blog.example.com": "",
		"*.example.com":        "",
	} {
		if got := Twin(name); got != want {
			t.Errorf("Twin(%q) = %q, want %q", name, got, want)
		}
	}
}

// sellersHost makes a host one of a seller's, which the control plane serves.
func (w *world) sellersHost(host string) {
	w.t.Helper()
	if err := w.c.DB.Admin(w.t.Context(), `
		INSERT INTO billing_sellers (id, name, series, sender, reply_to, logo, logo_digest, created_at, updated_at, host)
		VALUES ('harbor', 'Harbor', 'HB', '', '', '', '', 0, 0, '`+host+`')`); err != nil {
		w.t.Fatal(err)
	}
}

func TestRefusedNames(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *Config) { c.Reserved = []string{"panel.host.test"} }, nil)
	for _, name := range []string{
		"", "com", "co.uk", "*.co.uk", "github.io", "*.com", "localhost", "x.localhost", "x.local", "printer",
		"192.0.2.1", "sites.test", "bob-1.sites.test", "deep.bob-1.sites.test", "*.sites.test", "*.test",
		"panel.host.test", "PANEL.host.test.", "*.host.test", "a.*.com", "**.x.com", "_dmarc.x.com", "x..com",
		"http://x.com", "x.com/", "x.com:80", "\x00.com",
		strings.Repeat("a.", 130) + "com",
		strings.Repeat("a.", 16) + "com",
		"1.2.3",
		"x.onion",
		"1.0.0.127.in-addr.arpa",
	} {
		_, err := w.Create(t.Context(), ann, "ann-1", NewDomain{Name: name})
		if !fault.Is(err, fault.Invalid) {
			t.Errorf("%q: got %v", name, err)
		}
	}
	w.sellersHost("panel.harbor.test")
	for _, name := range []string{"panel.harbor.test", "Panel.Harbor.test.", "*.harbor.test"} {
		if _, err := w.Create(t.Context(), ann, "ann-1", NewDomain{Name: name}); !fault.Is(err, fault.Invalid) {
			t.Errorf("%q, which a seller has: %v", name, err)
		}
	}
	for _, name := range []string{
		"harbor.test", "x.com", "*.x.com", "shop.customer.test", "host.test", "below.panel.host.test", "bücher.de", "x.github.io",
		"notsites.test",
	} {
		if _, err := w.Create(t.Context(), ann, "ann-1", NewDomain{Name: name}); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	if _, err := w.Create(t.Context(), ann, "ann-1", NewDomain{Name: "x.com"}); !fault.Is(err, fault.Conflict) {
		t.Errorf("a second time: %v", err)
	}
	if _, err := w.Create(t.Context(), ann, "bob-1", NewDomain{Name: "y.com"}); !fault.Is(err, fault.NotFound) {
		t.Errorf("for another's site: %v", err)
	}
}

func TestAnothersDomainIsNotThere(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil, nil)
	dom := w.active(ann, "example.com")
	ctx := t.Context()
	_, err1 := w.Get(ctx, w.db, bob, dom.ID)
	_, err2 := w.Verify(ctx, bob, dom.ID)
	var err3, err4 error
	w.db.Write(ctx, func(tx *db.Tx) error { _, err3 = w.UpdateTx(ctx, tx, bob, dom.ID, Update{}); return nil })
	w.db.Write(ctx, func(tx *db.Tx) error { _, err4 = w.DeleteTx(ctx, tx, bob, dom.ID); return nil })
	_, err5 := w.ForSite(ctx, bob, "ann-1")
	for i, err := range []error{err1, err2, err3, err4, err5} {
		if !fault.Is(err, fault.NotFound) {
			t.Errorf("%d: got %v", i, err)
		}
	}
	if all, err := w.ForSite(ctx, ann, "ann-1"); err != nil || len(all) != 1 {
		t.Errorf("got %v %v", all, err)
	}
}

func TestRedirectAndPrimary(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil, nil)
	ctx := t.Context()
	apex := w.active(ann, "example.com")
	update := func(dom Domain, u Update) (Domain, error) {
		var out Domain
		err := w.db.Write(ctx, func(tx *db.Tx) (err error) { out, err = w.UpdateTx(ctx, tx, dom.Owner, dom.ID, u); return err })
		return out, err
	}
	w.zone.Set("www.example.com", "CNAME ann-1.sites.test.")
	www, err := w.Create(ctx, ann, "ann-1", NewDomain{Name: "www.example.com", RedirectTo: "Example.com"})
	if err != nil || www.RedirectTo != "example.com" || www.Primary {
		t.Fatalf("got %+v %v", www, err)
	}
	www = w.verify(www)
	r, v1 := w.route("www.example.com")
	if r != "active ann-1 example.com" {
		t.Fatalf("route: %s", r)
	}
	yes, none, to := true, "", func(s string) *string { return &s }
	for name, u := range map[string]struct {
		dom Domain
		u   Update
	}{
		"to itself":         {www, Update{RedirectTo: to("www.example.com")}},
		"in a circle":       {apex, Update{RedirectTo: to("www.example.com")}},
		"into a chain":      {apex, Update{RedirectTo: to("other.com")}},
		"to no name":        {www, Update{RedirectTo: to("https://example.com/")}},
		"a primary one":     {www, Update{Primary: &yes}},
		"both at once":      {apex, Update{RedirectTo: to("x.com"), Primary: &yes}},
		"to a wildcard":     {www, Update{RedirectTo: to("*.example.com")}},
		"to a single label": {www, Update{RedirectTo: to("intranet")}},
	} {
		if _, err := update(u.dom, u.u); !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	www, err = update(www, Update{RedirectTo: &none, Primary: &yes})
	if err != nil || !www.Primary || www.RedirectTo != "" {
		t.Fatalf("got %+v %v", www, err)
	}
	if r, v2 := w.route("www.example.com"); r != "active ann-1" || v2 <= v1 {
		t.Errorf("route: %s %d", r, v2)
	}
	if apex, _ = w.Get(ctx, w.db, ann, apex.ID); apex.Primary {
		t.Error("two names are primary")
	}
	if apex, err = update(apex, Update{RedirectTo: to("www.example.com")}); err != nil || apex.RedirectTo != "www.example.com" {
		t.Errorf("got %+v %v", apex, err)
	}
	if _, err := w.Create(ctx, ann, "ann-1", NewDomain{Name: "*.star.com", RedirectTo: "www.star.com"}); !fault.Is(err, fault.Invalid) {
		t.Errorf("a wildcard into itself: %v", err)
	}
}

func TestUnprovenClaimsAreBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil, nil)
	err := w.db.Write(t.Context(), func(tx *db.Tx) error {
		for i := range unprovenMax {
			if _, err := w.CreateTx(t.Context(), tx, ann, "ann-1", NewDomain{Name: fmt.Sprintf("n%d.com", i)}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Create(t.Context(), ann, "ann-1", NewDomain{Name: "more.com"}); !fault.Is(err, fault.Conflict) {
		t.Errorf("got %v", err)
	}
}

// The domain of a deleted site can be added to another site at once, even if the deletion hasn't finished.
func TestDomainOfADeletedSite(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil, nil)
	w.insert(ann, "deleted", "a.com", Active)
	if dom := w.add(ann, "a.com"); dom.SiteID != "ann-1" || dom.Status != Pending {
		t.Errorf("got %+v", dom)
	}
	if all, _ := w.List(t.Context(), ann); len(all) != 1 {
		t.Errorf("there are %d", len(all))
	}
	if _, err := w.Create(t.Context(), ann, "ann-1", NewDomain{Name: "a.com"}); !fault.Is(err, fault.Conflict) {
		t.Errorf("once more: %v", err)
	}
}

func TestSiteGoesWithItsDomains(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil, nil)
	w.active(ann, "a.com")
	w.add(ann, "b.com")
	keep := w.active(bob, "c.com")
	if err := w.db.Write(t.Context(), func(tx *db.Tx) error { return w.ForgetSiteTx(t.Context(), tx, "ann-1") }); err != nil {
		t.Fatal(err)
	}
	if all, _ := w.List(t.Context(), ann); len(all) != 0 {
		t.Errorf("left: %+v", all)
	}
	if r, _ := w.route("a.com"); r != "deleted ann-1" {
		t.Errorf("route: %s", r)
	}
	if r, _ := w.route(keep.Name); r != "active bob-1" {
		t.Errorf("route: %s", r)
	}
}

func TestCertificateIsNoted(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil, nil)
	dom := w.active(ann, "a.com")
	w.add(bob, "b.com")
	note := func(host string, s SSL, c Certificate) (found bool) {
		t.Helper()
		if err := w.db.Write(t.Context(), func(tx *db.Tx) (err error) {
			_, found, err = w.CertificateTx(t.Context(), tx, host, s, c)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		return found
	}
	c := Certificate{Issuer: "Test CA", NotBefore: db.Now(), ExpiresAt: db.Now().Add(time.Hour)}
	if !note("a.com", SSLActive, c) || note("b.com", SSLActive, c) || note("c.com", SSLActive, c) {
		t.Error("noted for the wrong ones")
	}
	if dom, _ = w.Get(t.Context(), w.db, ann, dom.ID); dom.SSL != SSLActive || dom.Certificate != c {
		t.Errorf("got %+v", dom)
	}
	c.ExpiresAt = db.Now().Add(-time.Hour)
	note("a.com", SSLActive, c)
	if dom, _ = w.Get(t.Context(), w.db, ann, dom.ID); dom.SSL != SSLExpired {
		t.Errorf("got %s", dom.SSL)
	}
}

// Run repeats checks until the records exist. Two nodes share the work, and each due check runs once.
func TestRunChecksByItself(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil, nil)
	other := New(w.c)
	other.c.Registry, w.c.Registry = "local", "local"
	var names []string
	for i := range 12 {
		name := fmt.Sprintf("n%d.example.com", i)
		w.zone.Set(name, "CNAME ann-1.sites.test.")
		w.add(ann, name)
		names = append(names, name)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { w.Run(ctx) })
	wg.Go(func() { other.Run(ctx) })
	defer wg.Wait()
	defer cancel()
	until(t, func() bool {
		all, err := w.List(ctx, ann)
		return err == nil && !slices.ContainsFunc(all, func(d Domain) bool { return d.Status != Active })
	})
	for _, name := range names {
		if n := w.zone.Questions("_slipway." + name + " TXT"); n != 1 {
			t.Errorf("%s was checked %d times", name, n)
		}
	}
	// Running nodes notice a new domain, and Verify doesn't wait for them.
	late := w.add(bob, "late.com")
	until(t, func() bool { d, err := w.Get(ctx, w.db, bob, late.ID); return err == nil && d.CheckedAt != 0 })
	w.zone.Set("late.com", here)
	w.zone.Set("_slipway.late.com", w.txt(bob))
	if d, err := w.Verify(ctx, bob, late.ID); err != nil || d.Status != Active {
		t.Fatalf("%+v, %v", d, err)
	}
}

func until(t *testing.T, done func() bool) {
	t.Helper()
	wait.Until(t, "it comes true", done)
}

// The result of a check that was overtaken by a newer check or by deletion is dropped.
func TestOvertakenLookChangesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil, nil)
	dom := w.add(ann, "example.com")
	token := strings.TrimPrefix(w.txt(ann), "TXT ")
	good := observed{tokens: []string{token}, addrs: w.c.Addrs, ours: w.c.Addrs}
	w.exec("UPDATE domains SET checks = 5 WHERE id = $1", dom.ID)
	settle := func(checks int64) {
		t.Helper()
		if err := w.db.Write(t.Context(), func(tx *db.Tx) error { return w.settle(t.Context(), tx, dom.ID, checks, good) }); err != nil {
			t.Fatal(err)
		}
	}
	settle(4)
	if now, _ := w.Get(t.Context(), w.db, ann, dom.ID); now.Status != Pending || now.CheckedAt != 0 {
		t.Errorf("got %+v", now)
	}
	settle(5)
	if now, _ := w.Get(t.Context(), w.db, ann, dom.ID); now.Status != Active {
		t.Errorf("got %+v", now)
	}
	w.remove(dom)
	settle(5)
	if r, _ := w.route("example.com"); r != "deleted ann-1" {
		t.Errorf("route: %s", r)
	}
}

// An unverified domain eventually fails, stays visible for a while and is deleted. A domain that points elsewhere is
// kept for three days. Unanswered queries never remove a domain.
func TestChecksGiveUp(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil, nil)
	long := db.Now().Add(-giveUp)
	idle := w.add(ann, "idle.com")
	w.exec("UPDATE domains SET pending_at = $2, tries = 50 WHERE id = $1", idle.ID, long)
	if w.verify(idle).Status != Failed {
		t.Fatal("a claim without proof is pending for ever")
	}
	if err := w.tidy(t.Context()); err != nil {
		t.Fatal(err)
	}
	idle, err := w.Get(t.Context(), w.db, ann, idle.ID)
	if err != nil || idle.NextCheckAt != 0 || !strings.HasPrefix(idle.Reason, "Verification failed. ") {
		t.Fatalf("got %+v %v", idle, err)
	}
	if again := w.verify(idle); again.Status != Pending || again.NextCheckAt.Sub(db.Now()) > time.Minute {
		t.Errorf("asked for again: %+v", again)
	}
	w.exec("UPDATE domains SET status = 'failed', updated_at = $2 WHERE id = $1", idle.ID, db.Now().Add(-forget-time.Hour))
	if err := w.tidy(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Get(t.Context(), w.db, ann, idle.ID); !fault.Is(err, fault.NotFound) {
		t.Errorf("still there: %v", err)
	}

	dom := w.active(ann, "moved.com")
	w.zone.Fail("moved.com", dns.RcodeServerFailure)
	w.exec("UPDATE domains SET astray_at = $2 WHERE id = $1", dom.ID, db.Now().Add(-misdirectedMax))
	if dom = w.verify(dom); dom.Status != Active || !has(dom.Problems, "no_answer") {
		t.Fatalf("silence took the domain away: %+v", dom)
	}
	w.zone.Restore("moved.com")
	if dom = w.verify(dom); dom.Status != Active || dom.misdirectedAt != 0 {
		t.Fatalf("got %+v", dom)
	}
	w.zone.Set("moved.com", "A 198.51.100.9")
	w.zone.Set("_slipway.moved.com")
	if dom = w.verify(dom); dom.Status != Active || dom.misdirectedAt == 0 || !has(dom.Problems, "wrong_target") {
		t.Fatalf("got %+v", dom)
	}
	w.exec("UPDATE domains SET astray_at = $2 WHERE id = $1", dom.ID, db.Now().Add(-misdirectedMax))
	if dom = w.verify(dom); dom.Status != Failed || dom.NextCheckAt == 0 {
		t.Fatalf("got %+v", dom)
	}
	if r, _ := w.route("moved.com"); r != "deleted ann-1" {
		t.Errorf("route: %s", r)
	}
	if got := w.events.names("moved.com"); !slices.Equal(got, []string{"ann domain.added", "ann domain.verified", "ann domain.failed"}) {
		t.Errorf("events: %v", got)
	}
	w.zone.Set("moved.com", here)
	if dom = w.verify(dom); dom.Status != Active {
		t.Errorf("back again: %+v", dom)
	}
}

// Leases use the database's clock: a node whose clock is an hour ahead or behind can't check a domain that another node
// is checking.
func TestLeasesByTheDatabasesClock(t *testing.T) {
	t.Parallel()
	for _, ahead := range []time.Duration{-time.Hour, time.Hour} { // offset of the database's clock from this machine's
		w := newWorld(t, nil, nil)
		w.db.Shift(ahead)
		dom := w.add("ada", "clock.test")
		if got, found, err := w.due(t.Context()); err != nil || !found || got.ID != dom.ID {
			t.Fatalf("the due check: %+v %v %v", got, found, err)
		}
		if _, found, err := w.due(t.Context()); err != nil || found {
			t.Errorf("it is taken twice: %v", err)
		}
		var until db.Time
		if err := w.db.QueryRow(t.Context(), `SELECT lease_until FROM domains`).Scan(&until); err != nil {
			t.Fatal(err)
		}
		if left := until.Sub(w.db.Now()); left <= 0 || left > 2*lease {
			t.Errorf("it is leased for %s", left)
		}
	}
}
