package stripe

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/dbtest"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/id"
	"slipway/internal/platform/job"
	"slipway/internal/platform/seal"
	"slipway/internal/tenant/billing"
	"slipway/internal/tenant/billing/document"
	"slipway/internal/tenant/billing/party"
	"slipway/internal/tenant/billing/plan"
	"slipway/internal/tenant/money"
	"slipway/internal/tenant/stripe/stripetest"
	"slipway/internal/tenant/usage"
	"slipway/internal/tenant/webhook"
)

const ada id.Owner = "own_ada"

// clock is the machine's clock plus the time that a test let pass.
type clock struct{ ahead atomic.Int64 }

func (c *clock) Now() db.Time { return db.Now().Add(time.Duration(c.ahead.Load())) }

// world is Billing with a fake Stripe.
type world struct {
	*Stripe
	t      testing.TB
	db     *db.DB
	bill   *billing.Billing
	away   *stripetest.Server
	clock  *clock
	secret string
}

func ok(t testing.TB, err error) {
	t.Helper()
	if f := fault.As(err); f != nil {
		t.Fatal(f.Message, f.Details)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func open(d *db.DB, key string, c db.Clock, log *slog.Logger) (*billing.Billing, *seal.Sealer) {
	sealer, err := seal.Load(key)
	if err != nil {
		panic(err)
	}
	return billing.New(billing.Config{
		DB: d, Hooks: webhook.New(webhook.Config{DB: d, Seal: sealer, Billing: true}), Usage: usage.New(usage.Config{DB: d}), Clock: c, Log: log,
	}), sealer
}

func newWorld(t testing.TB) *world {
	w := &world{t: t, db: dbtest.New(t), away: stripetest.New(), clock: &clock{}, secret: "whsec_0123456789abcdef"}
	w.away.Key, w.away.Mock = "rk_test_0123456789", stripetest.Mock(t)
	srv := httptest.NewServer(w.away)
	t.Cleanup(func() {
		srv.Close()
		for _, why := range w.away.Invalid {
			t.Error("stripe-mock:", why)
		}
	})
	w.away.URL = srv.URL
	var sealer *seal.Sealer
	w.bill, sealer = open(w.db, filepath.Join(t.TempDir(), "key"), w.clock, nil)
	w.Stripe = New(Config{DB: w.db, Seal: sealer, Billing: w.bill, Out: srv.Client(), API: srv.URL, Clock: w.clock})
	w.bill.Connect(w.Stripe)
	w.write(func(tx *db.Tx) error {
		if _, err := w.ConnectTx(t.Context(), tx, w.away.Key+"\n"); err != nil {
			return err
		}
		if _, err := w.SecretTx(t.Context(), tx, w.secret); err != nil {
			return err
		}
		if _, err := webhook.New(webhook.Config{DB: w.db, Seal: sealer, Billing: true}).ListenTx(t.Context(), tx, ada, webhook.NewListener{Secret: "a secret of a test"}); err != nil {
			return err
		}
		s := party.DefaultSettings()
		s.Seller, s.Taxes, s.Cards = party.Party{Name: "Acme", Country: "DE"}, map[string]int64{"DE": 1900}, party.CardsOptional
		if err := w.bill.SaveSettingsTx(t.Context(), tx, "", s); err != nil {
			return err
		}
		for name, trial := range map[string]int64{"pro": 0, "trial": 14} {
			if _, err := w.bill.PublishTx(t.Context(), tx, "", plan.Terms{
				Plan: name, Title: "Pro", Currency: "EUR", Term: plan.Month, Amount: 1900, Public: true, TrialDays: trial,
			}); err != nil {
				return err
			}
		}
		return nil
	})
	return w
}

func (w *world) write(fn func(tx *db.Tx) error) {
	w.t.Helper()
	ok(w.t, w.db.Write(w.t.Context(), fn))
}

// code returns the code of err's fault.
func code(t testing.TB, err error) string {
	t.Helper()
	f := fault.As(err)
	if f == nil {
		t.Fatalf("no fault: %v", err)
	}
	return f.Code
}

// pass advances the clock.
func (w *world) pass(d time.Duration) {
	w.t.Helper()
	w.clock.ahead.Add(int64(d))
	w.away.Pass(d)
	at := w.clock.Now().Add(-2 * time.Hour)
	ok(w.t, w.db.Admin(w.t.Context(), fmt.Sprintf(`UPDATE usage_sealed SET hour = %d`, at-at%3600_000)))
	w.settle()
}

// settle does the jobs' work: due steps, and each payment and refund once.
func (w *world) settle() {
	w.t.Helper()
	ok(w.t, w.bill.Tick(w.t.Context()))
	open, err := w.bill.Underway(w.t.Context(), w.db, 1000)
	ok(w.t, err)
	for _, p := range open {
		if _, err := w.bill.Proceed(w.t.Context(), p.ID); err != nil {
			w.t.Fatal(err)
		}
	}
	rows, err := w.db.Query(w.t.Context(), `SELECT id FROM billing_refunds WHERE status = 'pending'`)
	pending, err := db.Collect(rows, err, func(s db.Scanner) (x string, err error) { return x, s.Scan(&x) })
	ok(w.t, err)
	for _, x := range pending {
		_, err := w.bill.ProceedRefund(w.t.Context(), x)
		ok(w.t, err)
	}
}

// subscribe stores a card and starts a subscription with it.
func (w *world) subscribe(number, name string) {
	w.t.Helper()
	do := &billing.Action{Kind: billing.Subscribe, Choice: plan.Choice{Plan: name}}
	_, err := w.bill.BeginSetup(w.t.Context(), ada, "EUR", do, "", "https://app.test/account/plan")
	ok(w.t, err)
	w.enter(number)
}

// enter completes the fake Stripe's last page and returns from it.
func (w *world) enter(number string) {
	w.t.Helper()
	pages := w.away.All("cs")
	page := pages[len(pages)-1]
	ok(w.t, w.away.Enter(page["id"].(string), number))
	m := page["metadata"].(map[string]string)
	if m["setup"] != "" {
		_, err := w.bill.LookAtSetup(w.t.Context(), ada, m["setup"])
		ok(w.t, err)
	} else {
		_, err := w.bill.LookAtPayment(w.t.Context(), ada, billing.PaymentID(m["payment"]))
		ok(w.t, err)
	}
	w.settle()
}

func (w *world) invoices() []billing.Invoice {
	w.t.Helper()
	list, err := w.bill.Invoices(w.t.Context(), w.db, ada, "", 100)
	ok(w.t, err)
	slices.Reverse(list)
	return list
}

func (w *world) payments() []billing.Payment {
	w.t.Helper()
	list, err := w.bill.Payments(w.t.Context(), w.db, ada, "", 100)
	ok(w.t, err)
	slices.Reverse(list)
	return list
}

// events returns the webhook events and how often each was sent.
func (w *world) events() map[string]int {
	w.t.Helper()
	rows, err := w.db.Query(w.t.Context(), `SELECT body FROM webhook_events WHERE owner_id = $1 ORDER BY id`, ada)
	out := map[string]int{}
	_, err = db.Collect(rows, err, func(s db.Scanner) (x int, err error) {
		var text string
		var e struct{ Event string }
		if err := s.Scan(&text); err != nil {
			return 0, err
		}
		err = json.Unmarshal([]byte(text), &e)
		out[e.Event]++
		return 0, err
	})
	ok(w.t, err)
	return out
}

func (w *world) sum(account string) (n int64) {
	w.t.Helper()
	ok(w.t, w.db.QueryRow(w.t.Context(), `SELECT CAST(COALESCE(SUM(amount), 0) AS BIGINT) FROM billing_ledger WHERE account = $1`, account).Scan(&n))
	return n
}

// sound fails the test if the books have problems or the ledger differs from the fake Stripe.
func (w *world) sound() {
	w.t.Helper()
	found, err := w.bill.Problems(w.t.Context())
	ok(w.t, err)
	for _, x := range found {
		w.t.Error(x)
	}
	if got, want := w.sum("cash"), w.away.Captured(); got != want {
		w.t.Errorf("the ledger has %d, Stripe %d", got, want)
	}
	captured := map[string]int{}
	for _, p := range w.payments() {
		if p.Status == "completed" {
			captured[string(p.Invoice)]++
		}
	}
	for inv, n := range captured {
		if n > 1 {
			w.t.Errorf("%s was paid %d times", inv, n)
		}
	}
}

func (w *world) status() string {
	w.t.Helper()
	s, err := w.bill.Subscription(w.t.Context(), w.db, ada)
	if fault.Is(err, fault.NotFound) {
		return "none"
	}
	ok(w.t, err)
	return string(s.Status)
}

// deliver sends an event to the webhook and runs its job.
func (w *world) deliver(e map[string]any) {
	w.t.Helper()
	a, err := w.Account(w.t.Context(), w.db)
	ok(w.t, err)
	body := stripetest.Event(e)
	ok(w.t, w.Take(w.t.Context(), a.ID, stripetest.Sign(body, w.secret, w.clock.Now().Time()), body))
	w.fetched(e["id"].(string))
}

// fetched runs the job for waiting events and checks that event is done.
func (w *world) fetched(event string) {
	w.t.Helper()
	ok(w.t, w.FetchAll(w.t.Context()))
	var done db.Time
	ok(w.t, w.db.QueryRow(w.t.Context(), `SELECT done_at FROM stripe_events WHERE id = $1`, event).Scan(&done))
	if done == 0 {
		w.t.Fatalf("%s is not fetched", event)
	}
}

// Storing a card starts the chosen subscription and pays its invoices, at once and each month, without any webhook.
func TestSubscribes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.subscribe(stripetest.Fine, "pro")
	if w.status() != "active" {
		t.Fatal(w.status())
	}
	if i := w.invoices(); len(i) != 1 || i[0].Status != billing.Paid || i[0].Total != 2261 {
		t.Fatalf("%+v", i)
	}
	k, err := w.bill.Card(t.Context(), w.db, ada, "EUR")
	ok(t, err)
	if k.Last4 != "4242" || !k.Usable() {
		t.Errorf("%+v", k)
	}
	for range 40 {
		w.pass(20 * time.Hour)
		w.pass(4 * time.Hour)
	}
	if i := w.invoices(); len(i) != 2 || i[1].Status != billing.Paid {
		t.Errorf("%+v", i)
	}
	if got := w.events(); got["payment.completed"] != 2 || got["subscription.created"] != 1 || got["subscription.renewed"] != 1 || got["payment.failed"] != 0 {
		t.Errorf("%v", got)
	}
	w.sound()
}

// A subscription starts at the price that was shown, or not at all. A card can be used for one trial.
func TestSetups(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx := t.Context()
	do := billing.Action{Kind: billing.Subscribe, Choice: plan.Choice{Plan: "pro"}}
	q, err := w.bill.Preview(ctx, w.db, ada, do)
	ok(t, err)
	if _, err := w.bill.BeginSetup(ctx, ada, "EUR", &do, "another", "https://app.test/"); code(t, err) != "price_changed" {
		t.Error(err)
	}
	_, err = w.bill.BeginSetup(ctx, ada, "EUR", &do, q.Digest(), "https://app.test/")
	ok(t, err)
	w.write(func(tx *db.Tx) error {
		_, err := w.bill.PublishTx(ctx, tx, "", plan.Terms{Plan: "pro", Title: "Pro", Currency: "EUR", Term: plan.Month, Amount: 2900, Public: true})
		return err
	})
	w.enter(stripetest.Fine)
	if w.status() != "none" || len(w.payments()) > 0 {
		t.Errorf("%s, %v", w.status(), w.payments())
	}
	pages := w.away.All("cs")
	s, err := w.bill.Setup(ctx, w.db, ada, pages[len(pages)-1]["metadata"].(map[string]string)["setup"])
	ok(t, err)
	if s.Status != "completed" || s.Problem == "" {
		t.Errorf("%+v", s)
	}
	if _, err := w.bill.Setup(ctx, w.db, "own_eve", s.ID); code(t, err) != "visit_not_found" {
		t.Error(err)
	}
	w.subscribe(stripetest.Fine, "trial")
	if w.status() != "trialing" || len(w.payments()) > 0 {
		t.Errorf("%s, %v", w.status(), w.payments())
	}
	// The same card in another account starts no second trial.
	eve := billing.Action{Kind: billing.Subscribe, Choice: plan.Choice{Plan: "trial"}}
	_, err = w.bill.BeginSetup(ctx, "own_eve", "EUR", &eve, "", "https://app.test/")
	ok(t, err)
	pages = w.away.All("cs")
	ok(t, w.away.Enter(pages[len(pages)-1]["id"].(string), stripetest.Fine))
	_, err = w.bill.LookAtSetup(ctx, "own_eve", pages[len(pages)-1]["metadata"].(map[string]string)["setup"])
	ok(t, err)
	if s, err := w.bill.Subscription(ctx, w.db, "own_eve"); err != nil || s.Status != billing.Active {
		t.Errorf("a second trial with the same card: %+v %v", s, err)
	}
	for range 30 {
		_, err = w.bill.BeginSetup(ctx, "own_eve", "EUR", nil, "", "https://app.test/")
	}
	if !fault.Is(err, fault.Limited) {
		t.Errorf("30 pages in an hour: %v", err)
	}
}

// Amounts convert to Stripe's units and back exactly, or can't be charged.
func TestSmallestUnits(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		currency   money.Currency
		ours       int64
		theirs     int64
		exact      bool
		chargeable bool
	}{
		{"EUR", 1900, 1900, true, true},
		{"EUR", 49, 49, true, false},
		{"GBP", 30, 30, true, true},
		{"JPY", 1900, 1900, true, true},
		{"JPY", 49, 49, true, false},
		{"ISK", 19, 1900, true, true},
		{"UGX", 19, 1900, true, true},
		{"UGX", 1 << 50, 0, false, false},
		{"KWD", 12340, 12340, true, true},
		{"KWD", 12345, 0, false, false},
		{"MGA", 190_000, 1900, true, true},
		{"MGA", 190_001, 0, false, false},
	} {
		n, exact := toStripe(tt.currency, tt.ours)
		if exact != tt.exact || exact && (n != tt.theirs || fromStripe(tt.currency, n) != tt.ours) {
			t.Errorf("%s %d: %d, %v", tt.currency, tt.ours, n, exact)
		}
		if got := (*Stripe)(nil).Chargeable(tt.currency, tt.ours); got != tt.chargeable {
			t.Errorf("%s %d: chargeable %v", tt.currency, tt.ours, got)
		}
	}
}

