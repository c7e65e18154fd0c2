package webhook

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/account"
)

// Overlap is the default time during which both secrets sign after a rotation.
const Overlap = 24 * time.Hour

// MaxOverlap is the longest selectable overlap.
const MaxOverlap = 7 * 24 * time.Hour

// RotateTx replaces a webhook's secret; nil generates one. During the overlap X-Service-Signature is made with the old
// secret and X-Service-Signature-Next with the new one, and webhook-signature contains both. An overlap of 0 ends the
// old secret at once, including one left from an earlier rotation.
func (w *Webhooks) RotateTx(
	ctx context.Context, tx *db.Tx, owner account.OwnerID, id ID, secret *string, overlap time.Duration,
) (Webhook, error) {
	fresh, err := checkSecret(secret)
	if err != nil {
		return Webhook{}, err
	}
	if overlap < 0 || overlap > MaxOverlap {
		return Webhook{}, fault.New(fault.Invalid, "invalid_overlap_seconds", "Invalid overlapSeconds",
			fmt.Sprintf("overlapSeconds must be between 0 and %d", int(MaxOverlap.Seconds())))
	}
	var sealed string
	err = tx.QueryRow(ctx,
		`UPDATE webhooks SET id = id WHERE id = $1 AND owner_id = $2 AND deleted_at = 0 AND expires_at = 0 RETURNING secret`,
		id, owner).Scan(&sealed)
	if errors.Is(err, sql.ErrNoRows) {
		return Webhook{}, fault.Missing("webhook")
	}
	if err != nil {
		return Webhook{}, fmt.Errorf("rotate secret: %w", err)
	}
	hook, err := get(ctx, tx, owner, id)
	if err != nil {
		return Webhook{}, err
	}
	if old, err := w.c.Seal.Open(sealed, sealPurpose+string(id)); err == nil && string(old) == fresh {
		return Webhook{}, fault.New(fault.Invalid, "invalid_secret", "The webhook already uses this secret",
			"send another one, or omit it to have one generated")
	}
	if overlap > 0 && hook.OverlapEnds != 0 {
		return Webhook{}, fault.New(fault.Conflict, "rotation_in_progress", "The secret is being rotated",
			"both secrets sign until "+hook.OverlapEnds.String()+"; set overlapSeconds to 0 to replace both now")
	}
	now := db.Now()
	ends := now.Add(overlap)
	if overlap == 0 {
		sealed, ends = "", 0
	}
	_, err = tx.Exec(ctx,
		`UPDATE webhooks SET secret = $2, generated = $3, prev_secret = $4, prev_until = $5, updated_at = $6 WHERE id = $1`,
		id, w.c.Seal.Seal([]byte(fresh), sealPurpose+string(id)), secret == nil, sealed, ends, now)
	if err != nil {
		return Webhook{}, fmt.Errorf("rotate secret: %w", err)
	}
	return get(ctx, tx, owner, id)
}
