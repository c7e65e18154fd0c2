package stripe

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/dbtest"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/id"
	"slipway/internal/tenant/billing"
	"slipway/internal/tenant/billing/party"
	"slipway/internal/tenant/billing/plan"
	"slipway/internal/tenant/money"
	"slipway/internal/tenant/stripe/stripetest"
	"slipway/internal/tenant/usage"
	"slipway/internal/tenant/webhook"
)

// childVariable makes the test binary run as a node that works until it is killed.
const childVariable = "SLIPWAY_STRIPE_NODE"

const killSecret = "whsec_0123456789abcdef"

var killOwners = []id.Owner{"own_a", "own_b", "own_c", "own_d"}

func TestMain(m *testing.M) {
	if at := os.Getenv(childVariable); at != "" {
		x := strings.Split(at, " ")
		fmt.Println("ended:", work(x[0], x[1], x[2], x[3]))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// prints prints failed billing steps as lines of the node's output, and drops the expected Stripe errors.
type prints struct{}

func (prints) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte("billing step failed")) {
		return os.Stdout.Write(append([]byte("ended: "), b...))
	}
	return len(b), nil
}

// work does a node's work: due steps, payments, refunds and incoming events. Owners subscribe, change plans, pay, get
// refunds and use bandwidth. It prints a line whenever something may be committed, and "counted" before it counts
// usage.
func work(ahead, key, url, api string) error {
	ctx := context.Background()
	d, err := db.Open(ctx, db.Config{URL: url, Log: slog.New(slog.DiscardHandler), Readers: 4})
	if err != nil {
		return err
	}
	c := &clock{}
	n, _ := strconv.ParseInt(ahead, 10, 64)
	c.ahead.Store(n)
	b, sealer := open(d, key, c, slog.New(slog.NewTextHandler(prints{}, &slog.HandlerOptions{Level: slog.LevelError})))
	s := New(Config{DB: d, Seal: sealer, Billing: b, Out: &http.Client{Transport: &http.Transport{}}, API: api, Clock: c})
	b.Connect(s)
	a, err := s.Account(ctx, d)
	if err != nil {
		return err
	}
	go func() { // events, as Stripe sends them
		in := bufio.NewScanner(os.Stdin)
		for in.Scan() {
			_, rest, _ := strings.Cut(in.Text(), " ")
			signature, body, _ := strings.Cut(rest, " ")
			if err := s.Take(ctx, a.ID, signature, []byte(body)); err != nil {
				fmt.Println("ended: take:", err)
				os.Exit(1)
			}
			fmt.Println("took")
			s.FetchAll(ctx) // fails if Stripe fails
			fmt.Println("fetched")
		}
	}()
	r := rand.New(rand.NewPCG(rand.Uint64(), 1))
	used := usage.New(usage.Config{DB: d})
	source, counted := db.NewID("edge"), map[id.Owner]int64{}
	for {
		if err := b.Tick(ctx); err != nil {
			return err
		}
		fmt.Println("tick")
		pending, err := b.Underway(ctx, d, 1000)
		if err != nil {
			return err
		}
		for _, p := range pending {
			if _, err := b.Proceed(ctx, p.ID); err != nil {
				return err
			}
			fmt.Println("paid")
		}
		for _, x := range pendingRefunds(ctx, d) {
			if _, err := b.ProceedRefund(ctx, x); err != nil {
				return err
			}
			fmt.Println("refunded")
		}
		if r.IntN(4) == 0 {
			s.Reconcile(ctx) // fails if Stripe fails
			fmt.Println("reconciled")
		}
		for _, o := range killOwners {
			if err := act(ctx, b, d, o, r); err != nil && fault.As(err) == nil {
				return fmt.Errorf("act: %w", err)
			}
			fmt.Println("act")
			more := 1 + r.Int64N(1000)
			fmt.Println("counted", o, more)
			counted[o] += more
		}
		if err := d.Write(ctx, func(tx *db.Tx) error {
			var rows []usage.Row
			for o, n := range counted {
				rows = append(rows, usage.Row{Owner: o, Meter: usage.Bandwidth, Hour: usedAt, Source: source, Quantity: n})
			}
			return used.MergeTx(ctx, tx, rows)
		}); err != nil {
			return err
		}
		fmt.Println("flushed")
	}
}