// An owner has one Stripe customer per currency, because a customer can't mix currencies.
func TestCurrencies(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, c := range []money.Currency{"EUR", "USD", "EUR"} {
		_, err := w.bill.BeginSetup(t.Context(), ada, c, nil, "", "https://app.test/")
		ok(t, err)
		w.enter(stripetest.Fine)
	}
	customers := map[string]bool{}
	for _, c := range []money.Currency{"EUR", "USD"} {
		k, err := w.bill.Card(t.Context(), w.db, ada, c)
		ok(t, err)
		if !k.Usable() {
			t.Errorf("%s: %+v", c, k)
		}
		customers[k.Customer] = true
	}
	if len(customers) != 2 || len(w.away.All("cus")) != 2 {
		t.Errorf("%v, %d at Stripe", customers, len(w.away.All("cus")))
	}
}

// An invoice is paid once whatever fails between Slipway and Stripe. While the outcome is unknown, neither a transfer
// nor another card is accepted for it.
func TestCharges(t *testing.T) {
	t.Parallel()
	for name, faults := range map[string][]stripetest.Fault{
		"lost before":     {stripetest.Before},
		"lost after":      {stripetest.After},
		"broken":          {stripetest.Broken},
		"broken after":    {stripetest.Half, stripetest.None, stripetest.Half},
		"busy":            {stripetest.Busy},
		"throttled":       {stripetest.Throttle},
		"one after other": {stripetest.Before, stripetest.Before, stripetest.Broken, stripetest.Broken, stripetest.After, stripetest.After},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			do := &billing.Action{Kind: billing.Subscribe, Choice: plan.Choice{Plan: "pro"}}
			_, err := w.bill.BeginSetup(t.Context(), ada, "EUR", do, "", "https://app.test/account/plan")
			ok(t, err)
			page := w.away.All("cs")[0]
			ok(t, w.away.Enter(page["id"].(string), stripetest.Fine))
			_, err = w.bill.LookAtSetup(t.Context(), ada, page["metadata"].(map[string]string)["setup"])
			ok(t, err)
			w.away.Fail(append(faults, stripetest.Before, stripetest.Before)...) // and the search for the payment fails, too
			w.settle()
			inv := w.invoices()[0]
			if p := w.payments(); len(p) == 1 && p[0].Open() {
				if _, err := w.bill.PayNow(t.Context(), ada, inv.ID, "https://app.test/"); code(t, err) != "payment_open" {
					t.Error(err)
				}
				err := w.db.Write(t.Context(), func(tx *db.Tx) error {
					_, err := w.bill.RecordTx(t.Context(), tx, string(inv.ID), billing.Received{Amount: 2261, Reference: "a transfer"})
					return err
				})
				if code(t, err) != "payment_open" {
					t.Error(err)
				}
			}
			for range 10 {
				w.pass(time.Minute)
			}
			if p := w.payments(); len(p) != 1 || p[0].Status != "completed" || len(w.away.All("pi")) != 1 {
				t.Errorf("%+v, %d at Stripe", p, len(w.away.All("pi")))
			}
			w.sound()
		})
	}
}

