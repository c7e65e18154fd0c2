// Package party owns sellers' settings and owners' billing profiles, and derives the tax from both.
//
// An owner's profile row is also the lock for everything billed to the owner: every change takes [LockTx] first. Final
// invoices keep copies, so changes here only affect later ones.
package party

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"slipway/internal/platform/db"
	"slipway/internal/platform/id"
)

// Parties is the service. It is safe for concurrent use.
type Parties struct{ clock db.Clock }

func New(c db.Clock) *Parties { return &Parties{c} }

// LockTx blocks other billing changes of the owner until the transaction ends.
func LockTx(ctx context.Context, tx *db.Tx, owner id.Owner) error {
	_, err := tx.Exec(ctx, `
		INSERT INTO billing_profiles (owner_id, profile, vat_state, trial_at, updated_at) VALUES ($1, '{}', 'none', 0, 0)
		ON CONFLICT (owner_id) DO UPDATE SET trial_at = billing_profiles.trial_at`, owner)
	if err != nil {
		return fmt.Errorf("lock owner: %w", err)
	}
	return nil
}

// SameMaker is a query for the owner $1 and all owners created by the same person, that is their personal account and
// teams.
const SameMaker = `SELECT $1 UNION ALL
	SELECT o.owner_id FROM owner_makers o JOIN owner_makers m ON m.user_id = o.user_id WHERE m.owner_id = $1`

// LockMakerTx calls LockTx for the personal account of the person who created the owner.
func LockMakerTx(ctx context.Context, tx *db.Tx, owner id.Owner) error {
	var maker id.Owner
	err := tx.QueryRow(ctx, `
		SELECT u.owner_id FROM owner_makers m JOIN people u ON u.id = m.user_id WHERE m.owner_id = $1`, owner).Scan(&maker)
	if errors.Is(err, sql.ErrNoRows) || err == nil && maker == owner { // the creator is gone, or is the owner
		return nil
	}
	if err != nil {
		return fmt.Errorf("find maker of owner: %w", err)
	}
	return LockTx(ctx, tx, maker)
}
