package billing

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/dbtest"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/id"
	"slipway/internal/platform/seal"
	"slipway/internal/tenant/billing/party"
	"slipway/internal/tenant/billing/plan"
	"slipway/internal/tenant/limits"
	"slipway/internal/tenant/money"
	"slipway/internal/tenant/usage"
	"slipway/internal/tenant/webhook"
)

const (
	ada id.Owner = "own_ada"
	eve id.Owner = "own_eve"
)

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		if f := fault.As(err); f != nil {
			t.Fatal(err, f.Details)
		}
		t.Fatal(err)
	}
}

// world is the service with a clock that the test sets.
type world struct {
	*Billing
	t     testing.TB
	db    *db.DB
	clock db.Time
}

// Now returns the test's time.
func (w *world) Now() db.Time { return w.clock }

func moment(y int, m time.Month, d, h int) db.Time {
	return db.At(time.Date(y, m, d, h, 0, 0, 0, time.UTC))
}

// openWith returns the service on a database.
func openWith(d *db.DB, key string, clock db.Clock) *Billing {
	sealer, err := seal.Load(key)
	if err != nil {
		panic(err)
	}
	l := limits.New(limits.Settings{})
	b := New(Config{
		DB: d, Hooks: webhook.New(webhook.Config{DB: d, Seal: sealer, Billing: true}), Limits: l, Clock: clock,
		Usage: usage.New(usage.Config{DB: d, Limits: l, Clock: clock}),
	})
	l.Connect(b)
	return b
}

func newWorld(t testing.TB) *world {
	w := &world{t: t, db: dbtest.New(t), clock: moment(2026, 11, 30, 9)}
	w.Billing = openWith(w.db, filepath.Join(t.TempDir(), "key"), w)
	for _, o := range []id.Owner{ada, eve} {
		w.write(func(tx *db.Tx) error {
			_, err := w.c.Hooks.ListenTx(t.Context(), tx, o, webhook.NewListener{Secret: "a secret of a test"})
			return err
		})
	}
	w.write(func(tx *db.Tx) error {
		s := party.DefaultSettings()
		s.Seller = party.Party{Name: "Acme Hosting GmbH", Address: "Hafenstraße 1\n20457 Hamburg", Country: "DE", VATID: "DE123456789"}
		s.Taxes, s.Payment = map[string]int64{"DE": 1900, "FR": 2000}, "IBAN DE02 1203 0000 0000 2020 51"
		return w.SaveSettingsTx(t.Context(), tx, "", s)
	})
	return w
}

func (w *world) write(fn func(tx *db.Tx) error) {
	w.t.Helper()
	ok(w.t, w.db.Write(w.t.Context(), fn))
}

// refused runs fn and returns the code of its fault.
func (w *world) refused(fn func(tx *db.Tx) error) string {
	w.t.Helper()
	err := w.db.Write(w.t.Context(), fn)
	f := fault.As(err)
	if f == nil {
		w.t.Fatalf("no fault: %v", err)
	}
	return f.Code
}

// plan publishes a monthly plan.
func (w *world) plan(name string, amount int64, change ...func(*plan.Terms)) plan.Version {
	w.t.Helper()
	terms := plan.Terms{Plan: name, Title: "Plan " + name, Currency: "EUR", Term: plan.Month, Amount: amount, Public: true}
	for _, c := range change {
		c(&terms)
	}
	var v plan.Version
	w.write(func(tx *db.Tx) (err error) {
		v, err = w.PublishTx(w.t.Context(), tx, "", terms)
		return err
	})
	return v
}

func (w *world) do(o id.Owner, a Action) Subscription {
	w.t.Helper()
	var s Subscription
	w.write(func(tx *db.Tx) (err error) {
		s, _, err = w.DoTx(w.t.Context(), tx, o, a, "")
		return err
	})
	return s
}

func (w *world) subscribe(o id.Owner, name string) Subscription {
	w.t.Helper()
	return w.do(o, Action{Kind: Subscribe, Choice: plan.Choice{Plan: name}})
}

// seals seals all hours up to the clock.
func (w *world) seals() {
	w.t.Helper()
	ok(w.t, w.db.Admin(w.t.Context(), fmt.Sprintf(`UPDATE usage_sealed SET hour = %d`, floor(w.clock.Add(-2*hour), hour).Add(-hour))))
}

// pass advances the clock by d in steps and runs what is due after each step.
func (w *world) pass(d, step time.Duration) {
	w.t.Helper()
	for end := w.clock.Add(d); w.clock < end; {
		w.clock = min(w.clock.Add(step), end)
		w.seals()
		ok(w.t, w.Tick(w.t.Context()))
	}
}

// period advances to the end of an owner's period, until its invoice is final.
func (w *world) period(o id.Owner) {
	w.t.Helper()
	w.pass(w.sub(o).End.Sub(w.clock), 5*day)
	w.pass(6*hour, hour)
}

