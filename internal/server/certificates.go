package server

import (
	"context"

	"slipway/internal/edge/certs"
	"slipway/internal/platform/db"
	"slipway/internal/tenant/domain"
)

// certified reports certificates to domains.
type certified struct{ *domain.Domains }

// ReportTx reports a custom host's certificate in the transaction that stores it.
func (d certified) ReportTx(ctx context.Context, tx *db.Tx, r certs.Report) error {
	state := map[certs.State]domain.SSL{
		certs.Pending: domain.SSLPending,
		certs.Active:  domain.SSLActive,
		certs.Failed:  domain.SSLFailed,
	}[r.State]
	return d.Domains.ReportTx(ctx, tx, r.Host, state, domain.Certificate{
		Issuer: r.Issuer, NotBefore: db.At(r.NotBefore),
		ExpiresAt: db.At(r.NotAfter), LastError: r.LastError, NextAttemptAt: db.At(r.NextAttempt),
	}, string(r.Event))
}
