package billing

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/id"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/billing/document"
	"slipway/internal/tenant/billing/party"
	"slipway/internal/tenant/billing/plan"
	"slipway/internal/tenant/limits"
	"slipway/internal/tenant/money"
	"slipway/internal/tenant/usage"
)

// A monthly subscription bills its price in advance and usage in arrears, with tax on the sum. Invoice numbers have no
// gaps, each event is sent once, and every invoice can be recomputed byte for byte.
func TestTwoYears(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.clock = moment(2027, 1, 31, 9).Add(25 * time.Minute)
	w.plan("pro", 1900, func(x *plan.Terms) { x.Rates = rate(1000, 45, 100) })
	w.write(func(tx *db.Tx) error { return w.SetBudgetTx(t.Context(), tx, ada, Balance{"EUR", 100_000}) })
	s := w.subscribe(ada, "pro")
	if s.Status != Active || s.Start != moment(2027, 1, 31, 9) || s.End != moment(2027, 2, 28, 9) {
		t.Fatalf("%+v", s)
	}
	first := w.invoices(ada)
	if len(first) != 1 || first[0].Number != "2027-000001" || first[0].Net != 1900 || first[0].Tax != 361 || first[0].Status != Open {
		t.Fatalf("%+v", first)
	}
	w.uses(ada, usage.Bandwidth, moment(2027, 2, 10, 3), 1500)
	w.uses(ada, usage.Bandwidth, moment(2027, 2, 28, 8), 600) // in the last hour of the period
	w.uses(ada, usage.Bandwidth, moment(2027, 2, 28, 9), 700) // in the first hour of the next one
	for range 24 {
		w.payAll(ada)
		w.period(ada)
	}
	w.payAll(ada)
	all := w.invoices(ada)
	if len(all) != 25 {
		t.Fatalf("%d invoices after 24 months", len(all))
	}
	second := all[1].Lines()
	if len(second) != 2 || second[0].Amount != 1900 || second[0].From != "2027-02-28T09:00:00.000Z" || second[0].To != "2027-03-31T09:00:00.000Z" ||
		second[1].Quantity != 1100 || second[1].Amount != 495 {
		t.Errorf("%+v", second)
	}
	for n, i := range all[1:] {
		if want := plan.Month.Boundary(moment(2027, 1, 31, 9), int64(n+1)).String(); i.Lines()[0].From != want {
			t.Errorf("invoice %d is for the period from %s, want %s", n+2, i.Lines()[0].From, want)
		}
		if i.Status != Paid {
			t.Errorf("%s is %s", i.Number, i.Status)
		}
	}
	if last := all[24].Number; last != "2029-000001" || all[23].Number != "2028-000012" {
		t.Errorf("the last numbers are %s, %s", all[23].Number, last)
	}
	names, bodies := w.events(ada)
	count := map[string]int{}
	for _, n := range names {
		count[n]++
	}
	if count["subscription.created"] != 1 || count["subscription.renewed"] != 24 || count["payment.completed"] != 25 || count["invoice.finalized"] != 25 || len(names) != 75 {
		t.Errorf("events: %v", count)
	}
	if got := bodies[0].Data.Subscription; got["plan"] != "pro" || got["status"] != "active" || got["currentPeriodEnd"] != "2027-02-28T09:00:00.000Z" || got["reason"] != nil {
		t.Errorf("%v", got)
	}
	if w.ledger(ada, receivable) != 0 || w.ledger(ada, cash) <= 0 || w.ledger(ada, revenue) >= 0 {
		t.Errorf("receivable %d, cash %d", w.ledger(ada, receivable), w.ledger(ada, cash))
	}
	// Hourly usage is deleted after 100 days, and invoices stay unchanged.
	ok(t, w.db.Admin(t.Context(), `DELETE FROM usage_hours`))
	w.sound()
	// Recompute detects changed usage.
	ok(t, w.db.Admin(t.Context(), fmt.Sprintf(`UPDATE usage_days SET quantity = quantity + 100 WHERE day = %d`, moment(2027, 2, 10, 0))))
	if r, err := w.Recompute(t.Context(), w.db, all[1].Number); err != nil || r.Same {
		t.Errorf("usage was changed, and the invoice is the same: %v", err)
	}
}

