package domains

import (
	"strings"
	"testing"
)

// A user can't get another user's domain by adding it.
func TestTakeovers(t *testing.T) {
	t.Parallel()
	h := newHarness(t, options{flags: []string{"--base-url", "https://panel.example.net"}})
	bob := h.user("bob@example.test")
	h.hear(h.ann, "/ann")
	h.notify(h.ann, "discord", "/discord", "domain.failed")
	hers, his := h.live(h.ann, "hers", "hers"), h.live(bob, "his", "his")
	proof := func(key string, s aSite, scratch string) string { return h.add(key, s, scratch).Verification[0].Value }
	annToken, bobToken := proof(h.ann, hers, "scratch.ann.test"), proof(bob, his, "scratch.bob.test")
	if annToken == bobToken {
		t.Fatal("both users have the same token")
	}
	// waits fails the test unless Bob's domain stays pending.
	waits := func(what string, d aDomain) aDomain {
		t.Helper()
		if d = h.verify(bob, d); d.Status != "pending" || d.SSLStatus != "pending" || d.reason() == "" {
			t.Errorf("%s: %s, %q", what, d.Status, d.reason())
		}
		return d
	}

	// A domain that no account has added, but whose DNS points here: by an address record or a CNAME to Ann's site.
	h.zone.Set("new.test", "A 127.0.0.1")
	waits("an address that leads here", h.add(bob, his, "new.test"))
	h.zone.Set("www.new.test", "CNAME "+hers.host()+".")
	waits("an alias to her site", h.add(bob, his, "www.new.test"))
	if !h.strange("new.test") || !h.strange("www.new.test") {
		t.Error("a host name without proof is served")
	}
	// Bob's earlier pending domain doesn't keep Ann from adding hers.
	if d := h.verify(h.ann, h.add(h.ann, hers, "www.new.test")); d.Status != "active" {
		t.Errorf("the owner of an alias: %s, %q", d.Status, d.reason())
	}
	h.shows("www.new.test", "hers")
	h.zone.Set("www.new.test", "CNAME "+his.host()+".")
	if d := waits("a claim that waited", h.list(bob, "www.new.test")); !strings.Contains(d.reason(), "Another account owns") {
		t.Errorf("said %q", d.reason())
	}
	h.shows("www.new.test", "hers")

	// An active domain stays its owner's, whatever its DNS records say later.
	mine := h.active(h.ann, hers, "www.held.test")
	h.shows("www.held.test", "hers")
	for _, to := range []string{"A 127.0.0.1", "CNAME " + his.host() + "."} {
		h.zone.Set("www.held.test", to)
		if got := h.refused(bob, his, "www.held.test"); got != "409 domain_claimed" {
			t.Errorf("%s: %s", to, got)
		}
	}
	for _, spelled := range []string{"WWW.HELD.TEST", "www.held.test.", " www.held.test ", "ｗｗｗ.held.test", "www。held。test"} {
		if got := h.refused(bob, his, spelled); got != "409 domain_claimed" {
			t.Errorf("%q: %s", spelled, got)
		}
		if got := h.refused(h.ann, hers, spelled); got != "409 domain_exists" {
			t.Errorf("%q by its owner: %s", spelled, got)
		}
	}
	// Parent, sibling and child names of an active domain need their own verification.
	for _, name := range []string{"held.test", "shop.held.test", "a.www.held.test"} {
		h.zone.Set(name, "A 127.0.0.1")
		waits(name, h.add(bob, his, name))
	}
	h.zone.Set("_slipway.shop.held.test", `TXT "`+bobToken+`"`) // verifies another name
	h.zone.Set("_slipway.held.test", `TXT "`+annToken+`"`)      // another user's token
	waits("another's token", h.list(bob, "held.test"))
	wild := h.add(bob, his, "*.held.test")
	h.zone.Set("*.held.test", "CNAME "+his.host()+".")
	waits("a wildcard over a sibling", wild)
	// With the zone's TXT record, Bob gets a wildcard for the rest of the zone, but not the name that Ann holds.
	h.zone.Set("_slipway.held.test", `TXT "`+bobToken+`"`)
	if d := h.verify(bob, wild); d.Status != "active" {
		t.Errorf("a wildcard with proof: %s, %q", d.Status, d.reason())
	}
	h.shows("any.held.test", "his")
	h.shows("www.held.test", "hers")
	h.zone.Set("below.held.test", "CNAME "+hers.host()+".")
	if d := h.verify(h.ann, h.add(h.ann, hers, "below.held.test")); d.Status != "pending" {
		t.Errorf("an alias below another's wildcard: %s", d.Status)
	}

	// Other users' domains and sites can't be read or changed.
	for _, r := range [][2]string{{"GET", ""}, {"PATCH", ""}, {"DELETE", ""}, {"POST", "/verify"}} {
		var body any
		if r[0] == "PATCH" {
			body = map[string]any{"redirectTo": "evil.test"}
		}
		if a := h.do(bob, r[0], "/domains/"+mine.ID+r[1], body); a.Status != 404 {
			t.Errorf("%s of another's: %d %s", r[0], a.Status, a.Body)
		}
	}
	if got := h.refused(bob, hers, "x.test"); got != "404 site_not_found" {
		t.Errorf("another's site: %s", got)
	}

	// A removed domain and the domain of a deleted site are free, but need verification.
	gone := h.live(h.ann, "gone", "gone")
	h.active(h.ann, gone, "www.gone.test")
	h.call(h.ann, "DELETE", "/sites/"+gone.ID, nil, nil)
	h.call(h.ann, "DELETE", "/domains/"+mine.ID, nil, nil)
	h.zone.Set("www.gone.test", "CNAME "+his.host()+".")
	for _, name := range []string{"www.held.test", "www.gone.test"} {
		h.zone.Set("_slipway." + name)
		h.zone.Set(name, "CNAME "+his.host()+".")
		var d aDomain
		h.until(10e9, name+" to be free", func() bool {
			a := h.do(bob, "POST", "/sites/"+his.ID+"/domains", map[string]any{"name": name})
			return a.Status == 201 && a.JSON(&d) == nil
		})
		if d = waits("a released name", d); !strings.Contains(d.reason()+text(d.Verification[0].Reason), "released this name") {
			t.Errorf("said %q", d.reason())
		}
		h.zone.Set("_slipway."+name, `TXT "`+bobToken+`"`)
		if d = h.verify(bob, d); d.Status != "active" {
			t.Errorf("with the proof: %s, %q", d.Status, d.reason())
		}
	}
	// The subdomain of a deleted site stays reserved for its owner.
	var again struct{ Data aSite }
	h.call(bob, "POST", "/sites", map[string]any{
		"name":       "gone",
		"type":       "static",
		"repository": "git.test/acme/his",
		"branch":     "main",
	}, &again)
	if again.Data.Subdomain == gone.Subdomain {
		t.Errorf("he got the address %s", again.Data.Subdomain)
	}

	// A valid TXT record moves a domain to another user, and its previous owner is notified.
	lost := h.active(h.ann, hers, "www.lost.test")
	if got := h.refused(bob, his, "www.lost.test"); got != "409 domain_claimed" {
		t.Errorf("without the record: %s", got)
	}
	h.zone.Set("_slipway.www.lost.test", `TXT "`+bobToken+`"`)
	if d := h.verify(bob, h.add(bob, his, "www.lost.test")); d.Status != "active" {
		t.Errorf("with the record: %s", d.reason())
	}
	h.heard("/ann", "domain.failed", "www.lost.test", 1)
	h.notified("/discord", `"title":"Domain www.lost.test of `)
	if d := h.get(h.ann, lost); d.Status != "failed" || d.reason() == "" {
		t.Errorf("the loser: %s, %q", d.Status, d.reason())
	}
	h.shows("www.lost.test", "his")

	// The installation's own names can't be added.
	for _, name := range []string{
		hers.host(),
		"new.sites.test", "sites.test", "*.sites.test", "a.b.sites.test", "panel.example.net", "PANEL.example.net.",
		"*.example.net",
	} {
		if got := h.refused(bob, his, name); got != "400 invalid_domain" {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// list returns one of a user's domains by name.
func (h *harness) list(key, name string) aDomain {
	h.t.Helper()
	var all struct{ Data []aDomain }
	h.call(key, "GET", "/domains", nil, &all)
	for _, d := range all.Data {
		if d.Name == name {
			return d
		}
	}
	h.t.Fatalf("no domain %s", name)
	return aDomain{}
}