// A payment without a response is searched for after a day, and fails if Stripe doesn't know it.
func TestNeverSent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.subscribe(stripetest.Fine, "pro")
	w.pass(31 * 24 * time.Hour)
	w.away.Rate = 0
	w.away.Key = "another" // every call is refused
	for range 9 {
		w.pass(time.Hour)
	}
	if p := w.payments(); len(p) != 2 || p[1].Status != billing.PaymentUnknown {
		t.Fatalf("%+v", p)
	}
	w.pass(24 * time.Hour)
	w.away.Key = "rk_test_0123456789"
	w.pass(time.Minute)
	if p := w.payments(); p[1].Status != "failed" || p[1].FailureCode != "not_sent" || p[1].NextAttemptAt == 0 {
		t.Fatalf("%+v", p)
	}
	w.pass(3 * 24 * time.Hour)
	w.pass(time.Minute)
	if p := w.payments(); len(p) != 3 || p[2].Status != "completed" {
		t.Errorf("%+v", p)
	}
	w.sound()
}

// A card with insufficient funds is retried on days 3, 5, 7 and 14. Then sites are paused until another card pays.
func TestDunning(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.subscribe(stripetest.Insufficient, "pro")
	if w.status() != "past_due" {
		t.Fatal(w.status())
	}
	var tries []int
	for d := range 18 {
		if n := len(w.payments()); len(tries) < n {
			tries = append(tries, d)
		}
		w.pass(24 * time.Hour)
	}
	if !slices.Equal(tries, []int{0, 3, 5, 7, 14}) {
		t.Errorf("tried on the days %v", tries)
	}
	if got := w.events(); got["payment.failed"] != 5 || w.status() != "paused" {
		t.Errorf("%v, %s", got, w.status())
	}
	_, err := w.bill.BeginSetup(t.Context(), ada, "EUR", nil, "", "https://app.test/account/plan")
	ok(t, err)
	w.enter(stripetest.Fine)
	w.settle()
	if w.status() != "active" || w.invoices()[0].Status != billing.Paid {
		t.Errorf("%s, %+v", w.status(), w.invoices())
	}
	w.sound()
}