// An unpaid invoice leads to reminders, past due, and paused sites whose data is kept. A payment resumes them; without
// one the subscription ends. Each step happens once, however often the job runs.
func TestDunning(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.site(ada)
	w.plan("pro", 1000)
	w.subscribe(ada, "pro")
	w.pass(14*day-hour, hour)
	if s := w.sub(ada); s.Status != Active {
		t.Fatalf("before the due date it is %s", s.Status)
	}
	w.pass(hour, hour)
	if s := w.sub(ada); s.Status != PastDue || w.paused() != 0 {
		t.Fatalf("on the due date it is %s", s.Status)
	}
	w.pass(14*day, 7*time.Hour)
	if s := w.sub(ada); s.Status != Paused || w.paused() != 1 {
		t.Fatalf("after the grace period it is %s", s.Status)
	}
	names, bodies := w.events(ada)
	failed := slices.DeleteFunc(slices.Clone(bodies), func(b body) bool { return b.Event != "payment.failed" })
	if len(failed) != 2 || failed[0].Data.Payment["failureCode"] != NotReceived || failed[0].Data.Payment["nextAttemptAt"] == nil || failed[1].Data.Payment["nextAttemptAt"] != nil {
		t.Fatalf("%v: %v", names, failed)
	}
	var steps int
	ok(t, w.db.QueryRow(t.Context(), `SELECT count(*) FROM billing_events WHERE occurrence LIKE '%:step:%'`).Scan(&steps))
	if steps != 4 {
		t.Errorf("%d steps, want 4: on the due date, after 3 and 7 days, and at the end of the grace period", steps)
	}
	w.pass(5*day, 7*time.Hour) // its period has ended meanwhile
	before := w.clock
	w.payAll(ada)
	s := w.sub(ada)
	if s.Status != Active || w.paused() != 0 || s.Start != floor(before, hour) {
		t.Fatalf("paid: %+v", s)
	}
	w.pass(5*hour, hour)
	all := w.invoices(ada)
	if len(all) != 2 || all[1].Status != Open {
		t.Fatalf("%+v", all)
	}
	w.pass(60*day, 7*time.Hour)
	if _, err := w.Subscription(t.Context(), w.db, ada); !fault.Is(err, fault.NotFound) {
		t.Fatalf("a subscription that stays unpaid doesn't end: %v", err)
	}
	_, bodies = w.events(ada)
	last := bodies[len(bodies)-1]
	if last.Event != "subscription.expired" || last.Data.Subscription["reason"] != "unpaid" || w.paused() != 1 {
		t.Errorf("%d sites are paused after %+v", w.paused(), last)
	}
	if code := w.refused(func(tx *db.Tx) error {
		_, _, err := w.DoTx(t.Context(), tx, ada, Action{Kind: Subscribe, Choice: plan.Choice{Plan: "pro"}}, "")
		return err
	}); code != "unpaid_invoices" {
		t.Error(code)
	}
	w.write(func(tx *db.Tx) error { return w.WriteOffTx(t.Context(), tx, string(all[1].ID)) })
	if w.paused() != 0 {
		t.Error("the sites stay paused although nothing is owed")
	}
	w.subscribe(ada, "pro")
	w.sound()
}

// Credit that is granted, or left over from a transfer, pays open invoices at once, in order of their due dates, and
// resumes paused sites.
func TestCreditPaysOpenInvoices(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.site(ada)
	w.plan("pro", 1000)
	w.subscribe(ada, "pro")
	w.pass(29*day, 7*time.Hour)
	if s := w.sub(ada); s.Status != Paused || w.paused() != 1 {
		t.Fatalf("unpaid for 29 days it is %s", s.Status)
	}
	give := func(amount int64) {
		t.Helper()
		w.write(func(tx *db.Tx) error {
			return w.GiveCreditTx(t.Context(), tx, ada, Balance{"EUR", amount}, "an outage")
		})
	}
	left := func(want ...int64) {
		t.Helper()
		var got []int64
		for _, i := range w.invoices(ada) {
			got = append(got, i.Remaining())
		}
		if !slices.Equal(got, want) {
			t.Errorf("%d are left to pay, want %d", got, want)
		}
	}
	first := w.invoices(ada)[0].Total
	give(first - 1)
	left(1)
	if w.paused() != 1 {
		t.Error("the sites are back although 0.01 is open")
	}
	give(51)
	left(0)
	if s := w.sub(ada); s.Status != Active || w.paused() != 0 || w.ledger(ada, credit) != -50 {
		t.Errorf("paid with credit it is %s, and %d are left", s.Status, -w.ledger(ada, credit))
	}
	w.pass(8*day, 7*time.Hour)
	all := w.invoices(ada)
	if len(all) != 2 || all[1].Paid != 50 {
		t.Fatalf("the next invoice: %+v", all)
	}
	// The excess of a transfer pays another invoice.
	w.write(func(tx *db.Tx) error {
		_, err := w.RecordTx(t.Context(), tx, all[0].Number, Received{Amount: 30, Reference: "twice"})
		return err
	})
	left(0, all[1].Total-80)
	names, _ := w.events(ada)
	if n := len(slices.DeleteFunc(names, func(n string) bool { return n != "payment.completed" })); n != 1 {
		t.Errorf("%d payments completed, want that of the transfer", n)
	}
	w.sound()
}

// After an outage over three periods, each period begins once and in order. Drafts older than three days wait for the
// operator.
func TestOutage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.plan("pro", 1000)
	w.subscribe(ada, "pro")
	w.payAll(ada)
	w.pass(100*day, 100*day)
	w.pass(6*hour, hour)
	names, bodies := w.events(ada)
	var starts []string
	for _, b := range bodies {
		if b.Event == "subscription.renewed" {
			starts = append(starts, b.Data.Subscription["currentPeriodStart"].(string)[:10])
		}
	}
	if !slices.Equal(starts, []string{"2026-12-30", "2027-01-30", "2027-02-28"}) {
		t.Errorf("%v: %v", starts, names)
	}
	all := w.invoices(ada)
	if len(all) != 4 || all[1].Status != Draft || !all[1].Held || !all[3].Held {
		t.Fatalf("%+v", all)
	}
	for _, i := range all[1:] {
		w.write(func(tx *db.Tx) error { return w.FinalizeTx(t.Context(), tx, string(i.ID)) })
	}
	if all = w.invoices(ada); all[3].Number != "2027-000003" || all[1].Total != 1190 {
		t.Errorf("%+v", all)
	}
	w.sound()
}

