package certs

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"slipway/internal/platform/db"
	"slipway/internal/platform/disk"
	"slipway/internal/platform/seal"
)

// authority is the installation's own certificate authority, for names that can't have a public certificate. Nodes
// share its key, which is sealed in the database.
type authority struct {
	db     *db.DB
	seal   *seal.Sealer
	leaves leaves
	minted prometheus.Counter

	mu   sync.Mutex // guards root; held while root is read
	root *root
}

type root struct {
	cert *x509.Certificate
	key  crypto.Signer
	pem  []byte
}

const (
	rootYears   = 10
	rootPurpose = "authority/local"
)

// RootPEM returns the local authority's certificate, for clients that should trust it. It creates the authority if none
// exists.
func (s *Certs) RootPEM(ctx context.Context) ([]byte, error) {
	r, err := s.local.get(ctx)
	if err != nil {
		return nil, err
	}
	return r.pem, nil
}

// WriteRoot writes the certificate of [Certs.RootPEM] to a file, unless the file already has it.
func (s *Certs) WriteRoot(ctx context.Context, file string) error {
	root, err := s.RootPEM(ctx)
	if err != nil {
		return err
	}
	have, err := os.ReadFile(file)
	if err == nil && bytes.Equal(have, root) {
		return nil
	}
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		err = disk.Write(file, root, 0o644)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", filepath.Base(file), err)
	}
	return nil
}

func (a *authority) get(ctx context.Context) (*root, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.root != nil {
		return a.root, nil
	}
	r, err := a.open(ctx)
	if err != nil {
		return nil, fmt.Errorf("open local authority: %w", err)
	}
	a.root = r
	return r, nil
}

// open reads the authority or creates it. If two nodes create one at once, the first insert wins and both read it.
func (a *authority) open(ctx context.Context) (*root, error) {
	var have int
	if err := a.db.QueryRow(ctx, `SELECT COUNT(*) FROM authority WHERE id = 'local'`).Scan(&have); err != nil {
		return nil, err
	}
	if have == 0 {
		certificate, key, err := newRoot(time.Now())
		if err != nil {
			return nil, err
		}
		sealed := a.seal.Seal(key, rootPurpose)
		err = a.db.Write(ctx, func(tx *db.Tx) error {
			_, err := tx.Exec(ctx, `
				INSERT INTO authority (id, certificate, private_key, created_at)
				VALUES ('local', $1, $2, $3) ON CONFLICT (id) DO NOTHING`, string(certificate), sealed, db.Now())
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	var certificate, sealed string
	if err := a.db.QueryRow(ctx, `
		SELECT certificate, private_key FROM authority
		WHERE id = 'local'`).Scan(&certificate, &sealed); err != nil {
		return nil, err
	}
	key, err := a.seal.Open(sealed, rootPurpose)
	if err != nil {
		return nil, err
	}
	return parseRoot([]byte(certificate), key)
}

func parseRoot(certificate, key []byte) (*root, error) {
	block, _ := pem.Decode(certificate)
	if block == nil {
		return nil, errors.New("its certificate is not PEM")
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, err
	}
	parsed, err := x509.ParsePKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	signer, ok := parsed.(crypto.Signer)
	if !ok {
		return nil, errors.New("its key cannot sign")
	}
	return &root{cert: cert, key: signer, pem: certificate}, nil
}

// newRoot creates a self-signed ECDSA P-256 certificate (RFC 5280) that may sign leaves but no other authorities.
func newRoot(now time.Time) (certificate, key []byte, err error) {
	priv, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	if key, err = x509.MarshalPKCS8PrivateKey(priv); err != nil {
		return nil, nil, err
	}
	public, err := x509.MarshalPKIXPublicKey(&priv.PublicKey)
	if err != nil {
		return nil, nil, err
	}
	sum := sha256.Sum256(public)
	template := &x509.Certificate{
		SerialNumber: serial(),
		// The name is unique per installation: browsers confuse authorities with the same name.
		Subject: pkix.Name{
			Organization: []string{"Slipway"},
			CommonName:   "Slipway Local Authority " + hex.EncodeToString(sum[:4]),
		},
		NotBefore:             now.Add(-time.Hour),
		NotAfter:              now.AddDate(rootYears, 0, 0),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &priv.PublicKey, priv)
	if err != nil {
		return nil, nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), key, nil
}

// serial returns 127 random bits (RFC 5280 §4.1.2.2 allows up to 20 bytes).
func serial() *big.Int {
	b := make([]byte, 16)
	rand.Read(b)
	b[0] &= 0x7f
	return new(big.Int).SetBytes(b)
}