// An amount too small to charge is carried over until it is large enough. It is paid once and causes no reminder.
func TestCarriedOver(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.write(func(tx *db.Tx) error {
		_, err := w.bill.PublishTx(t.Context(), tx, "", plan.Terms{Plan: "tiny", Title: "Tiny", Currency: "EUR", Term: plan.Month, Amount: 25, Public: true})
		return err
	})
	w.subscribe(stripetest.Fine, "tiny")
	for range 94 { // at least three full months, in daily steps so that no draft is held as late
		w.pass(24 * time.Hour)
	}
	all := w.invoices()
	if len(all) != 4 {
		t.Fatalf("%d invoices", len(all))
	}
	for n, i := range all { // 0.30 EUR each, with tax; two of them are enough
		var d document.Document
		ok(t, json.Unmarshal(i.JSON(), &d))
		carried, before, due := int64(30), int64(0), int64(0)
		if n%2 == 1 {
			carried, before, due = 0, -30, 60
		}
		if i.Status != billing.Paid || d.Carried != carried || d.Credit != before || d.Due != due {
			t.Errorf("invoice %d is %s: %+v", n, i.Status, d)
		}
		if r, err := w.bill.Recompute(t.Context(), w.db, i.Number); err != nil || !r.Same {
			t.Errorf("%s can't be computed again: %v", i.Number, err)
		}
	}
	p := w.payments()
	if len(p) != 2 || p[0].Amount != 60 || p[1].Amount != 60 || w.sum("credit") != 0 || w.sum("receivable") != 0 || w.status() != "active" {
		t.Errorf("%+v, credit %d, %s", p, w.sum("credit"), w.status())
	}
	if got := w.events(); got["payment.completed"] != 2 || got["payment.failed"] != 0 {
		t.Errorf("%v", got)
	}
	w.sound()
}

// The rest of an overdue invoice after a transfer is also carried over, and the subscription continues.
func TestRestIsCarriedOver(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.subscribe(stripetest.Insufficient, "pro")
	if w.status() != "past_due" {
		t.Fatal(w.status())
	}
	w.write(func(tx *db.Tx) error {
		_, err := w.bill.RecordTx(t.Context(), tx, string(w.invoices()[0].ID), billing.Received{Amount: 2241, Reference: "a transfer"})
		return err
	})
	w.pass(4 * 24 * time.Hour)
	if i := w.invoices()[0]; i.Status != billing.Paid || w.status() != "active" || w.sum("credit") != 20 {
		t.Errorf("%+v, %s, credit %d", i, w.status(), w.sum("credit"))
	}
	if found, err := w.bill.Problems(t.Context()); err != nil || len(found) > 0 {
		t.Errorf("%v, %v", found, err)
	}
}

