package domain

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"slipway/internal/db"
)

// CertificateTx notes what the edge reports about the certificate of a host, and returns
// the domain. found is false where nobody holds the host as a domain.
func (d *Domains) CertificateTx(ctx context.Context, tx *db.Tx, host string, state SSL, c Certificate) (dom Domain, found bool, err error) {
	dom, err = scan(tx.QueryRow(ctx, `
		UPDATE domains SET ssl_status = $2, cert_issuer = $3, cert_not_before = $4, cert_expires_at = $5, cert_error = $6,
		  cert_next_at = $7, updated_at = $8
		WHERE name = $1 AND proven_at <> 0 RETURNING `+columns,
		host, state, clip(c.Issuer), c.NotBefore, c.ExpiresAt, clip(c.LastError), c.NextAttemptAt, db.Now()))
	if errors.Is(err, sql.ErrNoRows) {
		return Domain{}, false, nil
	}
	if err != nil {
		return Domain{}, false, fmt.Errorf("note certificate of %s: %w", host, err)
	}
	return dom, true, nil
}
