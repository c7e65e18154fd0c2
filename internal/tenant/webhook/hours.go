package webhook

import (
	"context"
	"fmt"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/tenant/account"
)

// Hour counts the attempts to a webhook within one hour (UTC).
type Hour struct {
	At                db.Time // start
	Succeeded, Failed int64
}

// Hours returns the hours with attempts since a time, oldest first.
func (w *Webhooks) Hours(ctx context.Context, owner account.OwnerID, id ID, since db.Time) ([]Hour, error) {
	if _, err := w.Get(ctx, owner, id); err != nil {
		return nil, err
	}
	rows, err := w.c.DB.Query(ctx,
		`SELECT hour, succeeded, failed FROM webhook_hours WHERE hook_id = $1 AND hour >= $2 ORDER BY hour`, id,
		since.Time().Unix()/3600)
	list, err := db.Collect(rows, err, func(r db.Scanner) (h Hour, err error) {
		var hour int64
		err = r.Scan(&hour, &h.Succeeded, &h.Failed)
		h.At = db.Time(time.Duration(hour) * time.Hour / time.Millisecond)
		return h, err
	})
	if err != nil {
		return nil, fmt.Errorf("read hours of webhook: %w", err)
	}
	return list, nil
}