// A stolen card isn't retried. Its owner gets reminders, and no other failure is reported.
func TestHardDecline(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.subscribe(stripetest.Fine, "pro")
	w.away.Change(stripetest.Stolen)
	for range 33 {
		w.pass(24 * time.Hour)
	}
	if p := w.payments(); len(p) != 2 || p[1].Status != "failed" || p[1].FailureCode != "stolen_card" || p[1].NextAttemptAt != 0 {
		t.Errorf("%+v", p)
	}
	for range 20 {
		w.pass(24 * time.Hour)
	}
	if got := w.events(); got["payment.failed"] != 1 || len(w.away.All("pi")) != 2 || w.status() != "paused" {
		t.Errorf("%v, %d at Stripe, %s", got, len(w.away.All("pi")), w.status())
	}
	w.sound()
}

// A payment that needs the bank's confirmation waits for the owner, and stays a single payment whether the owner
// confirms, refuses or never responds.
func TestConfirmation(t *testing.T) {
	t.Parallel()
	for _, do := range []string{"confirm", "refuse", "never"} {
		t.Run(do, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.subscribe(stripetest.Always, "pro")
			p := w.payments()
			if len(p) != 1 || p[0].Status != billing.PaymentRequiresAction || w.events()["payment.failed"] != 0 {
				t.Fatalf("%+v", p)
			}
			inv := w.invoices()[0]
			if do == "never" {
				for range 16 {
					w.pass(24 * time.Hour)
				}
				if p := w.payments(); len(p) != 1 || p[0].Status != "failed" || w.events()["payment.failed"] != 1 {
					t.Errorf("%+v", p)
				}
				if pi := w.away.All("pi")[0]; pi["status"] != "canceled" {
					t.Errorf("%v", pi)
				}
				w.sound()
				return
			}
			url, err := w.bill.PayNow(t.Context(), ada, inv.ID, "https://app.test/account/invoices/x?team=acme")
			ok(t, err)
			again, err := w.bill.PayNow(t.Context(), ada, inv.ID, "https://app.test/account/invoices/x?team=acme")
			ok(t, err)
			if url != again || !strings.Contains(url, "/3ds/pi_") {
				t.Errorf("%s, then %s", url, again)
			}
			back, err := w.away.Confirm(w.away.All("pi")[0]["id"].(string), do == "confirm")
			ok(t, err)
			if back != "https://app.test/account/invoices/x?team=acme&payment="+string(p[0].ID) {
				t.Error(back)
			}
			got, err := w.bill.LookAtPayment(t.Context(), ada, p[0].ID)
			ok(t, err)
			if do == "confirm" && (got.Status != "completed" || w.invoices()[0].Status != billing.Paid) || do == "refuse" && got.Status != "failed" {
				t.Errorf("%+v", got)
			}
			w.sound()
		})
	}
}

// Without a stored card, an invoice is paid on Stripe's page, which also stores the card. An abandoned page expires,
// and another can be opened.
func TestPage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.write(func(tx *db.Tx) error {
		_, _, err := w.bill.DoTx(t.Context(), tx, ada, billing.Action{Kind: billing.Subscribe, Choice: plan.Choice{Plan: "pro"}}, "")
		return err
	})
	inv := w.invoices()[0]
	if inv.Status != billing.Open || len(w.payments()) != 0 {
		t.Fatalf("%+v", inv)
	}
	page := func() string {
		url, err := w.bill.PayNow(t.Context(), ada, inv.ID, "https://app.test/")
		ok(t, err)
		return url
	}
	first := page()
	if again := page(); again != first {
		t.Errorf("%s, then %s", first, again)
	}
	w.pass(30 * time.Minute)
	w.pass(10 * time.Minute)
	if p := w.payments(); len(p) != 1 || p[0].Status != "failed" || p[0].FailureCode != "expired" {
		t.Fatalf("%+v", p)
	}
	w.away.Fail(stripetest.Broken)
	if _, err := w.bill.PayNow(t.Context(), ada, inv.ID, "https://app.test/"); !fault.Is(err, fault.Unavailable) {
		t.Error(err)
	}
	if second := page(); second == first || len(w.away.All("cs")) != 2 {
		t.Errorf("%s, %d pages", second, len(w.away.All("cs")))
	}
	w.enter(stripetest.Fine)
	if w.invoices()[0].Status != billing.Paid {
		t.Errorf("%+v", w.payments())
	}
	k, err := w.bill.Card(t.Context(), w.db, ada, "EUR")
	ok(t, err)
	if !k.Usable() {
		t.Errorf("%+v", k)
	}
	if _, err := w.bill.PayNow(t.Context(), ada, inv.ID, "https://app.test/"); code(t, err) != "invoice_not_open" {
		t.Error(err)
	}
	w.sound()
}

// If the process that opened a page was killed before it stored the page's ID, a payment on that page is still found
// after the page expires. The invoice isn't charged again.
func TestPageOfKilledProcess(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.write(func(tx *db.Tx) error {
		_, _, err := w.bill.DoTx(t.Context(), tx, ada, billing.Action{Kind: billing.Subscribe, Choice: plan.Choice{Plan: "pro"}}, "")
		return err
	})
	_, err := w.bill.PayNow(t.Context(), ada, w.invoices()[0].ID, "https://app.test/")
	ok(t, err)
	ok(t, w.db.Admin(t.Context(), `UPDATE billing_payments SET session = ''`))
	ok(t, w.away.Enter(w.away.All("cs")[0]["id"].(string), stripetest.Fine))
	w.pass(40 * time.Minute)
	if p := w.payments(); len(p) != 1 || p[0].Status != "completed" || w.invoices()[0].Status != billing.Paid {
		t.Errorf("%+v", p)
	}
	w.sound()
}