// Fifty plan changes within an hour add up to the cent and cost what the last plan costs for the rest of the period.
func TestManyChanges(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for n := range 52 {
		w.plan(fmt.Sprintf("p%d", n), 1000+int64(n)*37)
	}
	w.subscribe(ada, "p0")
	w.pass(10*day+11*hour, 6*hour)
	for n := 1; n < 52; n++ {
		if n%3 == 0 { // a downgrade is scheduled, and the next upgrade cancels it
			if s := w.do(ada, Action{Kind: Change, Choice: plan.Choice{Plan: "p0"}}); s.Next == "" {
				t.Fatal("the downgrade didn't wait")
			}
		}
		if s := w.do(ada, Action{Kind: Change, Choice: plan.Choice{Plan: fmt.Sprintf("p%d", n)}}); s.Next != "" {
			t.Fatal("the upgrade waits")
		}
	}
	s := w.sub(ada)
	left, whole := hours(floor(w.clock, hour), s.End), hours(s.Start, s.End)
	rest := func(amount int64) int64 { n, _ := money.Share(amount, left, whole); return n }
	if want := -(1000 - rest(1000) + rest(1000+51*37)); w.ledger(ada, revenue) != want {
		t.Errorf("revenue %d, want %d", w.ledger(ada, revenue), want)
	}
	w.sound()
	w.do(ada, Action{Kind: Change, Choice: plan.Choice{Plan: "p0"}})
	w.payAll(ada)
	w.period(ada)
	all := w.invoices(ada)
	if last := all[len(all)-1]; last.Net != 1000 {
		t.Errorf("the downgraded period costs %d", last.Net)
	}
}

// Canceling doesn't keep an overdue account's sites from being paused, or resume them. They resume once it has paid,
// and the cancellation stays.
func TestCancelUnpaid(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		before bool // cancels before the sites are paused
		now    bool // immediately, not at the end of the period
	}{"past due": {before: true}, "past due, at once": {before: true, now: true}, "paused": {}, "paused, at once": {now: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.site(ada)
			w.plan("pro", 9000, func(p *plan.Terms) { p.Term = plan.Year })
			w.subscribe(ada, "pro")
			w.pass(20*day, day)
			if s := w.sub(ada); s.Status != PastDue || w.paused() != 0 {
				t.Fatalf("%+v", s)
			}
			if x.before {
				w.do(ada, Action{Kind: Cancel, Now: x.now})
			}
			w.pass(20*day, day)
			if w.paused() != 1 {
				t.Error("sites are served though an invoice is overdue for longer than the grace period")
			}
			if !x.before {
				w.do(ada, Action{Kind: Cancel, Now: x.now})
			}
			w.pass(day, hour)
			if w.paused() != 1 {
				t.Error("sites are served again without a payment")
			}
			w.payAll(ada)
			if w.paused() != 0 {
				t.Error("sites are paused though everything is paid")
			}
			s, err := w.Subscription(t.Context(), w.db, ada)
			if served := x.before && !x.now; served != (err == nil) || served && s.Status != Canceled {
				t.Errorf("paid: %+v %v", s, err)
			}
			w.sound()
		})
	}
}

// Events of an ended subscription don't affect the next one.
func TestNextSubscription(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.plan("pro", 1000)
	w.subscribe(ada, "pro")
	w.do(ada, Action{Kind: Cancel, Now: true})
	s := w.subscribe(ada, "pro")
	old, is := w.invoices(ada)[0], w.invoices(ada)[1]
	if old.Subscription == is.Subscription {
		t.Fatal("both invoices are of one subscription")
	}
	w.pay(is, is.Total, "the new one")
	w.pass(20*day, day) // the old one's invoice is overdue and paid later
	if now := w.sub(ada); now.ID != s.ID || now.Status != Active || now.UnpaidSince != 0 {
		t.Errorf("while the old one is unpaid: %+v", now)
	}
	w.pay(w.invoices(ada)[0], old.Total, "the old one")
	w.pass(15*day, day) // past the end of both the old and the new period
	if now := w.sub(ada); now.ID != s.ID || now.Status != Active || now.Start != s.End {
		t.Errorf("after the old one's period: %+v", now)
	}
	if names, _ := w.events(ada); slices.Index(names, "subscription.expired") < 0 || slices.Contains(names[slices.Index(names, "subscription.expired")+1:], "subscription.expired") {
		t.Errorf("%v", names)
	}
	w.sound()
}

// A change from monthly to yearly starts a year at once. A change of currency waits for the period's end.
func TestOtherTerms(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.plan("pro", 1000)
	w.plan("pro", 10_000, func(x *plan.Terms) { x.Term = plan.Year })
	w.plan("usd", 9000, func(x *plan.Terms) { x.Currency = "USD" })
	w.subscribe(ada, "pro")
	w.pass(15*day, day)
	s := w.do(ada, Action{Kind: Change, Choice: plan.Choice{Plan: "pro", Term: plan.Year}})
	if s.Start != w.clock || s.End != moment(2027, 12, 15, 9) {
		t.Errorf("%+v", s)
	}
	all := w.invoices(ada)
	if last := all[1]; last.Net != 10_000-500 {
		t.Errorf("%+v", last.Lines())
	}
	s = w.do(ada, Action{Kind: Change, Choice: plan.Choice{Plan: "usd"}})
	if s.Next == "" || len(w.invoices(ada)) != 2 {
		t.Errorf("another currency is charged at once: %+v", s)
	}
	w.payAll(ada)
	w.period(ada)
	if all = w.invoices(ada); len(all) != 3 || all[2].Currency != "USD" || all[2].Net != 9000 {
		t.Errorf("%+v", all[len(all)-1])
	}
	w.sound()
}

// A trial is free, is available once per owner, and is followed by the first paid period.
func TestTrial(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.plan("pro", 1000, func(x *plan.Terms) { x.TrialDays = 14; x.Rates = rate(0, 1, 1) })
	s := w.subscribe(ada, "pro")
	if s.Status != Trialing || s.TrialEnd != w.clock.Add(14*day) || len(w.invoices(ada)) != 0 {
		t.Fatalf("%+v", s)
	}
	w.uses(ada, usage.Bandwidth, w.clock, 500)
	w.do(ada, Action{Kind: Cancel})
	w.write(func(tx *db.Tx) error { _, err := w.ResumeTx(t.Context(), tx, ada); return err })
	w.do(ada, Action{Kind: Cancel})
	w.pass(15*day, 6*hour)
	names, _ := w.events(ada)
	if want := []string{"subscription.created", "subscription.canceled", "subscription.canceled", "subscription.expired"}; !slices.Equal(names, want) {
		t.Errorf("%v", names)
	}
	if s := w.subscribe(ada, "pro"); s.Status != Active || len(w.invoices(ada)) != 1 {
		t.Errorf("a second trial: %+v", s)
	}
	w.subscribe(eve, "pro")
	w.pass(14*day+5*hour, hour)
	if s := w.sub(eve); s.Status != Active || s.Start != s.TrialEnd || s.period != 0 {
		t.Errorf("%+v", s)
	}
	if all := w.invoices(eve); len(all) != 1 || all[0].Net != 1000 {
		t.Errorf("the first period after a trial: %+v", all)
	}
	w.sound()
}