// usedAt is the hour of all usage. One is enough, and it is always in the past.
var usedAt = db.Now().Add(-time.Hour)

func pendingRefunds(ctx context.Context, d *db.DB) []string {
	rows, err := d.Query(ctx, `SELECT id FROM billing_refunds WHERE status = 'pending' ORDER BY id`)
	list, err := db.Collect(rows, err, func(s db.Scanner) (x string, err error) { return x, s.Scan(&x) })
	if err != nil {
		panic(err)
	}
	return list
}

// act performs a random action for an owner.
func act(ctx context.Context, b *billing.Billing, d *db.DB, o id.Owner, r *rand.Rand) error {
	choice := plan.Choice{Plan: fmt.Sprint("p", 1+r.IntN(3))}
	do := func(a billing.Action) error {
		return d.Write(ctx, func(tx *db.Tx) error { _, _, err := b.DoTx(ctx, tx, o, a, ""); return err })
	}
	list, err := b.Invoices(ctx, d, o, "", 5)
	if err != nil {
		return err
	}
	var unpaid, paid billing.Invoice
	for _, i := range list {
		if i.Remaining() > 0 {
			unpaid = i
		} else if i.Status == billing.Paid {
			paid = i
		}
	}
	switch r.IntN(10) {
	case 0, 1:
		_, err := b.BeginSetup(ctx, o, "EUR", &billing.Action{Kind: billing.Subscribe, Choice: choice}, "", "https://app.test/account/plan")
		return err
	case 2:
		return do(billing.Action{Kind: billing.Subscribe, Choice: choice, Invoiced: true})
	case 3, 4:
		return do(billing.Action{Kind: billing.Change, Choice: choice})
	case 5:
		if unpaid.ID != "" {
			_, err := b.PayNow(ctx, o, unpaid.ID, "https://app.test/account/invoices")
			return err
		}
	case 6:
		if unpaid.ID != "" && r.IntN(3) == 0 {
			return d.Write(ctx, func(tx *db.Tx) error {
				_, err := b.RecordTx(ctx, tx, string(unpaid.ID), billing.Received{Amount: unpaid.Remaining(), Reference: "transfer for " + string(unpaid.ID)})
				return err
			})
		}
	case 7:
		if paid.ID != "" && r.IntN(3) == 0 {
			return d.Write(ctx, func(tx *db.Tx) error {
				_, err := b.RefundInvoiceTx(ctx, tx, string(paid.ID), 1+r.Int64N(300), "a test")
				return err
			})
		}
	case 8:
		if r.IntN(6) == 0 {
			return do(billing.Action{Kind: billing.Cancel, Now: r.IntN(2) == 0})
		}
	case 9:
		rows, err := d.Query(ctx, `SELECT id FROM billing_setups WHERE owner_id = $1 AND status = 'open' AND session <> '' ORDER BY id DESC LIMIT 3`, o)
		setups, err := db.Collect(rows, err, func(s db.Scanner) (x string, err error) { return x, s.Scan(&x) })
		for _, x := range setups {
			if _, err := b.LookAtSetup(ctx, o, x); err != nil {
				return err
			}
		}
		return err
	}
	return nil
}