// Five events, some of them equivalent, give the same books and webhook events in each of their 120 orders, each
// delivered twice.
func TestOrders(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.write(func(tx *db.Tx) error {
		_, _, err := w.bill.DoTx(t.Context(), tx, ada, billing.Action{Kind: billing.Subscribe, Choice: plan.Choice{Plan: "pro"}}, "")
		return err
	})
	seen := 0
	permute(5, func(order []int) {
		seen++
		w.write(func(tx *db.Tx) error {
			if _, err := w.bill.EndTx(t.Context(), tx, ada, true); err != nil {
				return err
			}
			_, _, err := w.bill.DoTx(t.Context(), tx, ada, billing.Action{Kind: billing.Subscribe, Choice: plan.Choice{Plan: "pro"}}, "")
			return err
		})
		list := w.invoices()
		inv := list[0] // the list is newest first; the first one is the open invoice
		for _, i := range list {
			if i.Remaining() > 0 && i.CreatedAt >= inv.CreatedAt {
				inv = i
			}
		}
		before, was := w.events(), len(w.away.All("evt"))
		_, err := w.bill.PayNow(t.Context(), ada, inv.ID, "https://app.test/")
		ok(t, err)
		pages := w.away.All("cs")
		ok(t, w.away.Enter(pages[len(pages)-1]["id"].(string), stripetest.Fine))
		pi := w.away.All("pi")
		w.away.RefundHere(pi[len(pi)-1]["id"].(string), 261)
		d := w.away.Dispute(pi[len(pi)-1]["id"].(string))
		w.away.Decide(d, "won")
		var events []map[string]any
		for _, e := range w.away.All("evt")[was:] {
			if e["type"] != "charge.refunded" {
				events = append(events, e)
			}
		}
		if len(events) != 5 {
			t.Fatalf("%d events", len(events))
		}
		for _, n := range order {
			w.deliver(events[n])
			w.deliver(events[n])
		}
		for range 2 { // an event that arrived before its object is listed again
			for n := range events {
				w.write(func(tx *db.Tx) error {
					_, err := tx.Exec(t.Context(), `UPDATE stripe_events SET done_at = 0 WHERE id = $1`, events[n]["id"])
					return err
				})
				w.fetched(events[n]["id"].(string))
			}
		}
		after := w.events()
		if after["payment.completed"]-before["payment.completed"] != 1 || after["payment.refunded"]-before["payment.refunded"] != 1 ||
			after["payment.disputed"]-before["payment.disputed"] != 2 || after["payment.failed"] != before["payment.failed"] {
			t.Fatalf("%v: %v, then %v", order, before, after)
		}
		if i, err := w.bill.Invoice(t.Context(), w.db, ada, inv.ID); err != nil || i.Status != billing.Paid {
			t.Fatalf("%v: %s %v", order, i.Status, err)
		}
	})
	if seen != 120 {
		t.Errorf("%d orders", seen)
	}
	w.sound()
}

func permute(n int, fn func([]int)) {
	order := make([]int, 0, n)
	var next func()
	next = func() {
		if len(order) == n {
			fn(slices.Clone(order))
			return
		}
		for i := range n {
			if !slices.Contains(order, i) {
				order = append(order, i)
				next()
				order = order[:len(order)-1]
			}
		}
	}
	next()
}

// Unsigned events, events of other accounts and expired signatures are refused and not stored. Repeated events are
// stored once.
func TestTakes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx := t.Context()
	a, err := w.Account(ctx, w.db)
	ok(t, err)
	body := []byte(`{"id":"evt_1","type":"payment_intent.succeeded","livemode":false,"data":{"object":{"id":"pi_1"}}}`)
	now := w.clock.Now().Time()
	for name, x := range map[string]struct {
		account, header string
		body            []byte
		code            string
	}{
		"another secret": {a.ID, stripetest.Sign(body, "whsec_another_secret", now), body, "invalid_signature"},
		"no signature":   {a.ID, "", body, "invalid_signature"},
		"no time":        {a.ID, "v1=00", body, "invalid_signature"},
		"a day old":      {a.ID, stripetest.Sign(body, w.secret, now.Add(-24*time.Hour)), body, "invalid_signature"},
		"an hour ahead":  {a.ID, stripetest.Sign(body, w.secret, now.Add(time.Hour)), body, "invalid_signature"},
		"cut":            {a.ID, stripetest.Sign(body, w.secret, now), body[:50], "invalid_signature"},
		"encoded again":  {a.ID, stripetest.Sign(body, w.secret, now), append([]byte(" "), body...), "invalid_signature"},
		"too long":       {a.ID, "", make([]byte, MaxBody+1), "invalid_signature"},
		"another one":    {"sta_abcdefghijklmnopqrstuvwxyz", stripetest.Sign(body, w.secret, now), body, "webhook_not_found"},
		"live":           signed(w, a.ID, `{"id":"evt_1","type":"a.b","livemode":true,"data":{"object":{"id":"pi_1"}}}`, "foreign_event"),
		"no mode":        signed(w, a.ID, `{"id":"evt_1","type":"a.b","data":{"object":{"id":"pi_1"}}}`, "foreign_event"),
		"of a platform":  signed(w, a.ID, `{"id":"evt_1","type":"a.b","livemode":false,"account":"acct_1","data":{"object":{"id":"pi_1"}}}`, "foreign_event"),
		"not JSON":       signed(w, a.ID, `evt`, "invalid_event"),
		"an odd id":      signed(w, a.ID, `{"id":"../evt","type":"a.b","livemode":false}`, "invalid_event"),
		"an odd object":  signed(w, a.ID, `{"id":"evt_1","type":"a.b","livemode":false,"data":{"object":{"id":"pi_1/../x"}}}`, "invalid_event"),
	} {
		if err := w.Take(ctx, x.account, x.header, x.body); fault.As(err) == nil || fault.As(err).Code != x.code {
			t.Errorf("%s: %v, want %s", name, err, x.code)
		}
	}
	count := func(query string) (n int) {
		ok(t, w.db.QueryRow(ctx, query).Scan(&n))
		return n
	}
	if n := count(`SELECT count(*) FROM stripe_events`); n != 0 {
		t.Errorf("%d events were kept", n)
	}
	// During a rotation both secrets are valid.
	w.write(func(tx *db.Tx) error { _, err := w.SecretTx(ctx, tx, "whsec_the_next_secret_0"); return err })
	var wg sync.WaitGroup
	errs := make([]error, 20)
	for n := range errs {
		secret := []string{w.secret, "whsec_the_next_secret_0"}[n%2]
		wg.Go(func() { errs[n] = w.Take(ctx, a.ID, stripetest.Sign(body, secret, now), body) })
	}
	wg.Wait()
	ok(t, errors.Join(errs...))
	if e, j := count(`SELECT count(*) FROM stripe_events`), count(`SELECT count(*) FROM jobs WHERE kind = 'stripe.events'`); e != 1 || j != 1 {
		t.Errorf("%d events, %d jobs", e, j)
	}
	w.fetched("evt_1") // Stripe doesn't know it
	// Keys and secrets are encrypted and never appear in errors.
	rows, err := w.db.Query(ctx, `SELECT api_key || secret || old_secret FROM stripe_accounts`)
	texts, err := db.Collect(rows, err, func(s db.Scanner) (x string, err error) { return x, s.Scan(&x) })
	ok(t, err)
	text := fmt.Sprint(texts, a, fmt.Sprintf("%v %+v", a, a))
	if strings.Contains(text, "rk_test") || strings.Contains(text, "whsec") {
		t.Error(text)
	}
}

