// Package party owns who sells and who buys: a seller's settings, owners' billing profiles, and which tax follows from both.
//
// An owner's profile is also the lock of all that is billed to the owner: whoever changes something of it takes LockTx first.
// What is written on invoices is frozen there; changes here are for later ones.
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

// New returns the service.
func New(c db.Clock) *Parties { return &Parties{c} }

// LockTx makes others who change anything of the owner's here wait until the transaction ends.
func LockTx(ctx context.Context, tx *db.Tx, owner id.Owner) error {
	_, err := tx.Exec(ctx, `
		INSERT INTO billing_profiles (owner_id, profile, vat_state, trial_at, updated_at) VALUES ($1, '{}', 'none', 0, 0)
		ON CONFLICT (owner_id) DO UPDATE SET trial_at = billing_profiles.trial_at`, owner)
	if err != nil {
		return fmt.Errorf("lock owner: %w", err)
	}
	return nil
}

// SameMaker is the query of the owner $1 and of all others that the same person made: their personal account and teams.
const SameMaker = `SELECT $1 UNION ALL
	SELECT o.owner_id FROM owner_makers o JOIN owner_makers m ON m.user_id = o.user_id WHERE m.owner_id = $1`

// LockMakerTx is LockTx for the personal account of who made the owner.
func LockMakerTx(ctx context.Context, tx *db.Tx, owner id.Owner) error {
	var maker id.Owner
	err := tx.QueryRow(ctx, `
		SELECT u.owner_id FROM owner_makers m JOIN people u ON u.id = m.user_id WHERE m.owner_id = $1`, owner).Scan(&maker)
	if errors.Is(err, sql.ErrNoRows) || err == nil && maker == owner { // the maker is gone, or the owner
		return nil
	}
	if err != nil {
		return fmt.Errorf("find maker of owner: %w", err)
	}
	return LockTx(ctx, tx, maker)
}