// After nodes are killed at random moments while cards are charged, events arrive, periods renew and Stripe fails in
// every way, the ledger matches Stripe, no invoice is paid twice, every event is queued once and numbers have no gaps.
// Stored usage is at least what was written and at most what was counted. On PostgreSQL two nodes run at the same time.
// SLIPWAY_KILLS sets the number of kills.
func TestKilled(t *testing.T) {
	t.Parallel()
	kills := 40
	if n, err := strconv.Atoi(os.Getenv("SLIPWAY_KILLS")); err == nil {
		kills = n
	}
	ctx := t.Context()
	away := stripetest.New()
	away.Key, away.Rate = "rk_test_0123456789", 0.1
	srv := httptest.NewServer(away)
	defer srv.Close()
	away.URL = srv.URL
	url, key := dbtest.URL(t), filepath.Join(t.TempDir(), "key")
	d, c := dbtest.Open(t, url), &clock{}
	b, sealer := open(d, key, c, nil)
	s := New(Config{DB: d, Seal: sealer, Billing: b, Out: srv.Client(), API: srv.URL, Clock: c})
	b.Connect(s)
	hooks := webhook.New(webhook.Config{DB: d, Seal: sealer, Billing: true})
	ok(t, d.Write(ctx, func(tx *db.Tx) error {
		if _, err := s.ConnectTx(ctx, tx, away.Key); err != nil {
			return err
		}
		if _, err := s.SecretTx(ctx, tx, killSecret); err != nil {
			return err
		}
		x := party.DefaultSettings()
		x.Seller, x.Taxes, x.Cards = party.Party{Name: "Acme", Country: "DE"}, map[string]int64{"DE": 1900}, party.CardsOptional
		if err := b.SaveSettingsTx(ctx, tx, "", x); err != nil {
			return err
		}
		for n, amount := range []int64{25, 1037, 2900} { // the first is too little to charge a card
			if _, err := b.PublishTx(ctx, tx, "", plan.Terms{
				Plan: fmt.Sprint("p", n+1), Title: "P", Currency: "EUR", Term: plan.Month, Amount: amount, Public: true,
				Rates: map[usage.Meter]money.Rate{usage.Bandwidth: {Tiers: []money.Tier{{Amount: 1, Per: 1000}}}},
			}); err != nil {
				return err
			}
		}
		for _, o := range killOwners {
			if _, err := hooks.CreateTx(ctx, tx, o, webhook.NewWebhook{URL: "https://hooks.example.com/in", Events: []string{
				"subscription.created", "subscription.renewed", "subscription.canceled", "subscription.expired",
				"payment.completed", "payment.failed", "payment.refunded", "invoice.finalized",
			}}); err != nil {
				return err
			}
		}
		return nil
	}))
	r := rand.New(rand.NewPCG(uint64(kills), 9))
	pass := func(by time.Duration) {
		c.ahead.Add(int64(by))
		away.Pass(by)
		at := c.Now().Add(-2 * time.Hour)
		ok(t, d.Admin(ctx, fmt.Sprintf(`UPDATE usage_sealed SET hour = %d`, at-at%3600_000)))
	}
	nodes := 1
	if os.Getenv("SLIPWAY_TEST_DSN") != "" {
		nodes = 2
	}
	most, least, sent := map[id.Owner]int64{}, map[id.Owner]int64{}, 0
	for range kills {
		visit(away, r) // checkout pages expire after half an hour
		pass(time.Duration(r.Int64N(int64(4 * 24 * time.Hour))))
		events := away.All("evt")[sent:]
		sent += len(events)
		var body strings.Builder
		for range 2 { // each event twice, in any order
			for _, n := range r.Perm(len(events)) {
				text := stripetest.Event(events[n])
				fmt.Fprintf(&body, "%s %s %s\n", events[n]["id"], stripetest.Sign(text, killSecret, c.Now().Time()), text)
			}
		}
		done := make(chan lived, nodes)
		for range nodes {
			lines := 5 + r.IntN(60)
			what := fmt.Sprint(c.ahead.Load(), " ", key, " ", url, " ", srv.URL)
			go func() { done <- killed(ctx, what, body.String(), lines) }()
		}
		for range nodes {
			l := <-done
			ok(t, l.err)
			for o, n := range l.counted {
				most[o] += n
				least[o] += l.flushed[o]
			}
		}
	}
	quiet(t, away, b, s, d, pass)
	sound(t, away, b, d)
	for _, o := range killOwners {
		var n int64
		ok(t, d.QueryRow(ctx, `SELECT CAST(COALESCE(SUM(quantity), 0) AS BIGINT) FROM usage_sources WHERE owner_id = $1`, o).Scan(&n))
		if n > most[o] || n < least[o] {
			t.Errorf("%s has used %d: at most %d were counted, and %d were written", o, n, most[o], least[o])
		}
	}
	var invoices, completed, refunded, rows int
	ok(t, d.QueryRow(ctx, `
		SELECT (SELECT count(*) FROM billing_invoices WHERE number <> ''), (SELECT count(*) FROM billing_payments WHERE status = 'completed' AND provider = 'stripe'),
			(SELECT count(*) FROM billing_refunds WHERE status = 'completed'), (SELECT count(*) FROM billing_ledger)`).Scan(&invoices, &completed, &refunded, &rows))
	if completed == 0 {
		t.Error("no payment by card was completed: the nodes do nothing")
	}
	t.Logf("%d kills of %d nodes: %d invoices and credit notes, %d payments by card, %d refunds, %d events of Stripe, %d rows of the ledger",
		kills, nodes, invoices, completed, refunded, sent, rows)
}