// One job fetches the objects of all waiting events. An event that can't be fetched is retried and delays no other. An
// event that arrives after the job began gets another job.
func TestFetchAll(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx := t.Context()
	a, err := w.Account(ctx, w.db)
	ok(t, err)
	take := func(from, until int) {
		var wg sync.WaitGroup
		errs := make([]error, until)
		for n := from; n < until; n++ {
			body := fmt.Appendf(nil, `{"id":"evt_%d","type":"payment_intent.succeeded","livemode":false,"data":{"object":{"id":"pi_%d"}}}`, n, n)
			wg.Go(func() { errs[n] = w.Take(ctx, a.ID, stripetest.Sign(body, w.secret, w.clock.Now().Time()), body) })
		}
		wg.Wait()
		ok(t, errors.Join(errs...))
	}
	want := func(when string, waiting, jobs int) {
		t.Helper()
		var events, queued int
		ok(t, w.db.QueryRow(ctx, `SELECT (SELECT count(*) FROM stripe_events WHERE done_at = 0), (SELECT count(*) FROM jobs WHERE kind = 'stripe.events')`).
			Scan(&events, &queued))
		if events != waiting || queued != jobs {
			t.Errorf("%s: %d events wait and there are %d jobs, want %d and %d", when, events, queued, waiting, jobs)
		}
	}
	take(0, 30)
	want("taken", 30, 1)
	w.fetching.Lock()
	if err := w.FetchAll(ctx); err == nil || err.Error() != job.Later(fetchPause).Error() {
		t.Errorf("while another fetches: %v", err)
	}
	w.fetching.Unlock()
	ok(t, w.FetchAll(ctx))
	want("fetched", 0, 1)
	take(30, 31)
	want("another came", 1, 2)
	key := w.away.Key
	w.away.Key = "rk_test_another"
	ok(t, w.FetchAll(ctx))
	want("Stripe refused", 1, 3)
	w.away.Key = key
	take(31, 32)
	want("a third came", 2, 4)
	ok(t, w.FetchAll(ctx))
	want("before its time", 1, 4)
	w.clock.ahead.Add(int64(time.Minute))
	ok(t, w.FetchAll(ctx))
	want("tried again", 0, 4)
	w.write(func(tx *db.Tx) error { return w.DisconnectTx(ctx, tx) })
	ok(t, w.FetchAll(ctx))
}

func signed(w *world, account, body, code string) struct {
	account, header string
	body            []byte
	code            string
} {
	return struct {
		account, header string
		body            []byte
		code            string
	}{account, stripetest.Sign([]byte(body), w.secret, w.clock.Now().Time()), []byte(body), code}
}

// A refund is paid once, however often it is sent, and refunds never exceed the payment.
func TestRefunds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.subscribe(stripetest.Fine, "pro")
	inv := string(w.invoices()[0].ID)
	refund := func(n int64) error {
		return w.db.Write(t.Context(), func(tx *db.Tx) error {
			_, err := w.bill.RefundInvoiceTx(t.Context(), tx, inv, n, "a test")
			return err
		})
	}
	if err := refund(2262); code(t, err) != "refund_exceeds_payment" {
		t.Error(err)
	}
	ok(t, refund(1000))
	w.away.Fail(stripetest.None, stripetest.After)
	w.settle()
	w.settle()
	if r := w.away.All("re"); len(r) != 1 || w.events()["payment.refunded"] != 1 {
		t.Errorf("%v, %v", r, w.events())
	}
	if err := refund(1262); code(t, err) != "refund_exceeds_payment" {
		t.Error(err)
	}
	ok(t, refund(0))
	w.settle()
	if r := w.away.All("re"); len(r) != 2 || w.sum("cash") != 0 || w.sum("refund") != 0 || w.sum("credit") != 0 {
		t.Errorf("%v", r)
	}
	if err := refund(0); code(t, err) != "no_card_payment" {
		t.Error(err)
	}
	w.sound()
}

