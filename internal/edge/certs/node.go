package certs

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/node"
	"slipway/internal/platform/seal"
)

// nodeName is the DNS name in nodes' certificates. Visitors can't request it and sites can't have it.
const nodeName = "node.slipway.invalid"

// NodeTLS returns the TLS configurations for connections between nodes, for the listening and the connecting side. Each
// side shows a certificate that the installation's authority signed for a node and requires one of a node that peers
// admits. The certificate is created at each start, names the node by its id, and lasts as long as the authority.
func NodeTLS(ctx context.Context, d *db.DB, s *seal.Sealer, id string, peers *node.Roster) (listens, connects *tls.Config, err error) {
	r, err := (&authority{db: d, seal: s}).get(ctx)
	if err != nil {
		return nil, nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: serial(),
		Subject:      pkix.Name{CommonName: id},
		NotBefore:    time.Now().Add(-24 * time.Hour), // other nodes' clocks may be slow
		NotAfter:     r.cert.NotAfter,
		DNSNames:     []string{nodeName},
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, r.cert, &key.PublicKey, r.key)
	if err != nil {
		return nil, nil, fmt.Errorf("make certificate of this node: %w", err)
	}
	own := []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}
	pool := x509.NewCertPool()
	pool.AddCert(r.cert)
	admit := func(c tls.ConnectionState) error {
		if len(c.PeerCertificates) == 0 {
			return errors.New("no certificate")
		}
		if err := c.PeerCertificates[0].VerifyHostname(nodeName); err != nil {
			return err
		}
		return peers.Admit(context.Background(), c.PeerCertificates[0].Subject.CommonName)
	}
	listens = &tls.Config{
		Certificates: own, MinVersion: tls.VersionTLS13, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool, VerifyConnection: admit,
	}
	connects = &tls.Config{Certificates: own, MinVersion: tls.VersionTLS13, RootCAs: pool, ServerName: nodeName, VerifyConnection: admit}
	return listens, connects, nil
}
