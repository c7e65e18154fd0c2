package edge

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"strings"
	"time"
)

// A leaf is made when a visitor shakes hands for its name. Measured here: 0.25 ms of CPU,
// a tenth of it for the key, so every host has a key of its own, and random names cost
// us no more than a handshake does anyway. A leaf takes 1.5 KiB, so all are 24 MiB.
const (
	maxLeaves = 16_384
	leafDays  = 30
	leafRenew = 10 * 24 * time.Hour // before it ends
)

// leaf is what a handshake needs, and what is told of it. What was parsed is dropped: it
// is most of the memory that a certificate takes.
type leaf struct {
	cert        *tls.Certificate
	issuer      string
	from, until time.Time
}

// protocolProof is by what an authority asks for a proof in a handshake (RFC 8737).
const protocolProof = "acme-tls/1"

// TLSConfig returns the configuration for HTTPS listeners: TLS 1.2 or newer, HTTP/2 and
// HTTP/1.1, a certificate by name. A name that is not ours ends in the alert
// unrecognized_name (RFC 6066, section 3).
func (e *Edge) TLSConfig() *tls.Config {
	c := &tls.Config{
		MinVersion:         tls.VersionTLS12,
		NextProtos:         []string{"h2", "http/1.1"},
		GetConfigForClient: e.reserve,
		GetCertificate:     e.certificate,
	}
	if e.Certificate != nil {
		c.NextProtos = append(c.NextProtos, protocolProof)
	}
	return c
}

// certificate asks Config.Certificate, then the local authority. Returning nothing makes
// crypto/tls send the alert.
func (e *Edge) certificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	name := strings.ToLower(strings.TrimSuffix(hello.ServerName, "."))
	if e.Certificate != nil {
		c, err := e.Certificate(hello)
		proof := len(hello.SupportedProtos) == 1 && hello.SupportedProtos[0] == protocolProof
		if c != nil || err != nil || proof || name != "" && !e.spare(name) {
			return c, err
		}
	}
	if name == "" && hello.Conn != nil { // an address instead of a name has no SNI
		if a, ok := hello.Conn.LocalAddr().(*net.TCPAddr); ok {
			name = a.IP.String()
		}
	}
	if name = e.ours(name); name == "" {
		return nil, nil
	}
	l, err := e.leaf(hello.Context(), name)
	if err != nil {
		return nil, err
	}
	return l.cert, nil
}

// CertificateName returns the name that a public certificate for a host is made out to,
// from memory, or nothing: control plane, sites that exist, custom hosts. The addresses
// of single deployments have none: there are more of them than authorities issue for.
func (e *Edge) CertificateName(host string) string {
	if e.control[host] {
		return host
	}
	if label, ok := e.label(host); ok {
		if e.table.find(label) == nil {
			return ""
		}
		return host
	}
	if c := e.claims.find(host); c != nil {
		return c.host
	}
	return ""
}

// spare reports whether the local authority stands in where Config.Certificate passes: for
// the control plane and for what leads to a site that exists.
func (e *Edge) spare(host string) bool {
	if e.control[host] {
		return true
	}
	label, ok := e.label(host)
	if !ok {
		return false
	}
	if _, of, ok := split(label); ok {
		label = of
	}
	return e.table.find(label) != nil
}

// ours returns the name that a certificate for a host is made out to, or nothing for a
// host that may have none. The control plane's hosts may, and whatever is one label
// below the site domain, known or not: those that are not get a page that says so. A
// custom host may have the one of its claim, so that a wildcard needs one only.
func (e *Edge) ours(host string) string {
	if e.control[host] {
		return host
	}
	if _, ok := e.label(host); ok {
		return host
	}
	if c := e.claims.find(host); c != nil {
		return c.host
	}
	return ""
}

// label returns the one label of a name below the site domain.
func (e *Edge) label(name string) (string, bool) {
	label, ok := strings.CutSuffix(name, "."+e.SiteDomain)
	if !ok || label == "" || len(label) > 63 || strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
		return "", false
	}
	return label, true
}

func (e *Edge) leaf(ctx context.Context, name string) (*leaf, error) {
	if l, ok := e.leaves.get(name); ok && l.fresh(time.Now()) {
		return l, nil
	}
	return e.leaves.loading.do(ctx, name, func(ctx context.Context) (*leaf, error) {
		r, err := e.authority.get(ctx, e)
		if err != nil {
			return nil, err
		}
		l, err := r.sign(name, time.Now())
		if err != nil {
			return nil, fmt.Errorf("sign for %s: %w", name, err)
		}
		e.leaves.put(name, l, 1)
		e.metrics.minted.Inc()
		return l, nil
	})
}

func (l *leaf) fresh(now time.Time) bool { return l.until.Sub(now) > leafRenew }

func (r *root) sign(name string, now time.Time) (*leaf, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	now = now.UTC().Truncate(time.Second) // certificates know no parts of it
	template := &x509.Certificate{
		SerialNumber: serial(),
		NotBefore:    now.Add(-time.Hour), // visitors' clocks
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
	return &leaf{cert: &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, issuer: r.cert.Subject.CommonName,
		from: template.NotBefore, until: template.NotAfter}, nil
}
