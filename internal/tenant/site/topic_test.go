package site_test

import (
	"testing"

	"slipway/internal/platform/db"
	"slipway/internal/tenant/site"
)

// A change of one owner's sites notifies only that owner's pages.
func TestChangesWakeTheirOwner(t *testing.T) {
	t.Parallel()
	r := open(t)
	annas, stop := r.db.Listen(anna.Topic())
	defer stop()
	bens, stop := r.db.Listen(ben.Topic())
	defer stop()
	edges, stop := r.db.Listen("live")
	defer stop()
	var s site.Site
	for what, change := range []func(){
		func() { s = r.create(t, anna, "Blog") },
		func() { r.activate(t, s.ID, "dep_1") },
		func() { r.write(t, func(tx *db.Tx) error { return r.DeleteTx(t.Context(), tx, anna, s.ID) }) },
	} {
		change()
		<-annas
		<-edges
		select {
		case <-bens:
			t.Errorf("change %d of one owner's site woke another one's pages", what)
		default:
		}
	}
}
