package domain

import (
	"slices"
	"strings"
	"testing"
	"time"

	"slipway/internal/platform/id"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/account"
)

// update changes a domain and reports whether anything changed.
func (w *world) update(dom Domain, u Update) (out Domain, changed bool, err error) {
	for db.Now() <= dom.UpdatedAt {
		time.Sleep(time.Millisecond) // otherwise two changes could have the same time
	}
	err = w.db.Write(w.t.Context(), func(tx *db.Tx) (err error) {
		out, err = w.UpdateTx(w.t.Context(), tx, dom.Owner, dom.ID, u)
		changed = out.UpdatedAt != dom.UpdatedAt
		return err
	})
	return out, changed, err
}

// A domain moves between an owner's sites and stays routed at every moment.
func TestMove(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil, nil)
	dom := w.active(ann, "www.example.com")
	to := id.Site("ann-2")
	_, before := w.route("www.example.com")
	moved, changed, err := w.update(dom, Update{SiteID: &to})
	if err != nil || !changed || moved.SiteID != to || moved.Status != Active || !moved.Proven() || !moved.Primary || moved.SSL != dom.SSL {
		t.Fatalf("got %+v, changed %v, %v", moved, changed, err)
	}
	r, after := w.route("www.example.com")
	if r != "active ann-2" || after <= before {
		t.Errorf("route %q, version %d after %d", r, after, before)
	}
	if r := moved.DNS[0]; !strings.Contains(moved.DNS[0].Required, "ann-2.sites.test") && r.Type == "CNAME" {
		t.Errorf("records still name the old site: %+v", r)
	}
	// An old site's check results no longer apply after the move, and the next check is due.
	if err := w.db.Write(t.Context(), func(tx *db.Tx) error { return w.settle(t.Context(), tx, dom.ID, dom.checks, observed{}) }); err != nil {
		t.Fatal(err)
	}
	if moved = w.verify(moved); moved.Status != Active || moved.SiteID != to {
		t.Errorf("after a check: %+v", moved)
	}
	// Moving it again to the same site changes nothing, including its times.
	again, changed, err := w.update(moved, Update{SiteID: &to})
	if err != nil || changed {
		t.Errorf("moved to where it is: %+v, %v", again, err)
	}
	_, still := w.route("www.example.com")
	if still != after {
		t.Error("a change of nothing changed the route")
	}
	// A domain can't be moved to another owner's site, or to a site that doesn't exist.
	for _, bad := range []id.Site{"bob-1", "", "site_nobody"} {
		if _, _, err := w.update(moved, Update{SiteID: &bad}); !fault.Is(err, fault.NotFound) {
			t.Errorf("to %q: %v", bad, err)
		}
	}
	// A primary domain moved to a site with a primary domain isn't primary there.
	other := w.active(ann, "shop.example.com")
	other, _, err = w.update(other, Update{SiteID: &to})
	if err != nil || other.Primary || w.verify(moved).Primary == false {
		t.Errorf("two primary domains: %+v, %v", other, err)
	}
}

// A redirect whose target was removed reports the problem until the redirect or the target is fixed.
func TestLostRedirect(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil, nil)
	apex := w.active(ann, "example.com")
	w.zone.Set("www.example.com", "CNAME ann-1.sites.test.")
	www, err := w.Create(t.Context(), ann, "ann-1", NewDomain{Name: "www.example.com", RedirectTo: "example.com"})
	if err != nil {
		t.Fatal(err)
	}
	says := func() bool {
		t.Helper()
		got, err := w.Get(t.Context(), w.db, ann, www.ID)
		if err != nil {
			t.Fatal(err)
		}
		return slices.ContainsFunc(got.Problems, func(p Problem) bool {
			return p.Code == "redirect_target" && strings.Contains(p.Message, "www.example.com redirects to example.com")
		})
	}
	if www = w.verify(www); www.Status != Active || says() {
		t.Fatalf("got %+v", www)
	}
	w.remove(apex)
	if !says() {
		t.Error("no problem is reported after the removal")
	}
	w.verify(www)
	if !says() {
		t.Error("a check forgets it")
	}
	apex = w.active(ann, "example.com")
	if says() {
		t.Error("it is still said after the target came back")
	}
	w.remove(apex)
	none := ""
	if _, _, err := w.update(www, Update{RedirectTo: &none}); err != nil || says() {
		t.Errorf("it is still said without a redirect, %v", err)
	}
}

// Common mistakes in DNS settings are tolerated or explained.
func TestUsualMistakes(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		domain string
		set    func(t *testing.T, w *world)
		status Status
		code   string // of the problem
		says   []string
	}{
		"the value in quotation marks": {"www.example.com", func(t *testing.T, w *world) {
			w.zone.Set("_slipway.www.example.com", `TXT "\"`+w.token(ann)+`\""`)
			w.zone.Set("www.example.com", here)
		}, Active, "", nil},
		"the value in single quotes and blanks": {"www.example.com", func(t *testing.T, w *world) {
			w.zone.Set("_slipway.www.example.com", `TXT " '`+w.token(ann)+`' "`)
			w.zone.Set("www.example.com", here)
		}, Active, "", nil},
		"at the name itself": {"www.example.com", func(t *testing.T, w *world) {
			w.zone.Set("www.example.com", here, w.txt(ann))
		}, Pending, "wrong_name", []string{"found at www.example.com", "_slipway.www.example.com"}},
		"with the zone twice": {"www.example.com", func(t *testing.T, w *world) {
			w.zone.Set("_slipway.www.example.com.example.com", w.txt(ann))
			w.zone.Set("www.example.com", here)
		}, Pending, "wrong_name", []string{"adds example.com itself", "_slipway.www"}},
		"at the registrable name": {"shop.example.com", func(t *testing.T, w *world) {
			w.zone.Set("_slipway.example.com", w.txt(ann))
			w.zone.Set("shop.example.com", here)
		}, Pending, "wrong_name", []string{"found at _slipway.example.com"}},
		"a record below hides the wildcard": {"shop.example.com", func(t *testing.T, w *world) {
			w.zone.Set("*.example.com", here)
			w.zone.Set("_slipway.shop.example.com", w.txt(ann))
			w.zone.Set("shop.example.com") // an empty non-terminal (RFC 4592)
		}, Pending, "hidden_wildcard", []string{"*.example.com doesn't apply", "CNAME of ann-1.sites.test"}},
		"a CDN that connects by plain HTTP": {"www.example.com", func(t *testing.T, w *world) {
			w.zone.Set("_slipway.www.example.com", w.txt(ann))
			w.zone.Set("www.example.com", "A 104.16.1.1")
		}, Active, "cdn", []string{"Flexible", "redirected forever"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, nil, nil)
			tt.set(t, w)
			dom := w.verify(w.add(ann, tt.domain))
			if dom.Status != tt.status || tt.code != "" && !has(dom.Problems, tt.code) || tt.code == "" && len(dom.Problems) > 0 {
				t.Fatalf("%s, problems %+v", dom.Status, dom.Problems)
			}
			for _, p := range dom.Problems {
				for _, want := range tt.says {
					if p.Code == tt.code && !strings.Contains(p.Message, want) {
						t.Errorf("%q does not mention %q", p.Message, want)
					}
				}
			}
		})
	}
}

// token returns the token of an account's TXT records.
func (w *world) token(owner account.OwnerID) string {
	w.t.Helper()
	return strings.Trim(strings.TrimPrefix(w.txt(owner), "TXT "), `"`)
}
