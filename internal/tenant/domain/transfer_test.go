package domain

import (
	"testing"

	"slipway/internal/platform/db"
)

// A domain transferred with its site stays active, and the previous owner's old TXT record doesn't move it back.
func TestTransferredDomainStays(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil, nil)
	claim := w.add(bob, "example.com")  // the receiver's own claim
	dom := w.active(ann, "example.com") // its TXT record has ann's token and stays in the zone
	move := func() int64 {
		t.Helper()
		var n int64
		if err := w.db.Write(t.Context(), func(tx *db.Tx) (err error) {
			n, err = w.MoveSiteTx(t.Context(), tx, "ann-1", ann, bob)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		return n
	}
	_, before := w.route("example.com")
	if n := move(); n != 1 {
		t.Errorf("%d domains moved", n)
	}
	if _, after := w.route("example.com"); after <= before {
		t.Errorf("the route has the version %v, and had %v: certificates don't read it again", after, before)
	}
	if _, err := w.Get(t.Context(), w.db, bob, claim.ID); err == nil {
		t.Error("the receiver's own claim stays")
	}
	moved, err := w.Get(t.Context(), w.db, bob, dom.ID)
	if err != nil || moved.Status != Active || !moved.Proven() {
		t.Fatalf("got %+v, %v", moved, err)
	}
	wantRoute(t, w, "example.com", "active ann-1")
	// The sender's TXT record is still in the zone.
	if got := w.tries(ann, "example.com"); got.Proven() || got.Status == Active {
		t.Errorf("the sender takes it back: %+v", got)
	}
	if moved, err = w.Get(t.Context(), w.db, bob, dom.ID); err != nil || moved.Status != Active {
		t.Errorf("got %+v, %v", moved, err)
	}
	wantRoute(t, w, "example.com", "active ann-1")
}