// A preview shows the price of an action. With its digest, the action is done at that price or not at all.
func TestPreview(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.plan("pro", 1000, func(x *plan.Terms) { x.Limits = map[limits.Name]int64{limits.Sites: 0} })
	w.plan("max", 2000)
	a := Action{Kind: Subscribe, Choice: plan.Choice{Plan: "pro"}}
	q, err := w.Preview(t.Context(), w.db, ada, a)
	ok(t, err)
	if q.DueNow != 1190 || q.Tax != 190 || q.Next != 1000 || q.NextAt != moment(2026, 12, 30, 9) || len(q.Lines) != 1 {
		t.Errorf("%+v", q)
	}
	w.clock = w.clock.Add(30 * time.Minute)
	again, err := w.Preview(t.Context(), w.db, ada, a)
	ok(t, err)
	if again.Digest() != q.Digest() {
		t.Error("the price changed within the hour")
	}
	w.plan("pro", 1100)
	do := func(digest string) func(tx *db.Tx) error {
		return func(tx *db.Tx) error {
			_, _, err := w.DoTx(t.Context(), tx, ada, a, digest)
			return err
		}
	}
	if code := w.refused(do(q.Digest())); code != "price_changed" {
		t.Error(code)
	}
	q, err = w.Preview(t.Context(), w.db, ada, a)
	ok(t, err)
	w.write(do(q.Digest()))
	if i := w.invoices(ada)[0]; i.Total != q.Total {
		t.Errorf("the preview said %d, the invoice says %d", q.Total, i.Total)
	}
	a = Action{Kind: Change, Choice: plan.Choice{Plan: "max"}}
	w.pass(9*day, day)
	q, err = w.Preview(t.Context(), w.db, ada, a)
	ok(t, err)
	w.write(do(q.Digest()))
	if i := w.invoices(ada)[1]; i.Total != q.Total || q.Total == 0 || q.NextAt != w.sub(ada).End {
		t.Errorf("the preview said %d, the invoice says %d", q.Total, i.Total)
	}
	w.sound()
}

// Without a budget no usage is charged. With one, usage never costs more than it, in any order of events. A lowered
// budget applies only from then on.
func TestBudgetHolds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.plan("pro", 0, func(x *plan.Terms) {
		x.Rates = map[usage.Meter]money.Rate{
			usage.Bandwidth: {Included: 100, Tiers: []money.Tier{{UpTo: 1000, Amount: 3, Per: 2}, {Amount: 1, Per: 1}}},
			usage.Requests:  {Tiers: []money.Tier{{Amount: 7, Per: 1000}}},
		}
	})
	s := w.subscribe(ada, "pro")
	r := rand.New(rand.NewPCG(26, 3))
	for n := range 15 {
		end, limit := s.End, int64(0)
		if n%3 != 0 {
			limit = r.Int64N(3000)
			w.write(func(tx *db.Tx) error { return w.SetBudgetTx(t.Context(), tx, ada, Balance{"EUR", limit}) })
		}
		for range r.IntN(4) {
			w.uses(ada, usage.Bandwidth, s.Start.Add(time.Duration(r.Int64N(int64(end.Sub(s.Start))))), r.Int64N(2000))
			w.uses(ada, usage.Requests, s.Start.Add(time.Duration(r.Int64N(int64(end.Sub(s.Start))))), r.Int64N(900_000))
		}
		w.pass(end.Sub(w.clock)-6*hour, 5*day)
		w.write(func(tx *db.Tx) error { return w.SetBudgetTx(t.Context(), tx, ada, Balance{"EUR", 0}) }) // too late to avoid the charge
		w.pass(end.Add(6*hour).Sub(w.clock), hour)
		w.payAll(ada)
		all := w.invoices(ada)
		last := all[len(all)-1]
		if last.Net > limit || last.Net < 0 {
			t.Errorf("period %d charges %d, the budget was %d: %+v", n, last.Net, limit, last.Lines())
		}
		s = w.sub(ada)
	}
	w.sound()
}

