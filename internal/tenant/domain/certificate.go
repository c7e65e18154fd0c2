package domain

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"slipway/internal/platform/db"
	"slipway/internal/platform/text"
)

// CertificateTx stores the edge's report of a host's certificate and returns the domain. found is false if the host
// isn't a domain.
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

// ReportTx stores a certificate report as [Domains.CertificateTx] does and announces event, if not empty.
func (d *Domains) ReportTx(ctx context.Context, tx *db.Tx, host string, state SSL, c Certificate, event string) error {
	dom, found, err := d.CertificateTx(ctx, tx, host, state, c)
	if err != nil || !found || event == "" {
		return err
	}
	return d.emit(ctx, tx, event, dom)
}
