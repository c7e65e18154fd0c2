package billing

import (
	"fmt"
	"testing"

	"slipway/internal/platform/db"
	"slipway/internal/tenant/billing/plan"
	"slipway/internal/tenant/usage"
)

// BenchmarkDraft rates and drafts an invoice for one period of one owner: four meters and 30 days of usage.
func BenchmarkDraft(b *testing.B) {
	w := newWorld(b)
	w.plan("pro", 1900, func(x *plan.Terms) {
		x.Rates = rate(100, 45, 100)
		for _, m := range []usage.Meter{usage.Requests, usage.Build, usage.CPU} {
			x.Rates[m] = x.Rates[usage.Bandwidth]
		}
	})
	s := w.subscribe(ada, "pro")
	for _, m := range []usage.Meter{usage.Bandwidth, usage.Requests, usage.Build, usage.CPU} {
		for d := range 30 {
			w.uses(ada, m, s.Start+db.Time(int64(d)*day.Milliseconds()), 900)
		}
	}
	n := 0
	for b.Loop() {
		n++
		w.write(func(tx *db.Tx) error {
			x := basis{Charges: []charge{baseCharge(s.Version, s.Start, s.End)}, Usage: &usageSpan{Version: s.Version, From: s.Start, To: s.End}}
			inv, err := w.insertTx(b.Context(), tx, s, fmt.Sprint("bench:", n), x, 0, false)
			if err != nil {
				return err
			}
			i, err := w.InvoiceOf(b.Context(), tx, string(inv))
			if err != nil {
				return err
			}
			return w.fillTx(b.Context(), tx, i)
		})
	}
}

func BenchmarkPreview(b *testing.B) {
	w := newWorld(b)
	w.plan("pro", 1900)
	w.plan("max", 4900)
	w.subscribe(ada, "pro")
	for b.Loop() {
		if _, err := w.Preview(b.Context(), w.db, ada, Action{Kind: Change, Choice: plan.Choice{Plan: "max"}}); err != nil {
			b.Fatal(err)
		}
	}
}