// Partial, excess and duplicate transfers, and transfers for paid invoices, are handled. Credit pays the next invoice.
// Credit notes and refunds can't exceed the amount that is left.
func TestMoney(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.plan("pro", 1000)
	w.subscribe(ada, "pro")
	i := w.invoices(ada)[0]
	w.pay(i, 190, "a")
	if i = w.invoices(ada)[0]; i.Status != Open || i.Remaining() != 1000 {
		t.Fatalf("%+v", i)
	}
	record := func(amount int64, reference string) func(tx *db.Tx) error {
		return func(tx *db.Tx) error {
			_, err := w.RecordTx(t.Context(), tx, i.Number, Received{Amount: amount, Reference: reference})
			return err
		}
	}
	for code, fn := range map[string]func(tx *db.Tx) error{
		"already_recorded":  record(190, "a"),
		"invalid_amount":    record(-1, "b"),
		"invalid_reference": record(1, ""),
	} {
		if got := w.refused(fn); got != code {
			t.Errorf("%s, want %s", got, code)
		}
	}
	w.pay(i, 1500, "b")
	if i = w.invoices(ada)[0]; i.Status != Paid || w.ledger(ada, credit) != -500 || w.ledger(ada, receivable) != 0 {
		t.Fatalf("%+v, credit %d", i, w.ledger(ada, credit))
	}
	note := func(amount int64) func(tx *db.Tx) error {
		return func(tx *db.Tx) error {
			_, err := w.CreditNoteTx(t.Context(), tx, InvoiceID(i.Number), amount, "An outage")
			return err
		}
	}
	w.write(note(333))
	w.write(note(334))
	if code := w.refused(note(600)); code != "credit_exceeds_invoice" {
		t.Error(code)
	}
	w.write(note(0))
	if code := w.refused(note(1)); code != "credit_exceeds_invoice" {
		t.Error(code)
	}
	if w.ledger(ada, revenue) != 0 || w.ledger(ada, taxes) != 0 || w.ledger(ada, credit) != -500-1190 {
		t.Errorf("revenue %d, tax %d, credit %d", w.ledger(ada, revenue), w.ledger(ada, taxes), w.ledger(ada, credit))
	}
	refund := func(amount int64, reference string) func(tx *db.Tx) error {
		return func(tx *db.Tx) error { return w.RefundTx(t.Context(), tx, ada, Balance{"EUR", amount}, reference) }
	}
	w.write(refund(190, "r1"))
	if got := w.refused(refund(100, "r1")); got != "already_recorded" {
		t.Error(got)
	}
	if got := w.refused(refund(1501, "r2")); got != "refund_exceeds_credit" {
		t.Error(got)
	}
	w.period(ada)
	all := w.invoices(ada)
	if last := all[len(all)-1]; last.Status != Paid || last.Total != 1190 || w.ledger(ada, credit) != -310 {
		t.Errorf("%+v, credit %d", last, w.ledger(ada, credit))
	}
	// An invoice credited in full before its payment needs no payment.
	w.write(func(tx *db.Tx) error { return w.RefundTx(t.Context(), tx, ada, Balance{"EUR", 310}, "r3") })
	w.period(ada)
	all = w.invoices(ada)
	i = all[len(all)-1]
	w.write(note(0))
	all = w.invoices(ada)
	if got := all[len(all)-2]; got.ID != i.ID && all[len(all)-1].ID != i.ID {
		t.Fatal("the invoice is gone")
	}
	if got, err := w.InvoiceOf(t.Context(), w.db, i.Number); err != nil || got.Status != Void || w.ledger(ada, receivable) != 0 {
		t.Errorf("%+v, %v", got, err)
	}
	var notes []string
	for _, x := range w.invoices(ada) {
		if x.Corrects != "" {
			notes = append(notes, x.Number)
		}
	}
	slices.Sort(notes)
	if got := strings.Join(notes, " "); got != "CN-2026-000001 CN-2026-000002 CN-2026-000003 CN-2027-000001" {
		t.Error(got)
	}
	w.sound()
}

// A billing step that fails delays no other step due at the same time, and is retried.
func TestOneFails(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.plan("pro", 1000)
	for _, o := range []id.Owner{ada, eve, "own_zoe"} {
		w.subscribe(o, "pro")
		w.payAll(o)
	}
	version := w.sub(eve).Version
	set := func(v plan.VersionID) {
		ok(t, w.db.Admin(t.Context(), fmt.Sprintf(`UPDATE billing_subscriptions SET version_id = '%s' WHERE owner_id = '%s'`, v, eve)))
	}
	set("plv_none")
	end := w.sub(ada).End
	w.pass(end.Sub(w.clock), 40*day)
	for _, o := range []id.Owner{ada, "own_zoe"} {
		if s := w.sub(o); s.Start != end || len(w.invoices(o)) != 2 {
			t.Errorf("%s is kept waiting: %+v", o, s)
		}
	}
	if s := w.sub(eve); s.Start == end {
		t.Errorf("%+v", s)
	}
	set(version)
	w.pass(hour, hour)
	if s := w.sub(eve); s.Start != end || len(w.invoices(eve)) != 2 {
		t.Errorf("%+v", s)
	}
	w.sound()
}

