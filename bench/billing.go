package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"time"

	"slipway/e2e/world"
	"slipway/internal/platform/db"
	"slipway/internal/platform/id"
	"slipway/internal/platform/seal"
	"slipway/internal/tenant/billing"
	"slipway/internal/tenant/billing/party"
	"slipway/internal/tenant/billing/plan"
	"slipway/internal/tenant/money"
	"slipway/internal/tenant/stripe/stripetest"
	"slipway/internal/tenant/usage"
	"slipway/internal/tenant/webhook"
)

// senders is the number of connections that send events.
const senders = 16

// customers is the number of owners with a subscription.
const customers = 10_000

// meters lists the meters that the plan charges for.
var meters = []usage.Meter{usage.Bandwidth, usage.Requests, usage.Build, usage.CPU}

// setClock is a clock that the benchmark sets.
type setClock struct{ at db.Time }

func (c *setClock) Now() db.Time { return c.at }

// billing measures the end of a period for many owners, price previews, and Stripe's webhook.
func (b *bench) billing(w *world.World) error {
	away := stripetest.New()
	server := httptest.NewServer(away)
	defer server.Close()
	away.URL, away.Key = server.URL, "rk_test_0123456789"
	w.Flags = append(w.Flags, "--billing", "--stripe-api", server.URL)
	if err := b.stopped(w, func() error { return b.period(w) }); err != nil {
		return err
	}
	bare, err := b.repeat(w, func(*rand.Rand) world.Request {
		return world.Request{Method: "GET", URL: "http://" + w.Listen + "/healthz"}
	})
	if err != nil {
		return err
	}
	healthz := fmt.Sprintf("/healthz p50 %s, p99 %s", ms(quantile(bare, .5)), ms(quantile(bare, .99)))
	if err := b.call(w, "POST", "/subscription", map[string]any{"plan": "pro"}, nil); err != nil {
		return err
	}
	took, err := b.repeat(w, func(*rand.Rand) world.Request {
		return world.Request{Method: "POST", Path: "/billing/preview", Key: b.key, Body: map[string]any{"action": "change", "plan": "max"}}
	})
	if err != nil {
		return err
	}
	b.add(row{
		what: fmt.Sprintf("POST /billing/preview, %d subscriptions%s", customers, b.on()),
		value: fmt.Sprintf("%.0f/s, p50 %s, p99 %s",
			float64(len(took))/b.load.Seconds(), ms(quantile(took, .5)), ms(quantile(took, .99))),
		yardstick: healthz, goal: "p99 ≤ 50 ms",
	})
	connected, err := w.CLI(away.Key, "billing", "stripe", "connect", "-")
	if err != nil {
		return err
	}
	const secret = "whsec_0123456789abcdef"
	if _, err := w.CLI(secret, "billing", "stripe", "secret", "-"); err != nil {
		return err
	}
	hook := "http://" + w.Listen + regexp.MustCompile(`/hooks/stripe/sta_\w+`).FindString(connected)
	var events atomic.Int64
	took, err = b.repeatBy(w, senders, func(*rand.Rand) world.Request { // Stripe sends the next event without waiting for an answer
		n := events.Add(1)
		body := fmt.Appendf(nil, `{"id":"evt_%d","type":"payment_intent.succeeded","livemode":false,"data":{"object":{"id":"pi_%d"}}}`, n, n)
		signed := http.Header{"Stripe-Signature": {stripetest.Sign(body, secret, time.Now())}}
		return world.Request{Method: "POST", URL: hook, Body: body, Header: signed}
	})
	if err != nil {
		return err
	}
	b.add(row{
		what: "webhooks of Stripe, stored and queued" + b.on(),
		value: fmt.Sprintf("%.0f/s, p50 %s, p99 %s",
			float64(len(took))/b.load.Seconds(), ms(quantile(took, .5)), ms(quantile(took, .99))),
		yardstick: healthz, goal: "1,000/s, p99 ≤ 50 ms",
	})
	return nil
}

