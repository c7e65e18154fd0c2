package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/seal"
)

// authority signs certificates like a public one, with an intermediate certificate.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

const life = 90 * 24 * time.Hour

func newAuthority() (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	cert := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{Organization: []string{"Authority"}, CommonName: "Intermediate"},
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign,
		NotBefore:             time.Now(),
		NotAfter:              time.Now().Add(10 * life),
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, cert, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	return &authority{cert, key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}, nil
}

// issue returns a certificate like a public authority's, and its key, both in PEM.
func (a *authority) issue(host string, n int) (chain, private []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	leaf := &x509.Certificate{
		SerialNumber:          big.NewInt(int64(n) + 2),
		DNSNames:              []string{host},
		NotBefore:             time.Now(),
		NotAfter:              time.Now().Add(life),
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		OCSPServer:            []string{"http://ocsp.authority.test"},
		IssuingCertificateURL: []string{"http://authority.test/intermediate.der"},
	}
	der, err := x509.CreateCertificate(rand.Reader, leaf, a.cert, &key.PublicKey, a.key)
	if err != nil {
		return nil, nil, err
	}
	encoded, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, nil, err
	}
	return append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), a.pem...),
		pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: encoded}), nil
}

// seedDomain writes one domain. Its next check and renewal are far in the future.
func seedDomain(ctx context.Context, tx *db.Tx, sealer *seal.Sealer, site, host string, chain, key []byte) error {
	route, err := next(ctx, tx, "live_version")
	if err != nil {
		return err
	}
	version, err := next(ctx, tx, "certificate_version")
	if err != nil {
		return err
	}
	now := db.Now()
	later, end := now.Add(life/2), now.Add(life)
	material := "certificates/authority.test/" + host
	_, err = tx.Exec(ctx, `
		INSERT INTO domains (id, owner_id, site_id, name, zone, status, reason, is_primary, redirect_to, proof, proven_at, findings, checks, tries, pending_at,
			checked_at, next_check_at, ssl_status, cert_issuer, cert_not_before, cert_expires_at, cert_error, created_at, updated_at)
		SELECT $1, owner_id, id, $3, $3, 'active', '', FALSE, '', 'txt', $4, '{}', 1, 0, $4, $4, $5, 'active', 'Authority Intermediate', $4, $6, '', $4, $4
		FROM sites WHERE id = $2`, db.NewID("dom"), site, host, now, later, end)
	if err != nil {
		return err
	}
	_, err = tx.Exec(
		ctx,
		`
		INSERT INTO domain_routes (host, site_id, redirect_to, state, version, changed_at) VALUES ($1, $2, '', 'active', $3, $4)`,
		host,
		site,
		route,
		now,
	)
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, `
		INSERT INTO certificates (host, kind, route, state, material, issuer, not_before, not_after, next_at, version, changed_at)
		VALUES ($1, 'custom', $2, 'active', $3, 'Authority Intermediate', $4, $5, $6, $7, $4)`, host, route, material, now, end, later, version)
	if err != nil {
		return err
	}
	for suffix, value := range map[string][]byte{".crt": chain, ".key": key} {
		name := material + "/" + host + suffix
		_, err = tx.Exec(
			ctx,
			`
			INSERT INTO acme_storage (key, value, size, modified) VALUES ($1, $2, $3, $4)`,
			name,
			sealer.Seal(value, "acme/"+name),
			len(value),
			now,
		)
		if err != nil {
			return err
		}
	}
	return nil
}