// A disputed payment reopens its invoice. If the dispute is won, the invoice is paid again without a second
// payment.completed; if it is lost, it stays open.
func TestDisputes(t *testing.T) {
	t.Parallel()
	for _, end := range []string{"won", "lost"} {
		t.Run(end, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.subscribe(stripetest.Fine, "pro")
			d := w.away.Dispute(w.away.All("pi")[0]["id"].(string))
			ok(t, w.Reconcile(t.Context()))
			w.fetchAll()
			if i := w.invoices()[0]; i.Remaining() != 2261 {
				t.Fatalf("%+v", i)
			}
			w.settle()
			w.sound()
			w.away.Decide(d, end)
			ok(t, w.Reconcile(t.Context()))
			w.fetchAll()
			i := w.invoices()[0]
			if want := map[string]int64{"won": 0, "lost": 2261}[end]; i.Remaining() != want {
				t.Errorf("%+v", i)
			}
			if got := w.events(); got["payment.completed"] != 1 || got["payment.disputed"] != 2 || len(w.payments()) != 1 {
				t.Errorf("%v", got)
			}
			w.sound()
		})
	}
}

// fetchAll runs the jobs of all events, including those waiting for a retry.
func (w *world) fetchAll() {
	w.t.Helper()
	w.write(func(tx *db.Tx) error {
		_, err := tx.Exec(w.t.Context(), `UPDATE stripe_events SET retry_at = 0`)
		return err
	})
	ok(w.t, w.FetchAll(w.t.Context()))
	var waiting int
	ok(w.t, w.db.QueryRow(w.t.Context(), `SELECT count(*) FROM stripe_events WHERE done_at = 0`).Scan(&waiting))
	if waiting > 0 {
		w.t.Fatalf("%d events are not fetched", waiting)
	}
}

// Without any webhook, changes at Stripe are known after the next listing, and differences from the ledger are
// reported.
func TestReconciles(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.subscribe(stripetest.Fine, "pro")
	w.away.RefundHere(w.away.All("pi")[0]["id"].(string), 500)
	w.pass(10 * time.Minute)
	ok(t, w.Reconcile(t.Context()))
	w.fetchAll()
	if w.sum("cash") != 1761 {
		t.Errorf("%d", w.sum("cash"))
	}
	w.sound()
	a, err := w.Account(t.Context(), w.db)
	ok(t, err)
	if len(a.Differences) != 0 || a.ComparedAt == 0 || a.ReadUntil < w.clock.Now().Add(-time.Minute) {
		t.Errorf("%+v", a.Differences)
	}
	ok(t, w.db.Admin(t.Context(), `UPDATE billing_payments SET reference = 'pi_other'`))
	w.pass(25 * time.Hour)
	ok(t, w.Reconcile(t.Context()))
	if a, err = w.Account(t.Context(), w.db); err != nil || len(a.Differences) != 2 {
		t.Errorf("%v %v", a.Differences, err)
	}
}

// With a third of all requests failing and events in any order, repeated or missing, each invoice is paid once and the
// ledger matches Stripe.
func TestFaults(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.subscribe(stripetest.Fine, "pro")
	w.away.Rate = 0.3
	r := rand.New(rand.NewPCG(7, 7))
	seen := map[string]bool{}
	for day := range 150 {
		w.pass(24 * time.Hour)
		switch r.IntN(6) {
		case 0:
			w.away.Change([]string{stripetest.Fine, stripetest.Fine, stripetest.Insufficient, stripetest.Always}[r.IntN(4)])
		case 1:
			for _, i := range w.invoices() {
				if i.Remaining() > 0 {
					w.bill.PayNow(t.Context(), ada, i.ID, "https://app.test/")
				}
			}
			for _, pi := range w.away.All("pi") {
				if pi["status"] == "requires_action" && r.IntN(2) == 0 {
					w.away.Confirm(pi["id"].(string), r.IntN(3) > 0)
				}
			}
			for _, page := range w.away.All("cs") {
				if page["status"] == "open" && r.IntN(2) == 0 {
					w.away.Enter(page["id"].(string), stripetest.Fine)
				}
			}
		case 2:
			all := w.invoices()
			if day%3 == 0 {
				w.db.Write(t.Context(), func(tx *db.Tx) error {
					_, err := w.bill.RefundInvoiceTx(t.Context(), tx, string(all[r.IntN(len(all))].ID), 1+r.Int64N(300), "a test")
					return err
				})
			}
		}
		events := w.away.All("evt")
		for range 5 {
			if e := events[r.IntN(len(events))]; r.IntN(2) == 0 || !seen[e["id"].(string)] {
				seen[e["id"].(string)] = true
				a, err := w.Account(t.Context(), w.db)
				ok(t, err)
				body := stripetest.Event(e)
				ok(t, w.Take(t.Context(), a.ID, stripetest.Sign(body, w.secret, w.clock.Now().Time()), body))
				ok(t, w.FetchAll(t.Context())) // failed events are retried
			}
		}
	}
	w.away.Rate = 0
	w.away.Change(stripetest.Fine)
	for range 3 {
		w.pass(time.Hour)
		ok(t, w.Reconcile(t.Context()))
		w.fetchAll()
	}
	w.sound()
	captured := map[string]int64{}
	for _, pi := range w.away.All("pi") {
		if pi["status"] == "succeeded" {
			captured[fmt.Sprint(pi["metadata"])]++
		}
	}
	for m, n := range captured {
		if n > 1 {
			t.Errorf("%s was captured %d times", m, n)
		}
	}
	if len(captured) < 3 {
		t.Errorf("only %d payments", len(captured))
	}
}
