package server

import (
	"context"
	"net/http"

	"slipway/internal/edge/certs"
	"slipway/internal/edge/ports"
	"slipway/internal/platform/db"
	"slipway/internal/tenant/domain"
)

// certificates builds the service that answers handshakes; nil on nodes without an edge.
func (h *node) certificates(out *http.Client, l *ports.Ports) (*certs.Certs, error) {
	if !h.s.Role("edge") {
		return nil, nil
	}
	var names *certs.DNS
	if l.DNS != nil {
		names = &certs.DNS{Zone: h.s.ACMEDNSZone, Packets: l.Packets, Stream: l.DNS}
		if len(h.s.ControlHosts) > 0 { // its address is known to lead here
			names.Host = h.s.ControlHosts[0]
		}
	}
	return certs.New(certs.Config{
		DB: h.DB, Seal: h.seal, Out: out, CAs: h.s.ACMECA, Email: h.s.ACMEEmail, Bindings: h.s.Bindings, DNS: names,
		SiteDomain: h.s.SiteDomain, Hosts: h.s.ControlHosts,
		Domains: certified{h.Domains}, HTTP01: h.s.EdgeHTTP != "", TLSALPN01: true, Log: h.s.Log, Metrics: h.metrics,
	})
}

// certified are the domains as they hear of certificates.
type certified struct{ *domain.Domains }

// ReportTx tells what became of a custom host's certificate, in the transaction that stores it.
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
