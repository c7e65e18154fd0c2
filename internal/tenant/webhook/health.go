package webhook

import (
	"context"
	"fmt"
	"time"

	"slipway/internal/platform/chunk"
	"slipway/internal/platform/db"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/webhook/delivery"
)

// When a failing endpoint is called less often, reported and disabled.
const (
	breakerAfter = 5                  // consecutive attempts without a connection or response
	probeEvery   = time.Minute        // while the breaker is open
	warnAfter    = 24 * time.Hour     // with failures only
	disableAfter = 5 * 24 * time.Hour // with failures only
	disableFrom  = 10                 // minimum number of attempts since the last success
)

// silent reports whether an attempt got no connection or response, which the breaker counts.
func silent(o outcome) bool {
	switch o.Err {
	case delivery.ReasonTimeout, delivery.ReasonConnect, delivery.ReasonDNS:
		return true
	}
	return false
}

// lock locks the endpoints' rows in the order of their IDs if other nodes may write, and records in of which endpoints
// failed meanwhile.
func lock(ctx context.Context, tx *db.Tx, ids []ID, of map[ID]*health) error {
	if tx.Single() {
		return nil
	}
	err := chunk.Each(ids, func(part []ID) error {
		var args db.Args
		rows, err := tx.Query(ctx, `SELECT id, failures > 0 OR succeeded_at = 0 FROM webhooks WHERE id IN (`+db.AddList(
			&args,
			part,
		)+`) ORDER BY id FOR UPDATE`, args...)
		_, err = db.Collect(rows, err, func(r db.Scanner) (_ struct{}, err error) {
			var id ID
			var troubled bool
			if err = r.Scan(&id, &troubled); err == nil && troubled && of[id] != nil {
				of[id].troubled = true
			}
			return struct{}{}, err
		})
		return err
	})
	if err != nil {
		return fmt.Errorf("lock webhooks: %w", err)
	}
	return nil
}

// updateHealth stores an endpoint's results. The caller sets its turn.
func (w *Webhooks) updateHealth(ctx context.Context, tx *db.Tx, id ID, h health, now db.Time) error {
	if h.failures > 0 || h.ok && h.troubled { // otherwise nothing changes
		if _, err := tx.Exec(ctx, `
				UPDATE webhooks SET
					failures = CASE WHEN $2 THEN 0 ELSE failures END + $3,
					failing_since = CASE WHEN $3 = 0 THEN CASE WHEN $2 THEN 0 ELSE failing_since END
						WHEN failing_since = 0 OR $2 THEN $4 ELSE failing_since END,
					timeouts = CASE WHEN $6 THEN 0 ELSE timeouts END + CAST($7 AS BIGINT),
					succeeded_at = CASE WHEN $2 THEN $4 ELSE succeeded_at END,
					warned_at = CASE WHEN $2 THEN 0 ELSE warned_at END,
					floor_at = CASE
						WHEN CAST($7 AS BIGINT) > 0 AND CASE WHEN $6 THEN 0 ELSE timeouts END + CAST($7 AS BIGINT) >= CAST($8 AS BIGINT)
						AND CAST($9 AS BIGINT) > CAST($5 AS BIGINT) THEN CAST($9 AS BIGINT)
						WHEN $3 = 0 AND $2 AND timeouts >= CAST($8 AS BIGINT) THEN CAST($4 AS BIGINT)
						WHEN floor_at < CAST($5 AS BIGINT) THEN CAST($5 AS BIGINT) ELSE floor_at END
				WHERE id = $1`, id, h.ok, h.failures, now, h.cool, h.answered, h.timeouts, breakerAfter, now.Add(probeEvery)); err != nil {
			return fmt.Errorf("write health of webhook: %w", err)
		}
	}
	if h.gone {
		if err := w.disable(ctx, tx, id, goneReason, now); err != nil {
			return err
		}
	}
	if h.failures > 0 { // deliveries returned to a webhook disabled meanwhile aren't sent
		if err := w.checkFailing(ctx, tx, id, now); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, skipPending+` AND EXISTS (SELECT 1 FROM webhooks WHERE id = $1 AND NOT active)`, id, now); err != nil {
			return fmt.Errorf("skip deliveries: %w", err)
		}
	}
	return nil
}