// visit simulates owners on Stripe's pages and on their banks' pages.
func visit(away *stripetest.Server, r *rand.Rand) {
	cards := []string{stripetest.Fine, stripetest.Fine, stripetest.Fine, stripetest.Insufficient, stripetest.Always, stripetest.Declined}
	for _, page := range away.All("cs") {
		if page["status"] == "open" && r.IntN(3) > 0 {
			away.Enter(page["id"].(string), cards[r.IntN(len(cards))])
		}
	}
	for _, pi := range away.All("pi") {
		if pi["status"] == "requires_action" && r.IntN(2) == 0 {
			away.Confirm(pi["id"].(string), r.IntN(2) == 0)
		}
	}
}

// quiet runs everything to its end without kills and faults.
func quiet(t *testing.T, away *stripetest.Server, b *billing.Billing, s *Stripe, d *db.DB, pass func(time.Duration)) {
	t.Helper()
	ctx := t.Context()
	away.Calm()
	for range 6 {
		pass(time.Hour)
		ok(t, b.Tick(ctx))
		list, err := b.Underway(ctx, d, 1000)
		ok(t, err)
		for _, p := range list {
			_, err := b.Proceed(ctx, p.ID)
			ok(t, err)
		}
		for _, x := range pendingRefunds(ctx, d) {
			_, err := b.ProceedRefund(ctx, x)
			ok(t, err)
		}
		ok(t, s.Reconcile(ctx))
		ok(t, d.Admin(ctx, `UPDATE stripe_events SET retry_at = 0`)) // don't wait for the retries
		ok(t, s.FetchAll(ctx))
	}
	var waiting int
	ok(t, d.QueryRow(ctx, `SELECT count(*) FROM stripe_events WHERE done_at = 0`).Scan(&waiting))
	if waiting > 0 {
		t.Errorf("%d events are not fetched", waiting)
	}
}

