package billing

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/id"
	"slipway/internal/tenant/billing/plan"
)

// maker creates a user with a personal account and n teams, and returns these accounts.
func (w *world) maker(name string, n int) (owners []id.Owner) {
	w.t.Helper()
	w.write(func(tx *db.Tx) error {
		_, err := tx.Exec(w.t.Context(), `INSERT INTO users (id, owner_id, email, password, admin, created_at) VALUES ($1, $2, $3, '', FALSE, 0)`,
			"usr_"+name, "own_"+name, name+"@example.test")
		owners = append(owners, id.Owner("own_"+name))
		for i := range n {
			team := fmt.Sprint(name, i)
			owners = append(owners, id.Owner("own_"+team))
			_, more := tx.Exec(w.t.Context(), `
				INSERT INTO teams (id, owner_id, name, slug, require_2fa, require_sso, apps, created_at, created_by, suspended_at, deleting_at, deleted_at)
				VALUES ($1, $2, $3, $3, FALSE, FALSE, 'all', 0, $4, 0, 0, 0)`, "team_"+team, "own_"+team, team, "usr_"+name)
			err = errors.Join(err, more)
		}
		return err
	})
	return owners
}

// A person gets one trial and can redeem a coupon once over all of their teams, including deleted ones. One of
// concurrent requests wins. Other people aren't affected.
func TestOneTrialForEachPerson(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.plan("tried", 1000, func(x *plan.Terms) { x.TrialDays = 14 })
	w.plan("plain", 1000)
	w.write(func(tx *db.Tx) error {
		return w.CouponTx(t.Context(), tx, plan.Coupon{Code: "HALF", Points: 5000, Periods: 1})
	})
	grace, hedy := w.maker("grace", 6), w.maker("hedy", 1)
	ok(t, w.db.Admin(t.Context(), `UPDATE teams SET deleted_at = 1 WHERE slug = 'grace0'`))
	if s := w.subscribe(grace[1], "tried"); s.Status != Trialing {
		t.Fatalf("the first trial: %+v", s)
	}
	for _, o := range []id.Owner{grace[0], grace[2]} {
		if s := w.subscribe(o, "tried"); s.Status != Active || len(w.invoices(o)) != 1 {
			t.Errorf("another trial of one person, for %s: %+v", o, s)
		}
	}
	if s := w.subscribe(hedy[1], "tried"); s.Status != Trialing {
		t.Errorf("the trial of another person: %+v", s)
	}
	var group sync.WaitGroup
	var mu sync.Mutex
	redeemed := 0
	for _, o := range grace[3:] {
		group.Go(func() {
			err := w.db.Write(t.Context(), func(tx *db.Tx) error {
				_, _, err := w.DoTx(t.Context(), tx, o, Action{Kind: Subscribe, Choice: plan.Choice{Plan: "plain"}, Coupon: "HALF"}, "")
				return err
			})
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				redeemed++
			} else if f := fault.As(err); f == nil || f.Code != "invalid_coupon" {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if redeemed != 1 {
		t.Errorf("one person redeemed a coupon %d times", redeemed)
	}
	w.do(hedy[0], Action{Kind: Subscribe, Choice: plan.Choice{Plan: "plain"}, Coupon: "HALF"})
	w.sound()
}
