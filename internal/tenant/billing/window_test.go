package billing

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/billing/plan"
	"slipway/internal/tenant/limits"
)

// from returns the start of the owner's current limit window.
func (w *world) from() db.Time {
	w.t.Helper()
	x, err := w.c.Usage.WindowOf(w.t.Context(), w.db, ada, w.clock)
	ok(w.t, err)
	if w.clock < x.From || w.clock >= x.To {
		w.t.Fatalf("%v isn't within its window, %v to %v", w.clock, x.From, x.To)
	}
	return x.From
}

// Limit windows follow the subscription: from its start, through plan changes, at each renewal and at the end of a
// trial. After the subscription they follow the calendar.
func TestWindowsFollowSubscriptions(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.clock = moment(2027, 1, 31, 9).Add(20 * time.Minute)
	w.write(func(tx *db.Tx) error {
		s, err := w.SettingsFor(t.Context(), tx, ada)
		if err != nil {
			return err
		}
		s.GraceDays = 90 // the test pays no invoices
		return w.SaveSettingsTx(t.Context(), tx, "", s)
	})
	w.plan("pro", 1000)
	w.plan("max", 2000)
	w.plan("yearly", 9000, func(x *plan.Terms) { x.Term = plan.Year })
	w.subscribe(ada, "pro")
	want := func(when string, from db.Time) {
		t.Helper()
		if got := w.from(); got != from {
			t.Errorf("%s: from %v, want %v", when, got, from)
		}
	}
	want("its beginning", moment(2027, 1, 31, 9))
	w.pass(10*day, day)
	w.do(ada, Action{Kind: Change, Choice: plan.Choice{Plan: "max"}})
	want("a larger plan", moment(2027, 1, 31, 9))
	w.clock = moment(2027, 2, 28, 9)
	want("at the hour, before it is renewed", moment(2027, 2, 28, 9))
	w.pass(hour, hour)
	want("renewed", moment(2027, 2, 28, 9))
	w.pass(5*day, day)
	w.do(ada, Action{Kind: Change, Choice: plan.Choice{Plan: "yearly", Term: plan.Year}})
	if s, err := w.Subscription(t.Context(), w.db, ada); err != nil || s.anchor != w.clock {
		t.Fatalf("its year begins at %v, %v", s.anchor, err)
	}
	want("by the year", moment(2027, 2, 28, 9))
	w.clock = moment(2027, 4, 5, 10)
	want("a month of the year", w.clock)
	w.pass(20*day, day)
	w.do(ada, Action{Kind: Cancel, Now: true})
	want("canceled", moment(2027, 4, 1, 0))
	ok(t, w.db.Admin(t.Context(), `UPDATE billing_invoices SET status = 'void' WHERE status = 'open'`))
	w.subscribe(ada, "pro")
	want("again", moment(2027, 4, 1, 0))
}

// Subscribing, canceling, resuming and changing plans never grants more allowances than months have passed. Only the
// first subscription and its trial begin at zero.
func TestNoFreshAllowances(t *testing.T) {
	t.Parallel()
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			r := rand.New(rand.NewPCG(seed, 284))
			w.clock = moment(2027, 1, 1+r.IntN(31), r.IntN(24))
			for _, p := range []struct {
				name   string
				amount int64
				term   plan.Term
			}{{"free", 0, plan.Month}, {"trial", 0, plan.Month}, {"pro", 1000, plan.Month}, {"pro-yearly", 5000, plan.Year}} {
				w.plan(p.name, p.amount, func(x *plan.Terms) {
					x.Term, x.Limits = p.term, map[limits.Name]int64{limits.Bandwidth: 1000}
					if p.name == "trial" {
						x.TrialDays = 10
					}
				})
			}
			begun, last := w.clock, w.from()
			fresh := 0
			try := func(a Action) {
				t.Helper()
				err := w.db.Write(t.Context(), func(tx *db.Tx) error {
					_, _, err := w.DoTx(t.Context(), tx, ada, a, "")
					return err
				})
				if err != nil && fault.As(err) == nil {
					t.Fatal(err)
				}
			}
			names := []string{"free", "trial", "pro", "pro-yearly"}
			for range 300 {
				switch r.IntN(7) {
				case 0, 1:
					try(Action{Kind: Subscribe, Choice: plan.Choice{Plan: names[r.IntN(4)]}})
				case 2:
					try(Action{Kind: Cancel, Now: true})
				case 3:
					try(Action{Kind: Cancel})
				case 4:
					try(Action{Kind: Change, Choice: plan.Choice{Plan: names[r.IntN(4)], Term: plan.Year}})
				case 5:
					try(Action{Kind: Change, Choice: plan.Choice{Plan: names[r.IntN(4)]}})
				case 6:
					w.pass(time.Duration(1+r.IntN(6*24))*hour, 40*hour)
				}
				if from := w.from(); from > last {
					last = from
					fresh++
				}
			}
			months := int(w.clock.Sub(begun)/(30*day)) + 1
			if fresh > months+3 {
				t.Errorf("%d allowances in %d months", fresh, months)
			}
		})
	}
}
