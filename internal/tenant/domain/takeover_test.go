package domain

import (
	"strings"
	"sync"
	"testing"
	"time"

	"slipway/internal/platform/id"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/account"
)

// tries attempts to claim a name for an account as far as the service allows.
func (w *world) tries(owner account.OwnerID, name string) Domain {
	w.t.Helper()
	dom, err := w.Create(w.t.Context(), owner, id.Site(string(owner)+"-1"), NewDomain{Name: name})
	if fault.Is(err, fault.Conflict) {
		return Domain{Status: "refused"}
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return w.verify(dom)
}

// The holder of a name keeps it unless another account verifies it with a TXT record.
func TestTakeoversFail(t *testing.T) {
	t.Parallel()
	for name, attack := range map[string]func(t *testing.T, w *world){
		"an active name whose addresses lead here": func(t *testing.T, w *world) {
			w.active(ann, "example.com")
			if got := w.tries(bob, "example.com"); got.Status != "refused" {
				t.Errorf("got %+v", got)
			}
			wantRoute(t, w, "example.com", "active ann-1")
		},
		"an active name with an alias to the thief's site": func(t *testing.T, w *world) {
			w.active(ann, "www.example.com")
			w.zone.Set("www.example.com", "CNAME bob-1.sites.test.")
			if got := w.tries(bob, "www.example.com"); got.Status != "refused" {
				t.Errorf("got %+v", got)
			}
			wantRoute(t, w, "www.example.com", "active ann-1")
		},
		"a claim that waited while another proved": func(t *testing.T, w *world) {
			early := w.add(bob, "www.example.com")
			w.active(ann, "www.example.com")
			w.zone.Set("www.example.com", "CNAME bob-1.sites.test.")
			if got := w.verify(early); got.Status != Pending || got.Proven() || !strings.Contains(got.Reason, "Another account owns") {
				t.Errorf("got %+v", got)
			}
			wantRoute(t, w, "www.example.com", "active ann-1")
		},
		"a squatter's claim keeps nobody out": func(t *testing.T, w *world) {
			w.add(bob, "example.com")
			w.active(ann, "example.com")
		},
		"a name that points here and was never claimed": func(t *testing.T, w *world) {
			w.zone.Set("example.com", here)
			if got := w.tries(bob, "example.com"); got.Status != Pending || got.Proven() {
				t.Errorf("got %+v", got)
			}
			wantRoute(t, w, "example.com", "none")
		},
		"an alias left over to the last owner's site": func(t *testing.T, w *world) {
			w.zone.Set("www.example.com", "CNAME ann-1.sites.test.")
			if got := w.tries(bob, "www.example.com"); got.Status != Pending || got.Proven() {
				t.Errorf("got %+v", got)
			}
		},
		"a released name": func(t *testing.T, w *world) {
			w.remove(w.active(ann, "www.example.com"))
			w.zone.Set("www.example.com", "CNAME bob-1.sites.test.")
			got := w.tries(bob, "www.example.com")
			if got.Status != Pending || got.Proven() || !strings.Contains(got.Reason, "released this name") {
				t.Errorf("got %+v", got)
			}
			wantRoute(t, w, "www.example.com", "deleted ann-1")
			w.exec("UPDATE domain_releases SET released_at = $1", db.Now().Add(-quarantine-time.Minute))
			if got := w.verify(got); got.Status != Active {
				t.Errorf("after the quarantine: %+v", got)
			}
		},
		"a released name with the TXT proof": func(t *testing.T, w *world) {
			w.remove(w.active(ann, "example.com"))
			w.zone.Set("_slipway.example.com", w.txt(bob))
			if got := w.tries(bob, "example.com"); got.Status != Active {
				t.Errorf("got %+v", got)
			}
			wantRoute(t, w, "example.com", "active bob-1")
		},
		"a released name by its last owner": func(t *testing.T, w *world) {
			w.zone.Set("www.example.com", "CNAME ann-1.sites.test.")
			w.remove(w.verify(w.add(ann, "www.example.com")))
			if got := w.tries(ann, "www.example.com"); got.Status != Active {
				t.Errorf("got %+v", got)
			}
		},
		"www of a held apex": func(t *testing.T, w *world) {
			w.active(ann, "example.com")
			w.zone.Set("www.example.com", here) // ann wants to use the name too
			if got := w.tries(bob, "www.example.com"); got.Status != Pending || got.Proven() {
				t.Errorf("got %+v", got)
			}
			w.zone.Set("www.example.com", "CNAME example.com.")
			if got := w.tries(bob, "www.example.com"); got.Status != "refused" && got.Proven() {
				t.Errorf("got %+v", got)
			}
		},
		"the apex of a held www": func(t *testing.T, w *world) {
			w.active(ann, "www.example.com")
			w.zone.Set("example.com", here)
			if got := w.tries(bob, "example.com"); got.Status != Pending || got.Proven() {
				t.Errorf("got %+v", got)
			}
		},
		"the proof of one name for another": func(t *testing.T, w *world) {
			w.zone.Set("_slipway.shop.example.com", w.txt(bob))
			w.zone.Set("example.com", here)
			w.zone.Set("www.shop.example.com", here)
			for _, name := range []string{"example.com", "www.shop.example.com", "*.example.com"} {
				if got := w.tries(bob, name); got.Status != Pending || got.Proven() {
					t.Errorf("%s: %+v", name, got)
				}
			}
		},
		"a wildcard over a held sibling": func(t *testing.T, w *world) {
			w.active(ann, "shop.example.com")
			w.zone.Set("*.example.com", "CNAME bob-1.sites.test.")
			if got := w.tries(bob, "*.example.com"); got.Status != Pending || got.Proven() {
				t.Errorf("got %+v", got)
			}
			wantRoute(t, w, "*.example.com", "none")
			w.zone.Set("_slipway.example.com", w.txt(bob)) // bob controls the zone, so he may have the other names in it
			if got := w.verify(mustList(t, w, bob)[0]); got.Status != Active {
				t.Errorf("got %+v", got)
			}
			wantRoute(t, w, "*.example.com", "active bob-1")
			wantRoute(t, w, "shop.example.com", "active ann-1")
		},
		"a name below a held wildcard": func(t *testing.T, w *world) {
			w.zone.Set("_slipway.example.com", w.txt(ann))
			w.zone.Set("*.example.com", here)
			if got := w.verify(w.add(ann, "*.example.com")); got.Status != Active {
				t.Fatalf("got %+v", got)
			}
			w.zone.Set("shop.example.com", "CNAME bob-1.sites.test.")
			if got := w.tries(bob, "shop.example.com"); got.Status != Pending || got.Proven() {
				t.Errorf("got %+v", got)
			}
			wantRoute(t, w, "shop.example.com", "none")
		},
		"another account's token": func(t *testing.T, w *world) {
			w.zone.Set("_slipway.example.com", w.txt(ann))
			w.zone.Set("example.com", here)
			if got := w.tries(bob, "example.com"); got.Status != Pending || got.Proven() || got.Verification[0].Status != RecordInvalid {
				t.Errorf("got %+v", got)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			attack(t, newWorld(t, nil, nil))
		})
	}
}

func wantRoute(t *testing.T, w *world, host, want string) {
	t.Helper()
	if got, _ := w.route(host); got != want {
		t.Errorf("%s is routed %q, want %q", host, got, want)
	}
}

func mustList(t *testing.T, w *world, owner account.OwnerID) []Domain {
	t.Helper()
	all, err := w.List(t.Context(), owner)
	if err != nil || len(all) == 0 {
		t.Fatalf("%v %v", all, err)
	}
	return all
}

// A TXT record moves a name to its new holder once. The previous holder's leftover record doesn't move it back while
// the new holder's record exists.
func TestProofMovesAName(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil, nil)
	old := w.active(ann, "example.com")
	_, v1 := w.route("example.com")
	_, err := w.Create(t.Context(), bob, "bob-1", NewDomain{Name: "example.com"})
	f := fault.As(err)
	if f == nil || f.Kind != fault.Conflict || f.Code != "domain_claimed" || !strings.Contains(
		f.Details,
		strings.TrimPrefix(w.txt(bob), "TXT "),
	) {
		t.Fatalf("got %+v, want a conflict that names the record", f)
	}
	w.zone.Set("_slipway.example.com", w.txt(ann), w.txt(bob))
	dom := w.add(bob, "example.com")
	wantRoute(t, w, "example.com", "active ann-1") // adding a domain changes nothing yet
	if dom = w.verify(dom); dom.Status != Active || !has(dom.Problems, "foreign_token") {
		t.Fatalf("got %+v", dom)
	}
	if r, v2 := w.route("example.com"); r != "active bob-1" || v2 <= v1 {
		t.Fatalf("route: %s %d", r, v2)
	}
	old, err = w.Get(t.Context(), w.db, ann, old.ID)
	if err != nil || old.Status != Failed || old.Proven() || old.Primary {
		t.Fatalf("the loser: %+v %v", old, err)
	}
	if old = w.verify(old); old.Status != Pending || old.Proven() || !strings.Contains(old.Reason, "is still there") {
		t.Fatalf("won it back: %+v", old)
	}
	wantRoute(t, w, "example.com", "active bob-1")
	w.remove(old)
	if got := w.tries(ann, "example.com"); got.Status == Active || got.Proven() {
		t.Fatalf("won it back by a new claim: %+v", got)
	}
	w.zone.Set("_slipway.example.com", w.txt(ann)) // the zone's owner now names ann
	if got := w.verify(mustList(t, w, ann)[0]); got.Status != Active {
		t.Fatalf("got %+v", got)
	}
	wantRoute(t, w, "example.com", "active ann-1")
	want := "ann domain.added,ann domain.verified,bob domain.added,ann domain.failed,bob domain.verified,ann domain.added,bob domain.failed,ann domain.verified"
	if got := strings.Join(w.events.names("example.com"), ","); got != want {
		t.Errorf("events: %s", got)
	}
}

// When two accounts verify the same name at the same time, one of them holds it.
func TestOneHolderPerName(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil, nil)
	w.zone.Set("_slipway.example.com", w.txt(ann), w.txt(bob))
	w.zone.Set("example.com", here)
	claims := []Domain{w.add(ann, "example.com"), w.add(bob, "example.com")}
	var wg sync.WaitGroup
	for _, dom := range claims {
		wg.Go(func() {
			if _, err := w.Verify(t.Context(), dom.Owner, dom.ID); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	var active int
	if err := w.db.QueryRow(
		t.Context(),
		"SELECT count(*) FROM domains WHERE name = 'example.com' AND status = 'active'",
	).Scan(&active); err != nil || active != 1 {
		t.Errorf("%d are active, %v", active, err)
	}
}
