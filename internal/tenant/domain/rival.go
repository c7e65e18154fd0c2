package domain

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"slipway/internal/platform/db"
	"slipway/internal/tenant/account"
)

// holderOf returns the ID of another account's domain that holds exactly this name.
func holderOf(ctx context.Context, r db.Reader, name string, owner account.OwnerID) (ID, error) {
	var id ID
	err := r.QueryRow(ctx, "SELECT id FROM domains WHERE name = $1 AND owner_id <> $2 AND proven_at <> 0", name, owner).Scan(&id)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return "", fmt.Errorf("look up holder of %s: %w", name, err)
	}
	return id, nil
}

// rivalry returns why this owner needs a TXT record to prove the name, or "": another account holds the name or the
// wildcard above it, or released one of them recently. A CNAME record left behind by the previous owner must not prove
// the name for the next account.
func rivalry(ctx context.Context, r db.Reader, name string, owner account.OwnerID) (string, error) {
	if strings.HasPrefix(name, "*.") {
		return "Only the TXT record verifies a wildcard", nil
	}
	_, above, _ := strings.Cut(name, ".")
	var held, released int
	if err := r.QueryRow(ctx, `
		SELECT (SELECT count(*) FROM domains WHERE name IN ($1, $2) AND owner_id <> $3 AND proven_at <> 0),
		       (SELECT count(*) FROM domain_releases WHERE name IN ($1, $2) AND owner_id <> $3 AND NOT lost AND released_at > $4)`,
		name, "*."+above, owner, db.Now().Add(-quarantine)).Scan(&held, &released); err != nil {
		return "", fmt.Errorf("look up rivals for %s: %w", name, err)
	}
	switch {
	case held > 0:
		return "Another account owns this name, so only the TXT record verifies it", nil
	case released > 0:
		return "Another account released this name recently, so only the TXT record verifies it", nil
	}
	return "", nil
}

// displace takes the name from its holder for dom, whose TXT record is among tokens, and reports whether it did. An
// account that lost the name can't regain it with a leftover record while the holder's record exists.
func (d *Domains) displace(ctx context.Context, tx *db.Tx, holder ID, dom Domain, tokens []string) (bool, error) {
	old, err := scan(tx.QueryRow(ctx, "SELECT "+columns+" FROM domains WHERE id = $1", holder))
	if err != nil {
		return false, fmt.Errorf("look up holder of %s: %w", dom.Name, err)
	}
	var lost int
	if err := tx.QueryRow(ctx, "SELECT count(*) FROM domain_releases WHERE name = $1 AND owner_id = $2 AND lost AND released_at > $3",
		dom.Name, dom.Owner, db.Now().Add(-quarantine)).Scan(&lost); err != nil {
		return false, fmt.Errorf("look up rivals for %s: %w", dom.Name, err)
	}
	mine, err := tokenOf(ctx, tx, dom.Owner)
	if err != nil {
		return false, err
	}
	if mine == old.proofToken { // this record proved the name before the transfer, so it doesn't count
		return false, nil
	}
	if lost > 0 {
		theirs, err := tokenOf(ctx, tx, old.Owner)
		if err != nil {
			return false, err
		}
		for _, t := range tokens {
			if t == theirs {
				return false, nil
			}
		}
	}
	old.Status, old.Reason, old.provenAt, old.NextCheckAt = Failed, "Another account has verified ownership of this name", 0, 0
	old.Primary, old.UpdatedAt, old.pendingAt = false, db.Now(), db.Now()
	if _, err := tx.Exec(ctx, `
		UPDATE domains SET status = $2, reason = $3, proven_at = 0, proof = '', astray_at = 0, next_check_at = 0, checks = checks + 1,
		  is_primary = FALSE, ssl_status = 'pending', pending_at = $4, updated_at = $4
		WHERE id = $1`, old.ID, old.Status, old.Reason, old.UpdatedAt); err != nil {
		return false, fmt.Errorf("displace %s: %w", old.ID, err)
	}
	if err := remember(ctx, tx, old, true); err != nil {
		return false, err
	}
	if err := unroute(ctx, tx, old); err != nil {
		return false, err
	}
	d.c.Log.InfoContext(ctx, "domain taken over with proof", "domain", dom.Name, "from", old.Owner, "to", dom.Owner)
	return true, d.emit(ctx, tx, GaveUp, old)
}