// Concurrent identical requests take effect once.
func TestAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.plan("pro", 1000)
	all := func(fn func(n int) error) (done int) {
		var group sync.WaitGroup
		var mu sync.Mutex
		for n := range 8 {
			group.Go(func() {
				err := fn(n)
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					done++
				} else if fault.As(err) == nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
		return done
	}
	if n := all(func(int) error {
		return w.db.Write(t.Context(), func(tx *db.Tx) error {
			_, _, err := w.DoTx(t.Context(), tx, ada, Action{Kind: Subscribe, Choice: plan.Choice{Plan: "pro"}}, "")
			return err
		})
	}); n != 1 || len(w.invoices(ada)) != 1 {
		t.Fatalf("%d subscriptions, %d invoices", n, len(w.invoices(ada)))
	}
	i := w.invoices(ada)[0]
	if n := all(func(int) error {
		return w.db.Write(t.Context(), func(tx *db.Tx) error {
			_, err := w.RecordTx(t.Context(), tx, i.Number, Received{Amount: 1190, Reference: "one transfer"})
			return err
		})
	}); n != 1 || w.ledger(ada, cash) != 1190 {
		t.Errorf("recorded %d times: %d", n, w.ledger(ada, cash))
	}
	w.clock = w.sub(ada).End.Add(5 * hour)
	w.seals()
	all(func(int) error { return w.Tick(t.Context()) })
	w.clock = w.clock.Add(2 * hour)
	w.seals()
	all(func(int) error { return w.Tick(t.Context()) })
	names, _ := w.events(ada)
	count := map[string]int{}
	for _, n := range names {
		count[n]++
	}
	if count["subscription.renewed"] != 1 || count["invoice.finalized"] != 2 || count["payment.completed"] != 1 || len(w.invoices(ada)) != 2 {
		t.Errorf("%v, %d invoices", count, len(w.invoices(ada)))
	}
	w.sound()
}

// Invoice numbers have no gaps, even when transactions that took a number roll back.
func TestNumbersWithoutGaps(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.plan("pro", 1000)
	var group sync.WaitGroup
	for n := range 30 {
		group.Go(func() {
			err := w.db.Write(t.Context(), func(tx *db.Tx) error {
				if _, _, err := w.DoTx(t.Context(), tx, id.Owner(fmt.Sprint("own_", n)), Action{Kind: Subscribe, Choice: plan.Choice{Plan: "pro"}}, ""); err != nil {
					return err
				}
				if n%3 == 0 {
					return errUndo
				}
				return nil
			})
			if err != nil && err != errUndo {
				t.Error(err)
			}
		})
	}
	group.Wait()
	var n int64
	ok(t, w.db.QueryRow(t.Context(), `SELECT last FROM billing_numbers WHERE series = ''`).Scan(&n))
	if n != 20 {
		t.Errorf("the last number is %d after 20 invoices", n)
	}
	w.sound()
}

// The plan sets the owner's limits, and a grant overrides them until it expires. A downgrade below current usage
// deletes nothing, and its preview says what exceeds the new limits.
func TestEntitlements(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.plan("pro", 1000, func(x *plan.Terms) { x.Limits = map[limits.Name]int64{limits.Webhooks: 3, limits.Sites: 5} })
	w.plan("mini", 500, func(x *plan.Terms) { x.Limits = map[limits.Name]int64{limits.Webhooks: 1} })
	w.plan("max", 2000, func(x *plan.Terms) { x.Limits = map[limits.Name]int64{limits.Webhooks: 30} })
	limit := func(name limits.Name) int64 {
		n, err := w.c.Limits.LimitOf(t.Context(), w.db, ada, name)
		ok(t, err)
		return n
	}
	w.c.Limits.Count(limits.Webhooks, func(_ context.Context, _ db.Reader, _ id.Owner) (int64, error) { return 2, nil })
	byDefault := limit(limits.Webhooks)
	w.subscribe(ada, "pro")
	if limit(limits.Webhooks) != 3 || limit(limits.Sites) != 5 || limit(limits.Domains) != 10_000 {
		t.Errorf("webhooks %d, sites %d, domains %d", limit(limits.Webhooks), limit(limits.Sites), limit(limits.Domains))
	}
	if err := w.c.Limits.Require(t.Context(), w.db, ada, limits.Webhooks, 2); fault.As(err) == nil || !strings.HasSuffix(fault.As(err).Details, "or choose a larger plan") {
		t.Errorf("at the plan's limit: %v", err)
	} else if l := fault.As(err).Limit; l.Plan != "pro" || l.Upgrade != "max" {
		t.Errorf("%+v", l)
	}
	var g plan.Grant
	w.write(func(tx *db.Tx) (err error) {
		g, err = w.GrantTx(t.Context(), tx, ada, plan.Grant{Name: limits.Webhooks, Value: 9, Until: w.clock.Add(day), Reason: "An add-on"})
		return err
	})
	if limit(limits.Webhooks) != 9 {
		t.Error("a grant doesn't count")
	}
	w.pass(day, day)
	if limit(limits.Webhooks) != 3 {
		t.Error("a grant counts after its end")
	}
	w.write(func(tx *db.Tx) error { return w.RevokeTx(t.Context(), tx, ada, g.ID) })
	q, err := w.Preview(t.Context(), w.db, ada, Action{Kind: Change, Choice: plan.Choice{Plan: "mini"}})
	ok(t, err)
	if len(q.Exceeds) != 1 || q.Exceeds[0].Limit != 1 || q.DueNow != 0 || q.At != w.sub(ada).End {
		t.Errorf("%+v", q)
	}
	w.do(ada, Action{Kind: Cancel, Now: true})
	if limit(limits.Webhooks) != byDefault {
		t.Errorf("after the end it is %d", limit(limits.Webhooks))
	}
}

// With billing turned off, no site is paused for an unpaid invoice. Turning it on again pauses them again.
func TestTurnedOff(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.site(ada)
	w.plan("pro", 1000)
	w.subscribe(ada, "pro")
	w.pass(29*day, day)
	if s := w.sub(ada); s.Status != Paused {
		t.Fatal(s.Status)
	}
	for _, on := range []bool{true, false, false, true} {
		ok(t, Switch(t.Context(), w.db, on))
		if n := w.paused(); n != 1 && on || n != 0 && !on {
			t.Errorf("with billing %t: %d sites are paused", on, n)
		}
	}
}

// Nodes take bandwidth loans from the first byte only for owners whose plan, grant or default limit is small.
func TestSmallPlans(t *testing.T) {
	t.Parallel()
	const little, much = 1 << 20, 1 << 40
	for name, byDefault := range map[string]int64{"much": much, "little": little} {
		w := newWorld(t)
		l := limits.New(limits.Settings{Defaults: map[limits.Name]int64{limits.Bandwidth: byDefault}})
		l.Connect(w.Billing)
		used := usage.New(usage.Config{DB: w.db, Limits: l})
		accounts := account.New(account.Config{DB: w.db})
		for _, p := range []struct {
			name string
			most int64
		}{{"little", little}, {"much", much}} {
			w.plan(p.name, 1000, func(x *plan.Terms) { x.Limits = map[limits.Name]int64{limits.Bandwidth: p.most} })
		}
		w.clock = db.Now()
		want := map[id.Owner]bool{}
		for _, who := range []string{"little", "much", "none", "granted"} {
			u, err := accounts.CreateUser(t.Context(), who+"@example.test", "", false)
			ok(t, err)
			if who == "granted" {
				w.subscribe(u.Owner, "little")
				w.write(func(tx *db.Tx) error {
					_, err := w.GrantTx(t.Context(), tx, u.Owner, plan.Grant{Name: limits.Bandwidth, Value: much, Reason: "a favor"})
					return err
				})
			} else if who != "none" {
				w.subscribe(u.Owner, who)
			}
			want[u.Owner] = who == "little" || who == "none" && byDefault == little
		}
		for range 2 {
			ok(t, used.Schedule(t.Context()))
		}
		for o, is := range want {
			var n int
			ok(t, w.db.QueryRow(t.Context(), `SELECT count(*) FROM usage_caps WHERE owner_id = $1 AND armed`, o).Scan(&n))
			if n == 1 != is {
				t.Errorf("with %s by default: %s has %d caps, want %t", name, o, n, is)
			}
		}
	}
}

// An owner can't read another owner's invoice.
func TestOthersInvoices(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.plan("pro", 1000)
	w.subscribe(ada, "pro")
	i := w.invoices(ada)[0]
	if _, err := w.Invoice(t.Context(), w.db, eve, i.ID); !fault.Is(err, fault.NotFound) {
		t.Errorf("%v", err)
	}
	if list, err := w.Invoices(t.Context(), w.db, eve, i.ID, 10); err != nil || len(list) != 0 {
		t.Errorf("%v, %v", list, err)
	}
	if list, err := w.Payments(t.Context(), w.db, eve, i.ID, 10); err != nil || len(list) != 0 {
		t.Errorf("%v, %v", list, err)
	}
}

// A plan version never changes. A new price applies only to new subscribers.
func TestVersions(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := w.plan("pro", 1000)
	w.subscribe(ada, "pro")
	w.payAll(ada)
	second := w.plan("pro", 2000)
	if second.Number != 2 || first.Number != 1 {
		t.Errorf("versions %d, %d", first.Number, second.Number)
	}
	w.subscribe(eve, "pro")
	w.period(ada)
	if a, e := w.invoices(ada), w.invoices(eve); a[1].Net != 1000 || e[0].Net != 2000 {
		t.Errorf("%d, %d", a[1].Net, e[0].Net)
	}
	w.plan("pro", 3000, func(x *plan.Terms) { x.Public = false })
	if offers, err := w.Offers(t.Context(), w.db, ""); err != nil || len(offers) != 0 {
		t.Errorf("an offer that ended is there: %v, %v", offers, err)
	}
}

// Invalid plans, actions and amounts are refused with an error code.
func TestRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	good := plan.Terms{Plan: "pro", Title: "Pro", Currency: "EUR", Term: plan.Month, Amount: 1, Public: true}
	for code, change := range map[string]func(*plan.Terms){
		"invalid_plan":       func(x *plan.Terms) { x.Plan = "Pro!" },
		"invalid_title":      func(x *plan.Terms) { x.Title = "a\nb" },
		"invalid_amount":     func(x *plan.Terms) { x.Amount = -1 },
		"invalid_currency":   func(x *plan.Terms) { x.Currency = "XXX" },
		"invalid_interval":   func(x *plan.Terms) { x.Term = "week" },
		"invalid_trial_days": func(x *plan.Terms) { x.TrialDays = 1000 },
		"invalid_limits":     func(x *plan.Terms) { x.Limits = map[limits.Name]int64{"wishes": 3} },
		"invalid_rates":      func(x *plan.Terms) { x.Rates = rate(-1, 1, 1) },
		"invalid_cost":       func(x *plan.Terms) { x.Cost = money.Most + 1 },
	} {
		x := good
		change(&x)
		if got := w.refused(func(tx *db.Tx) error { _, err := w.PublishTx(t.Context(), tx, "", x); return err }); got != code {
			t.Errorf("%s, want %s", got, code)
		}
	}
	for _, m := range []Balance{{"EUR", -1}, {"EUR", money.Most + 1}, {"", 5}} {
		for _, fn := range []func(tx *db.Tx) error{
			func(tx *db.Tx) error { return w.SetBudgetTx(t.Context(), tx, ada, m) },
			func(tx *db.Tx) error { return w.GiveCreditTx(t.Context(), tx, ada, m, "a favor") },
			func(tx *db.Tx) error { return w.RefundTx(t.Context(), tx, ada, m, "r") },
		} {
			if code := w.refused(fn); code != "invalid_amount" && code != "invalid_currency" {
				t.Errorf("%+v: %s", m, code)
			}
		}
	}
	// A ledger transaction whose amounts don't sum to 0 is refused.
	err := w.db.Write(t.Context(), func(tx *db.Tx) error {
		return w.postTx(t.Context(), tx, entry{key: "x", owner: ada, currency: "EUR", amounts: map[ledgerAccount]int64{cash: 2, credit: -1}})
	})
	if err == nil {
		t.Error("posted")
	}
}

