package edge

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"slipway/internal/dbtest"
	"slipway/internal/seal"
)

func TestCertificates(t *testing.T) {
	t.Parallel()
	w := start(t, func(c *Config) { c.ControlHosts = append(c.ControlHosts, "127.0.0.1") })
	shake := func(name string, change ...func(*tls.Config)) (*tls.ConnectionState, error) {
		c := &tls.Config{RootCAs: w.roots, ServerName: name, NextProtos: []string{"h2"}}
		for _, f := range change {
			f(c)
		}
		conn, err := tls.Dial("tcp", w.https, c)
		if err != nil {
			return nil, err
		}
		defer conn.Close()
		state := conn.ConnectionState()
		return &state, nil
	}
	for _, name := range []string{"blog.sites.test", "unknown.sites.test", "abcdefghijk1--blog.sites.test", "panel.test", "127.0.0.1"} {
		s, err := shake(name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		leaf := s.PeerCertificates[0]
		if err := leaf.VerifyHostname(name); err != nil || len(leaf.DNSNames)+len(leaf.IPAddresses) != 1 || leaf.IsCA {
			t.Errorf("%s: names %v %v, %v", name, leaf.DNSNames, leaf.IPAddresses, err)
		}
		if life := leaf.NotAfter.Sub(leaf.NotBefore); life > 398*24*time.Hour {
			t.Errorf("%s: lives for %v, browsers refuse that", name, life)
		}
		if s.NegotiatedProtocol != "h2" {
			t.Errorf("%s: protocol %q", name, s.NegotiatedProtocol)
		}
		again, err := shake(name)
		if err != nil || !again.PeerCertificates[0].Equal(leaf) {
			t.Errorf("%s: another certificate the second time, %v", name, err)
		}
	}
	for _, name := range []string{"evil.test", "sites.test", "a.b.sites.test", "xsites.test", "a_b.sites.test", strings.Repeat("a", 64) + ".sites.test"} {
		_, err := shake(name)
		if err == nil || !strings.Contains(err.Error(), "unrecognized name") {
			t.Errorf("%s: %v, want the alert unrecognized_name", name, err)
		}
	}
	if _, err := shake("blog.sites.test", func(c *tls.Config) { c.MaxVersion = tls.VersionTLS11; c.MinVersion = tls.VersionTLS10 }); err == nil {
		t.Error("TLS 1.1 was accepted")
	}
}

// A certificate is replaced well before it ends, and a stranger's names do not pile up.
func TestLeaves(t *testing.T) {
	t.Parallel()
	w := start(t)
	first, err := w.leaf(t.Context(), "blog.sites.test")
	if err != nil {
		t.Fatal(err)
	}
	r, err := w.authority.get(t.Context(), w.Edge)
	if err != nil {
		t.Fatal(err)
	}
	old, err := r.sign("blog.sites.test", time.Now().AddDate(0, 0, -leafDays+5))
	if err != nil {
		t.Fatal(err)
	}
	w.leaves.put("blog.sites.test", old, 1)
	renewed, err := w.leaf(t.Context(), "blog.sites.test")
	if err != nil {
		t.Fatal(err)
	}
	if renewed == old || renewed == first || time.Until(renewed.until) < leafRenew {
		t.Errorf("not renewed: ends %v", renewed.until)
	}
	for i := range maxLeaves + 10 {
		w.leaves.put(fmt.Sprint(i), old, 1)
	}
	if n := len(w.leaves.at); n != maxLeaves {
		t.Errorf("%d certificates are kept, at most %d should be", n, maxLeaves)
	}
	last, err := r.sign("x.sites.test", r.cert.NotAfter.AddDate(0, 0, -1))
	if err != nil || last.until.After(r.cert.NotAfter) {
		t.Errorf("a leaf outlives its root, %v", err)
	}
}

func TestForeignCertificateComesFirst(t *testing.T) {
	t.Parallel()
	other, err := New(Config{}).foreign()
	if err != nil {
		t.Fatal(err)
	}
	w := start(t, func(c *Config) {
		c.Certificate = func(h *tls.ClientHelloInfo) (*tls.Certificate, error) {
			if h.ServerName == "shop.customer.test" {
				return other, nil
			}
			return nil, nil
		}
	})
	w.live("s1", "blog", stateEmpty, "")
	for _, name := range []string{"unknown.sites.test", "abcdefghijk1--unknown.sites.test", "evil.test"} {
		c, err := tls.Dial("tcp", w.https, &tls.Config{ServerName: name, InsecureSkipVerify: true})
		if err == nil {
			c.Close()
		}
		if err == nil || !strings.Contains(err.Error(), "unrecognized name") {
			t.Errorf("%s: %v, want the alert unrecognized_name", name, err)
		}
	}
	// Whoever asks for a proof alone never gets a certificate.
	if c, err := tls.Dial("tcp", w.https, &tls.Config{ServerName: "blog.sites.test", InsecureSkipVerify: true, NextProtos: []string{protocolProof}}); err == nil {
		c.Close()
		t.Error("a certificate for acme-tls/1")
	}
	for host, want := range map[string]string{"blog.sites.test": "blog.sites.test", "unknown.sites.test": "", "panel.test": "panel.test",
		"abcdefghijk1--blog.sites.test": "", "evil.test": ""} {
		if got := w.CertificateName(host); got != want {
			t.Errorf("%s: name %q, want %q", host, got, want)
		}
	}
	for name, want := range map[string]bool{"shop.customer.test": true, "blog.sites.test": false, "abcdefghijk1--blog.sites.test": false} {
		c, err := tls.Dial("tcp", w.https, &tls.Config{ServerName: name, InsecureSkipVerify: true}) // whose it is is the question
		if err != nil {
			t.Fatal(err)
		}
		got := bytes.Equal(c.ConnectionState().PeerCertificates[0].Raw, other.Certificate[0])
		c.Close()
		if got != want {
			t.Errorf("%s: foreign certificate %v, want %v", name, got, want)
		}
	}
}

func (e *Edge) foreign() (*tls.Certificate, error) {
	certificate, key, err := newRoot(time.Now())
	if err != nil {
		return nil, err
	}
	r, err := parseRoot(certificate, key)
	if err != nil {
		return nil, err
	}
	l, err := r.sign("shop.customer.test", time.Now())
	if err != nil {
		return nil, err
	}
	return l.cert, nil
}

// Two nodes that start at once on an empty database agree on one authority, and it is
// the same after a restart.
func TestOneAuthority(t *testing.T) {
	t.Parallel()
	url := dbtest.URL(t)
	nodes := make([]*Edge, 4)
	sealer, err := seal.Load(filepath.Join(t.TempDir(), "key"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range nodes {
		nodes[i] = New(Config{DB: dbtest.Open(t, url), Seal: sealer, SiteDomain: "sites.test"})
	}
	got := make([]string, len(nodes))
	var wg sync.WaitGroup
	for i, e := range nodes {
		wg.Go(func() {
			b, err := e.RootPEM(t.Context())
			if err != nil {
				t.Error(err)
			}
			got[i] = string(b)
		})
	}
	wg.Wait()
	for _, pem := range got[1:] {
		if pem != got[0] {
			t.Fatal("two authorities")
		}
	}
	block, _ := pem.Decode([]byte(got[0]))
	root, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	if !root.IsCA || !root.MaxPathLenZero || !strings.HasPrefix(root.Subject.CommonName, "Slipway Local Authority ") ||
		time.Until(root.NotAfter) < 9*365*24*time.Hour {
		t.Errorf("root %v, CA %v, until %v", root.Subject, root.IsCA, root.NotAfter)
	}
	var key string
	if err := nodes[0].DB.QueryRow(t.Context(), "SELECT private_key FROM authority").Scan(&key); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(key, "PRIVATE") || !strings.HasPrefix(key, "v1.") {
		t.Error("the key is not sealed")
	}
	// With another secrets key nothing opens, and Run says so instead of making a new one.
	stranger, err := seal.Load(filepath.Join(t.TempDir(), "key"))
	if err != nil {
		t.Fatal(err)
	}
	e := New(Config{DB: nodes[0].DB, Seal: stranger, SiteDomain: "sites.test"})
	if err := e.Run(t.Context()); !errors.Is(err, seal.ErrOpen) {
		t.Errorf("Run = %v, want seal.ErrOpen", err)
	}
}

func BenchmarkMint(b *testing.B) {
	certificate, key, err := newRoot(time.Now())
	if err != nil {
		b.Fatal(err)
	}
	r, err := parseRoot(certificate, key)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := r.sign("blog.sites.test", time.Now()); err != nil {
			b.Fatal(err)
		}
	}
}