// sound fails the test if the books have problems or differ from Stripe.
func sound(t *testing.T, away *stripetest.Server, b *billing.Billing, d *db.DB) {
	t.Helper()
	ctx := t.Context()
	found, err := b.Problems(ctx)
	ok(t, err)
	for _, x := range found {
		t.Error(x)
	}
	numbers, err := b.Numbers(ctx, d)
	ok(t, err)
	for _, n := range numbers {
		if x, err := b.Recompute(ctx, d, n); err != nil || !x.Same {
			t.Errorf("%s can't be computed again: %v", n, err)
		}
	}
	count := func(query string, args ...any) (n int64) {
		ok(t, d.QueryRow(ctx, query, args...).Scan(&n))
		return n
	}
	// The ledger has the captured amount of each payment at Stripe.
	captured := map[string]int64{}
	for _, pi := range away.All("pi") {
		if n := pi["amount_received"].(int64); n > 0 {
			captured[pi["id"].(string)] = n
		}
	}
	ledger, err := b.Captured(ctx, d, 0)
	ok(t, err)
	for name, n := range captured {
		if ledger[name] != n {
			t.Errorf("%s: Stripe has %d, the ledger %d", name, n, ledger[name])
		}
	}
	if len(ledger) != len(captured) {
		t.Errorf("the ledger has %d payments, Stripe %d", len(ledger), len(captured))
	}
	if got, want := count(`SELECT CAST(COALESCE(SUM(amount), 0) AS BIGINT) FROM billing_ledger WHERE account = 'cash'`)-
		count(`SELECT CAST(COALESCE(SUM(amount), 0) AS BIGINT) FROM billing_payments WHERE status = 'completed' AND provider = 'manual'`), away.Captured(); got != want {
		t.Errorf("the ledger has %d from cards, Stripe %d", got, want)
	}
	// A transfer that arrives after the card has paid becomes credit.
	if n := count(`SELECT count(*) FROM (SELECT invoice_id FROM billing_payments WHERE status = 'completed' AND provider = 'stripe' GROUP BY invoice_id HAVING count(*) > 1) AS twice`); n > 0 {
		t.Errorf("%d invoices were paid twice", n)
	}
	if n := count(`SELECT count(*) FROM (SELECT subscription_id FROM billing_invoices WHERE cause LIKE 'period:%' GROUP BY subscription_id, cause HAVING count(*) > 1) AS twice`); n > 0 {
		t.Errorf("%d periods have two invoices", n)
	}
	for name, query := range map[string]string{
		"subscription.created":  `SELECT count(*) FROM billing_subscriptions`,
		"subscription.renewed":  `SELECT count(*) FROM billing_events WHERE occurrence LIKE '%:renewed:%'`,
		"subscription.canceled": `SELECT COALESCE(SUM(cancels), 0) FROM billing_subscriptions`,
		"subscription.expired":  `SELECT count(*) FROM billing_subscriptions WHERE status = 'expired'`,
		"payment.completed":     `SELECT count(*) FROM billing_payments WHERE status = 'completed'`,
		"payment.failed":        `SELECT count(*) FROM billing_events WHERE occurrence LIKE '%:failed'`, // some were paid in the end
		"payment.refunded":      `SELECT count(*) FROM billing_refunds WHERE status = 'completed'`,
		"invoice.finalized":     `SELECT count(*) FROM billing_invoices WHERE number <> '' AND corrects = ''`,
	} {
		if events, want := count(`SELECT count(*) FROM webhook_events WHERE name = $1`, name), count(query); events != want {
			t.Errorf("%s was queued %d times, want %d", name, events, want)
		}
	}
	for _, status := range []string{billing.PaymentPending, billing.PaymentUnknown, billing.PaymentProcessing} {
		if n := count(`SELECT count(*) FROM billing_payments WHERE status = $1`, status); n > 0 {
			t.Errorf("%d payments are still %s", n, status)
		}
	}
}

// lived is what a node did until it was killed.
type lived struct {
	counted, flushed map[id.Owner]int64
	err              error
}

// killed starts a node, sends it events and kills it after it has printed some lines.
func killed(ctx context.Context, what, events string, lines int) (l lived) {
	l.counted, l.flushed = map[id.Owner]int64{}, map[id.Owner]int64{}
	c := exec.CommandContext(ctx, os.Args[0])
	c.Env = append(os.Environ(), childVariable+"="+what)
	in, err := c.StdinPipe()
	if err != nil {
		return lived{err: err}
	}
	out, err := c.StdoutPipe()
	if err != nil {
		return lived{err: err}
	}
	if err := c.Start(); err != nil {
		return lived{err: err}
	}
	go io.WriteString(in, events) // fails once the node is killed
	read := bufio.NewScanner(out)
	for n := 0; read.Scan(); n++ { // reads the lines written before the kill, too
		text := read.Text()
		var o id.Owner
		var more int64
		switch {
		case strings.HasPrefix(text, "ended"):
			l.err = errors.Join(l.err, errors.New("a node ended by itself: "+text))
		case strings.HasPrefix(text, "counted"):
			fmt.Sscanf(text, "counted %s %d", &o, &more)
			l.counted[o] += more
		case text == "flushed":
			for o, n := range l.counted {
				l.flushed[o] = n
			}
		}
		if n == lines {
			c.Process.Kill()
		}
	}
	c.Process.Kill()
	c.Wait()
	return l
}