// A verified VAT number stays verified until the profile changes, and final invoices keep the buyer's details.
func TestReverseCharge(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	buyer := party.Party{Name: "Château SARL", Address: "1 rue de la Paix\n75002 Paris", Country: "FR", VATID: "FR12345678901"}
	save := func() (p party.Profile) {
		w.write(func(tx *db.Tx) (err error) { p, err = w.SaveProfileTx(t.Context(), tx, ada, buyer); return err })
		return p
	}
	if p := save(); p.VAT != party.VATUnchecked {
		t.Errorf("%+v", p)
	}
	w.write(func(tx *db.Tx) error { _, err := w.VerifyVATTx(t.Context(), tx, ada, true); return err })
	if p := save(); p.VAT != party.VATValid { // the same profile again
		t.Errorf("%+v", p)
	}
	w.plan("pro", 1000)
	w.subscribe(ada, "pro")
	i := w.invoices(ada)[0]
	if i.Tax != 0 || !bytes.Contains(i.JSON(), []byte("Reverse charge")) || !bytes.Contains(i.JSON(), []byte("Château SARL")) {
		t.Errorf("%s", i.JSON())
	}
	buyer.VATID = "FR99999999999"
	if p := save(); p.VAT != party.VATUnchecked {
		t.Errorf("%+v", p)
	}
	w.payAll(ada)
	w.period(ada)
	i = w.invoices(ada)[1]
	if i.Tax != 190 || !bytes.Contains(i.JSON(), []byte("VAT is charged because the VAT number FR99999999999 is not verified.")) {
		t.Errorf("%s", i.JSON())
	}
	buyer.VATID = "FR12345678901"
	save()
	w.write(func(tx *db.Tx) error { _, err := w.VerifyVATTx(t.Context(), tx, ada, true); return err })
	buyer.Address = "3 High Street"
	if p := save(); p.VAT != party.VATUnchecked {
		t.Errorf("at another address: %+v", p)
	}
	w.sound() // final invoices keep the buyer's details
}

