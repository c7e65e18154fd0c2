package account

import (
	"context"
	"fmt"

	"slipway/internal/platform/db"
	"slipway/internal/tenant/audit"
)

// maxRefusals is the most refused sign-ins that wait to be written. What is over it is
// dropped: a flood must not fill memory, and the log says enough by then.
const maxRefusals = 10_000

// refusal is a sign-in of a user that was refused.
type refusal struct {
	id     string
	at     db.Time
	user   UserID
	device Device
	detail string
}

// noteRefusal remembers a refused sign-in until the next flush. Writing it at once would
// take a moment longer for addresses that have a user, and so tell which have.
func (a *Accounts) noteRefusal(user UserID, d Device, detail string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.refused) < maxRefusals {
		a.refused = append(a.refused, refusal{audit.NewID(), db.Now(), user, d, detail})
	}
}

// writeRefusals writes what was noted. What cannot be written is kept for the next time.
func (a *Accounts) writeRefusals(ctx context.Context) error {
	a.mu.Lock()
	batch := a.refused
	a.refused = nil
	a.mu.Unlock()
	if len(batch) == 0 {
		return nil
	}
	err := a.db.Write(ctx, func(tx *db.Tx) error {
		for _, r := range batch {
			if err := audit.WriteLateTx(ctx, tx, r.id, r.at, audit.Actor{
				User: r.user,
				Addr: r.device.Addr,
			}, audit.Event{Action: "session.refused", Detail: r.detail}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.refused = append(batch, a.refused...)
		return fmt.Errorf("write refused sign-ins: %w", err)
	}
	return nil
}