// period gives many owners a subscription and a month of usage, and ends the month.
func (b *bench) period(w *world.World) error {
	d, err := open(b.ctx, w)
	if err != nil {
		return err
	}
	defer d.Close()
	sealer, err := seal.Load(filepath.Join(w.Data, "secrets.key"))
	if err != nil {
		return err
	}
	const dayMS = 24 * 3600_000
	start := db.Now() - db.Now()%dayMS - 40*dayMS
	clock := &setClock{start}
	bill := billing.New(billing.Config{
		DB: d, Usage: usage.New(usage.Config{DB: d}), Hooks: webhook.New(webhook.Config{DB: d, Seal: sealer, Billing: true}), Clock: clock,
	})
	if err := d.Write(b.ctx, func(tx *db.Tx) error {
		s := party.DefaultSettings()
		s.Seller, s.Taxes, s.Cards = party.Party{Name: "Acme", Country: "DE"}, map[string]int64{"DE": 1900}, party.CardsOptional
		if err := bill.SaveSettingsTx(b.ctx, tx, "", s); err != nil {
			return err
		}
		for name, amount := range map[string]int64{"pro": 1900, "max": 4900} {
			rates := map[usage.Meter]money.Rate{}
			for _, m := range meters {
				rates[m] = money.Rate{Included: 1000, Tiers: []money.Tier{{UpTo: 5000, Amount: 45, Per: 1000}, {Amount: 30, Per: 1000}}}
			}
			if _, err := bill.PublishTx(b.ctx, tx, "", plan.Terms{
				Plan: name, Title: name, Currency: "EUR", Term: plan.Month, Amount: amount, Public: true, Rates: rates,
			}); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		return err
	}
	for from := 0; from < customers; from += 250 {
		if err := d.Write(b.ctx, func(tx *db.Tx) error {
			for n := from; n < from+250; n++ {
				owner := id.Owner(fmt.Sprintf("own_%06d", n))
				begin := billing.Action{Kind: billing.Subscribe, Choice: plan.Choice{Plan: "pro"}}
				if _, _, err := bill.DoTx(b.ctx, tx, owner, begin, ""); err != nil {
					return err
				}
				if err := bill.SetBudgetTx(b.ctx, tx, owner, billing.Balance{Amount: 100_000, Currency: "EUR"}); err != nil {
					return err
				}
				var rows strings.Builder
				for _, m := range meters {
					for at := range int64(40) {
						if rows.Len() > 0 {
							rows.WriteString(", ")
						}
						fmt.Fprintf(&rows, "('%s', '%s', %d, %d)", owner, m, int64(start)+at*dayMS, 100+n%300)
					}
				}
				if _, err := tx.Exec(b.ctx, `INSERT INTO usage_days (owner_id, meter, day, quantity) VALUES `+rows.String()); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			return err
		}
	}
	var end db.Time
	if err := d.QueryRow(b.ctx, `SELECT MAX(period_end) FROM billing_subscriptions`).Scan(&end); err != nil {
		return err
	}
	if err := d.Admin(b.ctx, fmt.Sprintf(`UPDATE usage_sealed SET hour = %d`, int64(end.Add(3*time.Hour)))); err != nil {
		return err
	}
	step := func(at db.Time, what, goal, query string) error {
		clock.at = at
		begun := time.Now()
		if err := bill.Tick(b.ctx); err != nil {
			return err
		}
		took, n := time.Since(begun), 0
		if err := d.QueryRow(b.ctx, query).Scan(&n); err != nil {
			return err
		}
		if n != customers {
			return fmt.Errorf("%s: %d of %d", what, n, customers)
		}
		b.add(row{what: fmt.Sprintf("%d owners × %d meters, %s%s", customers, len(meters), what, b.on()), value: ms(took), goal: goal})
		return nil
	}
	return errors.Join(
		step(end, "period renewed", "", `SELECT count(*) FROM billing_invoices WHERE status = 'draft'`),
		step(end.Add(3*time.Hour), "rated and drafted", "≤ 60 s",
			`SELECT count(*) FROM billing_invoices WHERE status = 'draft' AND basis LIKE '%"Drafted":true%'`),
		step(end.Add(4*time.Hour), "invoices final", "",
			`SELECT count(*) FROM billing_invoices WHERE status = 'open' AND cause = 'period:`+fmt.Sprint(int64(end))+`'`),
	)
}