// A document's PDF is the same bytes every time and shows the document's contents.
func TestPDF(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.plan("pro", 1900)
	w.subscribe(ada, "pro")
	i := w.invoices(ada)[0]
	one, err := document.PDF(i.JSON())
	ok(t, err)
	two, err := document.PDF(i.JSON())
	ok(t, err)
	if !bytes.Equal(one, two) || !bytes.HasPrefix(one, []byte("%PDF-")) || len(one) < 5000 {
		t.Errorf("%d and %d bytes", len(one), len(two))
	}
	var d document.Document
	ok(t, json.Unmarshal(i.JSON(), &d))
	if d.Total != 2261 || d.Due != 2261 || d.Seller.Name != "Acme Hosting GmbH" || d.Payment == "" || len(d.Lines) != 1 {
		t.Errorf("%s", i.JSON())
	}
}

// A coupon redeemed concurrently is redeemed at most as often as allowed, and once per owner. Its discount applies to
// its number of periods.
func TestCoupons(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.plan("pro", 1000)
	w.write(func(tx *db.Tx) error {
		return w.CouponTx(t.Context(), tx, plan.Coupon{Code: "QUARTER", Points: 2500, Periods: 2, Most: 3})
	})
	w.write(func(tx *db.Tx) error {
		return w.CouponTx(t.Context(), tx, plan.Coupon{Code: "TENNER", Amount: 1500, Currency: "EUR", Periods: 1, Until: w.clock.Add(day)})
	})
	for _, bad := range []plan.Coupon{
		{Code: "x", Points: 1, Periods: 1},
		{Code: "BOTH", Points: 1, Amount: 1, Currency: "EUR", Periods: 1},
		{Code: "NONE", Periods: 1},
		{Code: "MUCH", Points: 10_001, Periods: 1},
		{Code: "NEVER", Points: 1},
		{Code: "EVER", Points: 1, Periods: 1000},
	} {
		w.refused(func(tx *db.Tx) error { return w.CouponTx(t.Context(), tx, bad) })
	}
	if code := w.refused(func(tx *db.Tx) error {
		return w.CouponTx(t.Context(), tx, plan.Coupon{Code: "QUARTER", Points: 9000, Periods: 2})
	}); code != "coupon_exists" {
		t.Error(code)
	}
	redeem := func(o id.Owner, code string) error {
		return w.db.Write(t.Context(), func(tx *db.Tx) error {
			_, _, err := w.DoTx(t.Context(), tx, o, Action{Kind: Subscribe, Choice: plan.Choice{Plan: "pro"}, Coupon: code}, "")
			return err
		})
	}
	ok(t, redeem(ada, "QUARTER"))
	var group sync.WaitGroup
	var mu sync.Mutex
	done := 0
	for n := range 12 {
		group.Go(func() {
			if err := redeem(id.Owner(fmt.Sprint("own_", n)), "QUARTER"); err == nil {
				mu.Lock()
				done++
				mu.Unlock()
			} else if fault.As(err) == nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if done != 2 {
		t.Errorf("redeemed %d times, want 2 more", done)
	}
	for _, net := range []int64{750, 750, 1000} {
		all := w.invoices(ada)
		if last := all[len(all)-1]; last.Net != net {
			t.Errorf("%s costs %d, want %d", last.Number, last.Net, net)
		}
		w.payAll(ada)
		w.period(ada)
	}
	if err := redeem(eve, "TENNER"); fault.As(err) == nil || fault.As(err).Code != "invalid_coupon" {
		t.Errorf("an expired coupon: %v", err)
	}
	w.write(func(tx *db.Tx) error {
		return w.CouponTx(t.Context(), tx, plan.Coupon{Code: "FREE", Amount: 1500, Currency: "EUR", Periods: 1})
	})
	q, err := w.Preview(t.Context(), w.db, eve, Action{Kind: Subscribe, Choice: plan.Choice{Plan: "pro"}, Coupon: "FREE"})
	ok(t, err)
	ok(t, redeem(eve, "FREE"))
	if i := w.invoices(eve)[0]; i.Total != 0 || i.Status != Paid || q.DueNow != 0 {
		t.Errorf("more than the price is taken off: %+v", i)
	}
	if names, _ := w.events(eve); slices.Contains(names, "payment.completed") {
		t.Error("nothing was paid, and webhooks were told of a payment")
	}
	w.do(eve, Action{Kind: Cancel, Now: true})
	if err := redeem(eve, "FREE"); fault.As(err) == nil || fault.As(err).Code != "invalid_coupon" {
		t.Errorf("redeemed again: %v", err)
	}
	w.sound()
}
