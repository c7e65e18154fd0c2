package billing

import (
	"fmt"
	"testing"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/id"
	"slipway/internal/tenant/billing/document"
	"slipway/internal/tenant/billing/plan"
	"slipway/internal/tenant/usage"
)

// rich sets a budget that these tests don't exceed.
func (w *world) rich(o id.Owner) {
	w.t.Helper()
	w.write(func(tx *db.Tx) error { return w.SetBudgetTx(w.t.Context(), tx, o, Balance{"EUR", 1_000_000}) })
}

// charges returns the usage lines of an owner's invoices as "plan: quantity = amount".
func (w *world) charges(o id.Owner) (list []string) {
	w.t.Helper()
	for _, i := range w.invoices(o) {
		for _, l := range i.Lines() {
			if l.Kind == document.Usage || l.Kind == document.Cap {
				list = append(list, fmt.Sprintf("%s: %d = %d %s", l.Plan, l.Quantity, l.Amount, i.Currency))
			}
		}
	}
	return list
}

func (w *world) change(o id.Owner, c plan.Choice) Subscription {
	w.t.Helper()
	return w.do(o, Action{Kind: Change, Choice: c})
}

func (w *world) wantCharges(o id.Owner, want ...string) {
	w.t.Helper()
	if got := w.charges(o); fmt.Sprint(got) != fmt.Sprint(want) {
		w.t.Errorf("charged %q, want %q", got, want)
	}
	w.sound()
}

// Usage before an upgrade is charged at the plan of that time, even if the upgrade is in the period's last hour with a
// downgrade scheduled right after. Included usage that is used up counts for the new plan.
func TestUpgradeInTheLastHour(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.plan("small", 1000, func(x *plan.Terms) { x.Rates = rate(100, 3, 1) })
	w.plan("large", 2000, func(x *plan.Terms) { x.Rates = rate(1000, 1, 1) })
	w.rich(ada)
	s := w.subscribe(ada, "small")
	w.payAll(ada)
	w.uses(ada, usage.Bandwidth, s.Start.Add(5*day), 700)
	w.pass(s.End.Sub(w.clock)-hour, 5*day)
	w.change(ada, plan.Choice{Plan: "large"})
	w.change(ada, plan.Choice{Plan: "small"})
	w.uses(ada, usage.Bandwidth, s.End.Add(-hour), 310) // 300 of it are included
	w.payAll(ada)
	w.period(ada)
	w.wantCharges(ada, "small: 600 = 1800 EUR", "large: 10 = 10 EUR")
}

// A change between monthly and yearly ends the period, and its usage is invoiced once it is sealed.
func TestUsageBeforeAnotherInterval(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.plan("pro", 1000, func(x *plan.Terms) { x.Rates = rate(100, 3, 1) })
	w.plan("pro", 9000, func(x *plan.Terms) { x.Term, x.Rates = plan.Year, rate(1200, 2, 1) })
	w.rich(ada)
	s := w.subscribe(ada, "pro")
	w.uses(ada, usage.Bandwidth, s.Start.Add(5*day), 500)
	w.pass(10*day, day)
	w.change(ada, plan.Choice{Plan: "pro", Term: plan.Year})
	w.pass(6*hour, hour)
	w.wantCharges(ada, "pro: 400 = 1200 EUR")
	w.uses(ada, usage.Bandwidth, w.sub(ada).Start.Add(day), 800) // 500 of 1,200 were used in the month that ended early
	w.payAll(ada)
	w.pass(300*day, 30*day)
	w.period(ada)
	w.wantCharges(ada, "pro: 400 = 1200 EUR", "pro: 100 = 200 EUR")
}