// site creates a site for an owner.
func (w *world) site(o id.Owner) {
	w.t.Helper()
	ok(w.t, w.db.Admin(w.t.Context(), fmt.Sprintf(`
		INSERT INTO sites (id, owner_id, name, slug, type, runtime, status, status_reason, repository, branch, framework, build, credential,
			needs_redeploy, live_deployment, live_release, live_version, created_at, updated_at, deleted_at)
		VALUES ('site_a', '%s', 'a', 'a', 'static', 'static', 'active', '', '', '', '', '{}', '', FALSE, '', '', 0, 0, 0, 0)`, o)))
}

// paused returns the number of sites paused for an unpaid invoice.
func (w *world) paused() (n int) {
	w.t.Helper()
	ok(w.t, w.db.QueryRow(w.t.Context(), `SELECT count(*) FROM paused_sites WHERE month = 0`).Scan(&n))
	return n
}

// uses writes sealed usage.
func (w *world) uses(o id.Owner, m usage.Meter, at db.Time, n int64) {
	w.t.Helper()
	for _, q := range []string{
		`INSERT INTO usage_hours (owner_id, meter, hour, quantity) VALUES ('%s', '%s', %d, %d) ON CONFLICT (owner_id, meter, hour) DO UPDATE SET quantity = usage_hours.quantity + excluded.quantity`,
		`INSERT INTO usage_days (owner_id, meter, day, quantity) VALUES ('%s', '%s', %d, %d) ON CONFLICT (owner_id, meter, day) DO UPDATE SET quantity = usage_days.quantity + excluded.quantity`,
	} {
		span := hour
		if q[12+6:12+10] == "days" {
			span = day
		}
		ok(w.t, w.db.Admin(w.t.Context(), fmt.Sprintf(q, o, m, int64(floor(at, span)), n)))
	}
}

func (w *world) sub(o id.Owner) Subscription {
	w.t.Helper()
	s, err := w.Subscription(w.t.Context(), w.db, o)
	ok(w.t, err)
	return s
}

// invoices returns an owner's invoices, oldest first.
func (w *world) invoices(o id.Owner) []Invoice {
	w.t.Helper()
	list, err := w.Invoices(w.t.Context(), w.db, o, "", 1000)
	ok(w.t, err)
	for i, j := 0, len(list)-1; i < j; i, j = i+1, j-1 {
		list[i], list[j] = list[j], list[i]
	}
	return list
}

func (w *world) pay(i Invoice, amount int64, reference string) Payment {
	w.t.Helper()
	var p Payment
	w.write(func(tx *db.Tx) (err error) {
		p, err = w.RecordTx(w.t.Context(), tx, string(i.ID), Received{Amount: amount, Reference: reference})
		return err
	})
	return p
}

// payAll pays all open invoices.
func (w *world) payAll(o id.Owner) {
	w.t.Helper()
	for _, i := range w.invoices(o) {
		if left := i.Remaining(); left > 0 {
			w.pay(i, left, "transfer of "+string(i.ID))
		}
	}
}

type body struct {
	Event string
	Data  struct {
		Subscription, Payment, Invoice map[string]any
	}
}

// events returns the webhook events of an owner in order.
func (w *world) events(o id.Owner) (names []string, bodies []body) {
	w.t.Helper()
	rows, err := w.db.Query(w.t.Context(), `SELECT body FROM webhook_events WHERE owner_id = $1 ORDER BY id`, o)
	bodies, err = db.Collect(rows, err, func(s db.Scanner) (b body, err error) {
		var text string
		if err := s.Scan(&text); err != nil {
			return b, err
		}
		return b, json.Unmarshal([]byte(text), &b)
	})
	ok(w.t, err)
	for _, b := range bodies {
		names = append(names, b.Event)
	}
	return names, bodies
}

// sound fails the test if the books have problems or an invoice can't be recomputed byte for byte.
func (w *world) sound() {
	w.t.Helper()
	found, err := w.Problems(w.t.Context())
	ok(w.t, err)
	for _, x := range found {
		w.t.Error(x)
	}
	for _, o := range []id.Owner{ada, eve} {
		for _, i := range w.invoices(o) {
			if i.Number == "" {
				continue
			}
			r, err := w.Recompute(w.t.Context(), w.db, i.Number)
			ok(w.t, err)
			if !r.Same {
				w.t.Errorf("%s can't be computed again: %s", i.Number, i.document)
			}
		}
	}
}

// ledger returns the balance of a ledger account.
func (w *world) ledger(o id.Owner, a ledgerAccount) (n int64) {
	w.t.Helper()
	ok(w.t, w.db.QueryRow(w.t.Context(), `SELECT CAST(COALESCE(SUM(amount), 0) AS BIGINT) FROM billing_ledger WHERE owner_id = $1 AND account = $2`, o, a).Scan(&n))
	return n
}

var errUndo = errors.New("undo")

func rate(included, amount, per int64) map[usage.Meter]money.Rate {
	return map[usage.Meter]money.Rate{usage.Bandwidth: {Included: included, Tiers: []money.Tier{{Amount: amount, Per: per}}}}
}
