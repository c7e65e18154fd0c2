package domain

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"slipway/internal/platform/db"
	"slipway/internal/platform/text"
)

// CertificateTx notes what the edge reports about the certificate of a host, and returns
// the domain. found is false where nobody holds the host as a domain.
func (d *Domains) CertificateTx(ctx context.Context, tx *db.Tx, host string, state SSL, c Certificate) (dom Domain, found bool, err error) {
	dom, err = scan(tx.QueryRow(ctx, `
		UPDATE domains SET ssl_status = $2, cert_issuer = $3, cert_not_before = $4, cert_expires_at = $5, cert_error = $6,
		  cert_next_at = $7, updated_at = $8
		WHERE name = $1 AND proven_at <> 0 RETURNING `+columns,
		host, state, text.Clip(c.Issuer, 300), c.NotBefore, c.ExpiresAt, text.Clip(c.LastError, 300), c.NextAttemptAt, db.Now()))
	if errors.Is(err, sql.ErrNoRows) {
		return Domain{}, false, nil
	}
	if err != nil {
		return Domain{}, false, fmt.Errorf("note certificate of %s: %w", host, err)
	}
	return dom, true, nil
}

// ReportTx notes what became of the certificate of a host, as CertificateTx does, and announces the event,
// one of those of certificates or none.
func (d *Domains) ReportTx(ctx context.Context, tx *db.Tx, host string, state SSL, c Certificate, event string) error {
	dom, found, err := d.CertificateTx(ctx, tx, host, state, c)
	if err != nil || !found || event == "" {
		return err
	}
	return d.emit(ctx, tx, event, dom)
}
