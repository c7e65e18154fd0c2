package shell

import (
	"context"

	"slipway/internal/platform/db"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/audit"
)

// Act changes something and writes the audit log in one transaction. fn returns the ID of the affected resource.
func (d *Shell) Act(ctx context.Context, q *Request, action string, fn func(tx *db.Tx) (subject string, err error)) error {
	return d.ActOn(ctx, q, func(tx *db.Tx) (audit.Event, error) {
		subject, err := fn(tx)
		return audit.Event{Action: action, Subject: subject}, err
	})
}

// ActOn is [Shell.Act] for an event with more than an ID.
func (d *Shell) ActOn(ctx context.Context, q *Request, fn func(tx *db.Tx) (audit.Event, error)) error {
	return d.DB.Write(ctx, func(tx *db.Tx) error {
		if err := account.HoldTx(ctx, tx, q.Actor()); err != nil {
			return err
		}
		deed, err := fn(tx)
		if err != nil {
			return err
		}
		return d.Accounts.AuditTx(ctx, tx, q.Actor(), deed)
	})
}
