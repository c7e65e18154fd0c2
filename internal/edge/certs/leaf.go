package certs

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
)

// The local authority signs a leaf during the first handshake for its name. Measured: 0.25 ms of CPU, a tenth of it for
// the key, so each host has its own key, and random names cost little more than a handshake. A leaf takes 1.5 KiB, so a
// full cache takes 24 MiB.
const (
	maxLeaves = 16_384
	leafDays  = 30
	leafRenew = 10 * 24 * time.Hour // remaining life at which a leaf is renewed
)

// leaf holds what a handshake and a report need of a certificate. The parsed form is dropped: it takes most of the
// memory.
type leaf struct {
	cert        *tls.Certificate
	issuer      string
	from, until time.Time
}

func (l *leaf) fresh(now time.Time) bool { return l.until.Sub(now) > leafRenew }

// leaves caches the local authority's certificates. The zero value is empty.
type leaves struct {
	mu sync.RWMutex // guards at
	// share: total 16,384 certificates of the local authority; owner what others leave; edge any other is signed again
	at     map[string]*leaf
	flight singleflight.Group
}

func (c *leaves) get(name string) *leaf {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.at[name]
}

// put stores a leaf. If the cache is full, it drops any other.
func (c *leaves) put(name string, l *leaf) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.at == nil {
		c.at = map[string]*leaf{}
	}
	for other := range c.at {
		if len(c.at) < maxLeaves || c.at[name] != nil {
			break
		}
		delete(c.at, other)
	}
	c.at[name] = l
}

// leaf returns the local authority's certificate for a name. It signs one when there is none or when it ends soon.
func (a *authority) leaf(ctx context.Context, name string) (*leaf, error) {
	if l := a.leaves.get(name); l != nil && l.fresh(time.Now()) {
		return l, nil
	}
	r, err := a.get(ctx)
	if err != nil {
		return nil, err
	}
	l, err, _ := a.leaves.flight.Do(name, func() (any, error) {
		l, err := r.sign(name, time.Now())
		if err != nil {
			return nil, fmt.Errorf("sign for %s: %w", name, err)
		}
		a.leaves.put(name, l)
		a.minted.Inc()
		return l, nil
	})
	if err != nil {
		return nil, err
	}
	return l.(*leaf), nil
}

func (r *root) sign(name string, now time.Time) (*leaf, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	now = now.UTC().Truncate(time.Second) // certificates store whole seconds
	template := &x509.Certificate{
		SerialNumber: serial(),
		NotBefore:    now.Add(-time.Hour), // visitors' clocks may be slow
		NotAfter:     now.AddDate(0, 0, leafDays),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	if template.NotAfter.After(r.cert.NotAfter) {
		template.NotAfter = r.cert.NotAfter
	}
	if ip := net.ParseIP(name); ip != nil {
		template.IPAddresses = []net.IP{ip}
	} else {
		template.DNSNames = []string{name}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, r.cert, &key.PublicKey, r.key)
	if err != nil {
		return nil, err
	}
	return &leaf{
		cert: &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, issuer: r.cert.Subject.CommonName,
		from: template.NotBefore, until: template.NotAfter,
	}, nil
}
