package account

import (
	"context"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/audit"
)

// AuditTx writes a line into the audit log, in the transaction that does what it says. Whoever
// was suspended or deleted while it ran is an Unauthorized fault, and nothing was done.
func (a *Accounts) AuditTx(ctx context.Context, tx *db.Tx, by audit.Actor, d audit.Event) error {
	if d == audit.Logged {
		return nil
	}
	if by.User != "" {
		if err := mayGoOn(ctx, tx, by); err != nil {
			return err
		}
	}
	return audit.WriteTx(ctx, tx, by, d)
}

// mayGoOn is nil while the actor may go on: in a team, while they belong to it with the role that they came with.
func mayGoOn(ctx context.Context, r db.Reader, by audit.Actor) error {
	if by.Rights == "" && !by.Service {
		if err := opens(ctx, r, by); err != nil {
			return err
		}
		return stands(ctx, r, by.User, fault.Unauthorized)
	}
	return holds(ctx, r, by)
}

// Audit returns a page of the audit log, the newest first.
func (a *Accounts) Audit(ctx context.Context, f audit.Filter) ([]audit.Entry, error) {
	return audit.List(ctx, a.db, f)
}