// disable disables a webhook, skips its queued deliveries and notifies its owner.
func (w *Webhooks) disable(ctx context.Context, tx *db.Tx, id ID, reason string, now db.Time) error {
	n, err := tx.Exec(ctx,
		`UPDATE webhooks SET active = FALSE, reason = $2, updated_at = $3 WHERE id = $1 AND active AND deleted_at = 0`,
		id, reason, now)
	if err == nil && n > 0 {
		_, err = tx.Exec(ctx, skipPending, id, now)
	}
	if err != nil {
		return fmt.Errorf("disable webhook: %w", err)
	}
	if n == 0 {
		return nil
	}
	w.c.Log.InfoContext(ctx, "webhook disabled", "webhook", id, "reason", reason)
	return w.mailOwner(ctx, tx, id, true)
}

// checkFailing warns the owner of a webhook once after a day of failures and disables the webhook after five.
func (w *Webhooks) checkFailing(ctx context.Context, tx *db.Tx, id ID, now db.Time) error {
	var active bool
	var since, warned db.Time
	var failures int
	err := tx.QueryRow(ctx, `SELECT active AND deleted_at = 0, failing_since, warned_at, failures FROM webhooks WHERE id = $1`, id).Scan(
		&active, &since, &warned, &failures,
	)
	if err != nil {
		return fmt.Errorf("read health of webhook: %w", err)
	}
	if !active || since == 0 {
		return nil
	}
	if now.Sub(since) >= disableAfter && failures >= disableFrom {
		return w.disable(ctx, tx, id, failing, now)
	}
	if now.Sub(since) >= warnAfter && warned == 0 {
		if _, err := tx.Exec(ctx, `UPDATE webhooks SET warned_at = $2 WHERE id = $1`, id, now); err != nil {
			return fmt.Errorf("note warning: %w", err)
		}
		return w.mailOwner(ctx, tx, id, false)
	}
	return nil
}

// mailOwner emails the owner that a webhook fails or was disabled.
func (w *Webhooks) mailOwner(ctx context.Context, tx *db.Tx, id ID, disabled bool) error {
	if w.c.Mail == nil {
		return nil
	}
	var owner account.OwnerID
	if err := tx.QueryRow(ctx, `SELECT owner_id FROM webhooks WHERE id = $1`, id).Scan(&owner); err != nil {
		return fmt.Errorf("find owner of webhook: %w", err)
	}
	hook, err := get(ctx, tx, owner, id)
	if err != nil {
		return err
	}
	subject, text := mailText(hook, disabled)
	return w.c.Mail.TellOwnerTx(ctx, tx, owner, subject, text, "/webhooks/"+string(id))
}

// mailText returns the email's subject and text.
func mailText(hook Webhook, disabled bool) (subject, text string) {
	if !disabled {
		return "A webhook is failing", fmt.Sprintf(`All deliveries to the webhook %s have failed since %s.

The webhook is disabled after 5 days of failures. Failed deliveries and their responses:`, hook.URL, hook.FailingSince)
	}
	why := "all deliveries to it have failed for 5 days"
	if hook.Reason == "gone" {
		why = "its endpoint answered 410 Gone"
	}
	return "A webhook was disabled", fmt.Sprintf(`The webhook %s was disabled: %s.

Enable it once the endpoint works again. Events since then can be redelivered:`, hook.URL, why)
}

// reviewFailing runs checkFailing for webhooks without further attempts.
func (w *Webhooks) reviewFailing(ctx context.Context) error {
	now := db.Now()
	rows, err := w.c.DB.Query(ctx, `
		SELECT id FROM webhooks WHERE active AND deleted_at = 0 AND failing_since > 0
			AND (failing_since <= $1 AND warned_at = 0 OR failing_since <= $2 AND failures >= $3)`,
		now.Add(-warnAfter), now.Add(-disableAfter), disableFrom)
	ids, err := db.Collect(rows, err, func(r db.Scanner) (id ID, err error) { return id, r.Scan(&id) })
	if err != nil {
		return fmt.Errorf("find failing webhooks: %w", err)
	}
	for _, id := range ids {
		err := w.c.DB.Write(ctx, func(tx *db.Tx) error {
			if _, err := tx.Exec(ctx, `UPDATE webhooks SET id = id WHERE id = $1`, id); err != nil { // take the row's lock first
				return fmt.Errorf("lock webhook: %w", err)
			}
			if err := w.checkFailing(ctx, tx, id, now); err != nil {
				return err
			}
			return retime(ctx, tx, id)
		})
		if err != nil {
			return err
		}
	}
	return nil
}
