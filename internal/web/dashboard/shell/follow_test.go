package shell

import (
	"testing"

	"slipway/internal/platform/db"
	"slipway/internal/platform/dbtest"
	"slipway/internal/tenant/account"
)

// An open page is notified only of its owner's changes.
func TestPagesFollowTheirOwner(t *testing.T) {
	t.Parallel()
	d := &Shell{}
	d.DB = dbtest.New(t)
	wake, stop := d.Follow(&Request{Caller: account.Caller{Owner: "own_anna"}})
	defer stop()
	notify := func(topic string) {
		if err := d.DB.Write(t.Context(), func(tx *db.Tx) error { tx.Notify(topic); return nil }); err != nil {
			t.Fatal(err)
		}
	}
	notify(account.OwnerID("own_ben").Topic())
	notify("live")
	last, end := d.DB.Listen("last")
	defer end()
	notify("last")
	<-last // PostgreSQL delivers notifications in order
	select {
	case <-wake:
		t.Error("woken by another owner's change")
	default:
	}
	notify(account.OwnerID("own_anna").Topic())
	<-wake
}
