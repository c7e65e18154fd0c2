package account

import (
	"context"
	"fmt"

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

// HoldTx locks the key or the session that an actor came with, so that its revocation waits until the transaction ends, or is
// an Unauthorized fault once it was revoked. The check before the transaction saw what was true then.
func HoldTx(ctx context.Context, tx *db.Tx, by audit.Actor) error {
	lock, of, gone := `UPDATE api_keys SET id = id WHERE id = $1`, string(by.Key), errKey
	if by.Key == "" {
		lock, of, gone = `UPDATE sessions SET id = id WHERE id = $1`, string(by.Session), errSession
	}
	if of == "" {
		return nil
	}
	n, err := tx.Exec(ctx, lock, of)
	if err != nil {
		return fmt.Errorf("hold credential: %w", err)
	}
	if n > 0 {
		return nil
	}
	if by.User != "" && by.Session != "" { // a suspended user reads why
		if err := stands(ctx, tx, by.User, fault.Unauthorized); err != nil {
			return err
		}
	}
	return gone
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
