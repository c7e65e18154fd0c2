package webhook

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"slipway/internal/platform/db"
)

// health summarizes a batch of outcomes of one endpoint.
type health struct {
	succeeded, failed int // attempts
	failures          int // since the last success in the batch
	timeouts          int // the same, without connection or response
	answered          bool
	ok                bool
	gone              bool
	troubled          bool
	cool              db.Time
}

// save stores outcomes and locks the touched endpoints. An outcome whose lease another worker has taken over is only
// logged. The caller sets the endpoints' turns.
func (w *Webhooks) save(ctx context.Context, tx *db.Tx, done []outcome, touched []ID) error {
	slices.SortStableFunc(done, func(a, b outcome) int { return strings.Compare(string(a.hook), string(b.hook)) })
	now := tx.Now()
	hooks := map[ID]*health{}
	var order []ID
	all, attempts := make([]settled, 0, len(done)), make([]settled, 0, len(done))
	for _, o := range done {
		h := hooks[o.hook]
		if h == nil {
			h = &health{}
			hooks[o.hook] = h
			order = append(order, o.hook)
		}
		h.troubled = h.troubled || o.troubled
		x := settled{outcome: o, state: "pending", failures: o.failures}
		switch {
		case o.Abandoned:
			x.next = now.Add(o.Wait)
		case o.Ok():
			x.state, x.finished = "succeeded", now
		default:
			x.failures++
			if x.failures > len(w.c.Schedule) || o.Status == 410 {
				x.state, x.finished = "failed", now
				break
			}
			delay := jitter(w.c.Schedule[x.failures-1])
			if o.Wait > 0 {
				delay = min(max(o.Wait, delay), 24*time.Hour)
			}
			x.next = now.Add(delay)
		}
		all = append(all, x)
		if !o.Abandoned {
			attempts = append(attempts, x)
		}
	}
	if err := lock(ctx, tx, touched, hooks); err != nil {
		return err
	}
	mine, err := writeSettled(ctx, tx, all)
	if err != nil {
		return fmt.Errorf("write outcomes: %w", err)
	}
	if err := writeAttempts(ctx, tx, attempts, mine); err != nil {
		return fmt.Errorf("write attempts: %w", err)
	}
	for _, o := range attempts {
		if !mine[o.Id] {
			continue
		}
		h := hooks[o.hook]
		if o.Ok() {
			h.ok, h.answered, h.failures, h.timeouts = true, true, 0, 0
			h.succeeded++
			continue
		}
		h.failures++
		h.failed++
		if silent(o.outcome) {
			h.timeouts++
		} else {
			h.answered, h.timeouts = true, 0
		}
		h.gone = h.gone || o.Status == 410
		if o.Wait > 0 && (o.Status == 429 || o.Status == 503) {
			h.cool = max(h.cool, now.Add(min(o.Wait, 24*time.Hour)))
		}
	}
	if err := writeHours(ctx, tx, order, hooks, now); err != nil {
		return fmt.Errorf("count attempts: %w", err)
	}
	for _, id := range order {
		if err := w.updateHealth(ctx, tx, id, *hooks[id], now); err != nil {
			return err
		}
	}
	return nil
}

// jitter varies a delay by ±10%.
func jitter(d time.Duration) time.Duration {
	return d + time.Duration((rand.Float64()*2-1)*0.1*float64(d))
}
