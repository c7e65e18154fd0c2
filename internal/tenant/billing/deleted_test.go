package billing

import (
	"bytes"
	"testing"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/billing/party"
	"slipway/internal/tenant/billing/plan"
	"slipway/internal/tenant/usage"
)

// A deleted account's subscription ends with a last invoice, its billing profile is deleted, and its final invoices
// stay. Other accounts are unaffected.
func TestDeletedAccount(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	accounts := account.New(account.Config{DB: w.db, HashMemory: 64})
	there, err := accounts.CreateUser(t.Context(), "grace@example.test", "a long password of a test", false)
	ok(t, err)
	w.plan("pro", 1000, func(x *plan.Terms) { x.Rates = rate(0, 1, 1) })
	w.write(func(tx *db.Tx) error {
		_, err := w.SaveProfileTx(t.Context(), tx, ada, party.Party{Name: "Ada Lovelace", Country: "DE"})
		return err
	})
	w.subscribe(ada, "pro")
	w.subscribe(there.Owner, "pro")
	w.uses(ada, usage.Bandwidth, w.clock.Add(hour), 7)
	w.pass(5*hour, hour)
	ok(t, w.settleDeleted(t.Context()))
	if _, err := w.Subscription(t.Context(), w.db, ada); !fault.Is(err, fault.NotFound) {
		t.Errorf("the subscription of a deleted account continues: %v", err)
	}
	ok(t, w.settleDeleted(t.Context()))
	w.pass(6*hour, hour)
	ok(t, w.settleDeleted(t.Context()))
	all := w.invoices(ada)
	if len(all) != 2 || all[1].Number == "" || !bytes.Contains(all[0].JSON(), []byte("Ada Lovelace")) || !bytes.Contains(all[1].JSON(), []byte("Ada Lovelace")) {
		t.Errorf("%+v", all)
	}
	if p, err := w.Profile(t.Context(), w.db, ada); err != nil || p.Name != "" {
		t.Errorf("the profile is there: %+v, %v", p, err)
	}
	if s := w.sub(there.Owner); s.Status != Active {
		t.Errorf("another owner's subscription is %s", s.Status)
	}
	w.sound()
}
