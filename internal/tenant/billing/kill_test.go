package billing

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
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
	"slipway/internal/tenant/billing/party"
	"slipway/internal/tenant/billing/plan"
	"slipway/internal/tenant/usage"
	"slipway/internal/tenant/webhook"
)

// childVariable makes the test binary run as a node that works until it is killed.
const childVariable = "SLIPWAY_BILLING_NODE"

func TestMain(m *testing.M) {
	if at := os.Getenv(childVariable); at != "" {
		node, rest, _ := strings.Cut(at, " ")
		key, url, _ := strings.Cut(rest, " ")
		fmt.Println("ended:", work(node == "0", key, url))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// work advances time by half a day per step and runs what is due: periods end, invoices are paid, plans change. Node 0
// advances the clock. work prints a line after each commit.
func work(clock bool, key, url string) error {
	ctx := context.Background()
	d, err := db.Open(ctx, db.Config{URL: url, Log: slog.New(slog.DiscardHandler), Readers: 4})
	if err != nil {
		return err
	}
	b := openNode(d, key)
	r := rand.New(rand.NewPCG(rand.Uint64(), 1))
	for {
		if clock {
			if err := d.Write(ctx, func(tx *db.Tx) error {
				_, err := tx.Exec(ctx, `UPDATE usage_sealed SET hour = hour + $1`, (12 * hour).Milliseconds())
				return err
			}); err != nil {
				return err
			}
		}
		fmt.Println("time")
		if err := b.Tick(ctx); err != nil {
			return err
		}
		fmt.Println("tick")
		for _, o := range killOwners {
			err := d.Write(ctx, func(tx *db.Tx) error { return act(ctx, b, tx, o, r) })
			if err != nil && fault.As(err) == nil {
				return err
			}
			fmt.Println("act")
		}
	}
}

// act performs a random action for an owner.
func act(ctx context.Context, b *Billing, tx *db.Tx, o id.Owner, r *rand.Rand) error {
	switch r.IntN(8) {
	case 0, 1, 2:
		all, err := b.Invoices(ctx, tx, o, "", 5)
		if err != nil {
			return err
		}
		for _, i := range all {
			if left := i.Remaining(); left > 0 && r.IntN(3) > 0 {
				_, err := b.RecordTx(ctx, tx, string(i.ID), Received{Amount: left + r.Int64N(3), Reference: fmt.Sprint("transfer for ", i.ID, " after ", i.Paid)})
				return err
			}
		}
	case 3:
		_, _, err := b.DoTx(ctx, tx, o, Action{Kind: Subscribe, Choice: plan.Choice{Plan: "p1"}}, "")
		return err
	case 4, 5:
		_, _, err := b.DoTx(ctx, tx, o, Action{Kind: Change, Choice: plan.Choice{Plan: fmt.Sprint("p", 1+r.IntN(3))}}, "")
		return err
	case 6:
		if r.IntN(6) == 0 {
			_, _, err := b.DoTx(ctx, tx, o, Action{Kind: Cancel, Now: r.IntN(2) == 0}, "")
			return err
		}
	case 7:
		all, err := b.Invoices(ctx, tx, o, "", 3)
		if err == nil && len(all) > 0 && r.IntN(5) == 0 {
			_, err = b.CreditNoteTx(ctx, tx, all[0].ID, 1+r.Int64N(500), "a test")
		}
		return err
	}
	return nil
}

var killOwners = []id.Owner{"own_a", "own_b", "own_c", "own_d"}

// sealClock is a clock shared by all nodes, derived from the sealed hours.
type sealClock struct {
	db    *db.DB
	usage *usage.Usage
}

func (c sealClock) Now() db.Time {
	at, err := c.usage.Sealed(context.Background(), c.db)
	if err != nil {
		panic(err)
	}
	return at.Add(2*hour + 20*time.Minute)
}

// openNode opens the service with the shared clock.
func openNode(d *db.DB, key string) *Billing {
	return openWith(d, key, sealClock{d, usage.New(usage.Config{DB: d})})
}

// After nodes are killed at random moments, the ledger sums to 0, numbers have no gaps, every event is queued once, and
// every invoice can be recomputed. On PostgreSQL two nodes run at the same time. SLIPWAY_KILLS sets the number of
// kills.
func TestKilled(t *testing.T) {
	t.Parallel()
	kills := 25
	if n, err := strconv.Atoi(os.Getenv("SLIPWAY_KILLS")); err == nil {
		kills = n
	}
	url, key := dbtest.URL(t), filepath.Join(t.TempDir(), "key")
	d := dbtest.Open(t, url)
	b := openNode(d, key)
	ok(t, d.Admin(t.Context(), fmt.Sprintf(`UPDATE usage_sealed SET hour = %d`, moment(2027, 1, 31, 0))))
	ok(t, d.Write(t.Context(), func(tx *db.Tx) error {
		s := party.DefaultSettings()
		s.Seller, s.Taxes = party.Party{Name: "Acme", Country: "DE"}, map[string]int64{"DE": 1900}
		if err := b.SaveSettingsTx(t.Context(), tx, "", s); err != nil {
			return err
		}
		for n := int64(1); n <= 3; n++ {
			if _, err := b.PublishTx(t.Context(), tx, "", plan.Terms{
				Plan: fmt.Sprint("p", n), Title: "P", Currency: "EUR", Term: plan.Month, Amount: n * 1037, Public: true, Rates: rate(10, 7, 3),
			}); err != nil {
				return err
			}
		}
		for _, o := range killOwners {
			if _, err := b.c.Hooks.CreateTx(t.Context(), tx, o, webhook.NewWebhook{URL: "https://hooks.example.com/in", Events: []string{
				"subscription.created", "subscription.renewed", "subscription.canceled", "subscription.expired", "payment.completed", "payment.failed", "invoice.finalized",
			}}); err != nil {
				return err
			}
			if err := b.SetBudgetTx(t.Context(), tx, o, Balance{"EUR", 5000}); err != nil {
				return err
			}
		}
		return nil
	}))
	w := &world{Billing: b, t: t, db: d}
	r := rand.New(rand.NewPCG(uint64(kills), 9))
	for _, o := range killOwners {
		for n := range 200 {
			w.uses(o, usage.Bandwidth, moment(2027, 1, 31, 0).Add(time.Duration(n)*3*day+time.Duration(r.Int64N(int64(2*day)))), r.Int64N(900))
		}
	}
	nodes := 1
	if os.Getenv("SLIPWAY_TEST_DSN") != "" {
		nodes = 2
	}
	for range kills {
		done := make(chan error, nodes)
		for n := range nodes {
			lines := 2 + r.IntN(40)
			go func() { done <- killed(t.Context(), fmt.Sprint(n, " ", key, " ", url), lines) }()
		}
		for range nodes {
			ok(t, <-done)
		}
	}
	for range 4 { // finish what was due when the last node was killed
		ok(t, b.Tick(t.Context()))
	}
	found, err := b.Problems(t.Context())
	ok(t, err)
	for _, x := range found {
		t.Error(x)
	}
	numbers, err := b.Numbers(t.Context(), d)
	ok(t, err)
	for _, n := range numbers {
		if x, err := b.Recompute(t.Context(), d, n); err != nil || !x.Same {
			t.Errorf("%s can't be computed again: %v", n, err)
		}
	}
	count := func(query string) (n int) {
		ok(t, d.QueryRow(t.Context(), query).Scan(&n))
		return n
	}
	for name, query := range map[string]string{
		"subscription.created": `SELECT count(*) FROM billing_subscriptions`,
		"subscription.renewed": `SELECT count(*) FROM billing_invoices WHERE cause LIKE 'period:%' AND basis LIKE '%"Usage":{%' OR status = 'draft' AND cause LIKE 'period:%'`,
		"subscription.expired": `SELECT count(*) FROM billing_subscriptions WHERE status = 'expired'`,
		"payment.completed":    `SELECT count(*) FROM billing_payments WHERE status = 'completed'`,
		"payment.failed":       `SELECT count(*) FROM billing_payments WHERE status = 'failed'`,
		"invoice.finalized":    `SELECT count(*) FROM billing_invoices WHERE number <> '' AND corrects = ''`,
	} {
		if events, want := count(`SELECT count(*) FROM webhook_events WHERE name = '`+name+`'`), count(query); events != want {
			t.Errorf("%s was queued %d times, want %d", name, events, want)
		}
	}
	if n := count(`SELECT count(*) FROM billing_ledger WHERE account = 'cash'`); n < kills/5 {
		t.Errorf("only %d transfers were recorded: the nodes do nothing", n)
	}
	t.Logf("%d kills: %d invoices and credit notes, %d events, %d rows of the ledger, until %s",
		kills, len(numbers), count(`SELECT count(*) FROM webhook_events`), count(`SELECT count(*) FROM billing_ledger`), b.now())
}

// killed starts a node and kills it after it has printed some lines.
func killed(ctx context.Context, what string, lines int) error {
	c := exec.CommandContext(ctx, os.Args[0])
	c.Env = append(os.Environ(), childVariable+"="+what)
	out, err := c.StdoutPipe()
	if err != nil {
		return err
	}
	if err := c.Start(); err != nil {
		return err
	}
	in := bufio.NewScanner(out)
	for range lines {
		if !in.Scan() || strings.HasPrefix(in.Text(), "ended") {
			err = errors.Join(err, errors.New("a node ended by itself: "+in.Text()))
			break
		}
	}
	c.Process.Kill()
	c.Wait()
	return err
}