// Usage is charged in the currency of the plan at that time, even if the next period uses another currency.
func TestUsageBeforeAnotherCurrency(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.plan("pro", 1000, func(x *plan.Terms) { x.Rates = rate(0, 3, 1) })
	w.plan("usd", 1000, func(x *plan.Terms) { x.Currency = "USD" })
	w.rich(ada)
	s := w.subscribe(ada, "pro")
	w.uses(ada, usage.Bandwidth, s.Start.Add(5*day), 500)
	w.change(ada, plan.Choice{Plan: "usd"})
	w.payAll(ada)
	w.period(ada)
	w.wantCharges(ada, "pro: 500 = 1500 EUR")
	if all := w.invoices(ada); len(all) != 3 || all[1].Net+all[2].Net != 2500 {
		t.Errorf("%+v", all)
	}
}

// Canceling and subscribing in any order doesn't grant a period's included usage more than once.
func TestIncludedOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.plan("free", 0, func(x *plan.Terms) { x.Rates = rate(100, 3, 1) })
	w.rich(ada)
	for range 3 {
		s := w.subscribe(ada, "free")
		w.uses(ada, usage.Bandwidth, s.Start, 100)
		w.pass(2*day, hour)
		w.do(ada, Action{Kind: Cancel, Now: true})
		w.pass(6*hour, hour)
		w.payAll(ada)
	}
	w.wantCharges(ada, "free: 100 = 300 EUR", "free: 100 = 300 EUR")
	w.pass(40*day, day)
	s := w.subscribe(ada, "free") // when the last period would have ended
	w.uses(ada, usage.Bandwidth, s.Start, 100)
	w.period(ada)
	w.wantCharges(ada, "free: 100 = 300 EUR", "free: 100 = 300 EUR")
}

// A year's first day, and the day of a plan change, are charged from the exact hour. The hours of those days are kept
// until the year ends.
func TestHoursOfAYear(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.plan("pro", 9000, func(x *plan.Terms) { x.Term, x.Rates = plan.Year, rate(0, 3, 1) })
	w.plan("max", 19_000, func(x *plan.Terms) { x.Term, x.Rates = plan.Year, rate(0, 5, 1) })
	w.rich(ada)
	merge := func(at db.Time, n int64) {
		w.write(func(tx *db.Tx) error {
			return w.c.Usage.MergeTx(t.Context(), tx, []usage.Row{{Owner: ada, Meter: usage.Bandwidth, Hour: at, Source: fmt.Sprint(at), Quantity: n}})
		})
	}
	pass := func(d, step time.Duration) {
		for end := w.clock.Add(d); w.clock < end; {
			w.clock = w.clock.Add(step)
			ok(t, w.c.Usage.Tidy(t.Context()))
			ok(t, w.Tick(t.Context()))
			w.payAll(ada)
		}
	}
	w.seals()
	s := w.subscribe(ada, "pro")
	merge(s.Start.Add(-hour), 7) // before the period, on the same day
	merge(s.Start, 100)
	pass(20*day, 5*day)
	w.change(ada, plan.Choice{Plan: "max", Term: plan.Year})
	merge(w.clock.Add(-hour), 10)
	merge(w.clock, 1)
	pass(s.End.Sub(w.clock), 5*day)
	pass(6*hour, hour)
	w.wantCharges(ada, "pro: 110 = 330 EUR", "max: 1 = 5 EUR")
}

// Due renewals are processed before a change, so that a change shortly after a period's end doesn't apply to that
// period.
func TestChangeAfterAPeriod(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.plan("small", 1000, func(x *plan.Terms) { x.Rates = rate(0, 3, 1) })
	w.plan("large", 2000)
	w.rich(ada)
	s := w.subscribe(ada, "small")
	w.uses(ada, usage.Bandwidth, s.Start.Add(5*day), 500)
	w.payAll(ada)
	w.clock = s.End.Add(5 * hour) // no billing job ran meanwhile
	w.change(ada, plan.Choice{Plan: "large"})
	if is := w.sub(ada); is.Start != s.End {
		t.Errorf("the change is of the period that is over: %+v", is)
	}
	w.pass(6*hour, hour)
	w.wantCharges(ada, "small: 500 = 1500 EUR")
}
