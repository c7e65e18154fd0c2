package certs

import (
	"context"
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

	"slipway/internal/platform/db"
	"slipway/internal/platform/dbtest"
	"slipway/internal/platform/seal"
	"slipway/internal/platform/wait"
)

// local returns an installation without an ACME authority.
func local(t testing.TB, d *db.DB, sealer *seal.Sealer, change ...func(*Config)) *Certs {
	t.Helper()
	c := Config{DB: d, Seal: sealer, SiteDomain: "sites.test"}
	for _, f := range change {
		f(&c)
	}
	s, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// The local authority replaces a certificate well before it expires, and its cache of certificates is bounded.
func TestLeaves(t *testing.T) {
	t.Parallel()
	a := &local(t, dbtest.New(t), sealer(t)).local
	first, err := a.leaf(t.Context(), "blog.sites.test")
	if err != nil {
		t.Fatal(err)
	}
	if again, err := a.leaf(t.Context(), "blog.sites.test"); err != nil || again != first {
		t.Errorf("another certificate the second time, %v", err)
	}
	r, err := a.get(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	old, err := r.sign("blog.sites.test", time.Now().AddDate(0, 0, -leafDays+5))
	if err != nil {
		t.Fatal(err)
	}
	a.leaves.put("blog.sites.test", old)
	renewed, err := a.leaf(t.Context(), "blog.sites.test")
	if err != nil {
		t.Fatal(err)
	}
	if renewed == old || renewed == first || time.Until(renewed.until) < leafRenew {
		t.Errorf("not renewed: ends %v", renewed.until)
	}
	for i := range maxLeaves + 10 {
		a.leaves.put(fmt.Sprint(i), old)
	}
	if n := len(a.leaves.at); n != maxLeaves {
		t.Errorf("%d certificates are kept, at most %d should be", n, maxLeaves)
	}
	last, err := r.sign("x.sites.test", r.cert.NotAfter.AddDate(0, 0, -1))
	if err != nil || last.until.After(r.cert.NotAfter) {
		t.Errorf("a leaf outlives its root, %v", err)
	}
}

// Nodes that start concurrently on an empty database agree on one local authority, which stays the same after a restart.
func TestOneAuthority(t *testing.T) {
	t.Parallel()
	url := dbtest.URL(t)
	nodes := make([]*Certs, 4)
	sealer, err := seal.Load(filepath.Join(t.TempDir(), "key"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range nodes {
		nodes[i] = local(t, dbtest.Open(t, url), sealer)
	}
	got := make([]string, len(nodes))
	var wg sync.WaitGroup
	for i, s := range nodes {
		wg.Go(func() {
			b, err := s.RootPEM(t.Context())
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
	if err := nodes[0].c.DB.QueryRow(t.Context(), "SELECT private_key FROM authority").Scan(&key); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(key, "PRIVATE") || !strings.HasPrefix(key, "v1.") {
		t.Error("the key is not sealed")
	}
	// With another secrets key the stored authority can't be decrypted. Run returns an error instead of creating a new
	// one.
	stranger, err := seal.Load(filepath.Join(t.TempDir(), "key"))
	if err != nil {
		t.Fatal(err)
	}
	if err := local(t, nodes[0].c.DB, stranger).Run(t.Context()); !errors.Is(err, seal.ErrOpen) {
		t.Errorf("Run = %v, want seal.ErrOpen", err)
	}
}

// Without an ACME authority, the local one signs certificates for every name that the caller passes, and for no other.
func TestLocalCertificate(t *testing.T) {
	t.Parallel()
	s := local(t, dbtest.New(t), sealer(t))
	if _, err := s.RootPEM(t.Context()); err != nil { // a handshake built by hand has no context for the database
		t.Fatal(err)
	}
	for _, tt := range []struct {
		host, name string
		known      bool
		protocols  []string
		want       bool
	}{
		{"blog.sites.test", "blog.sites.test", true, nil, true},
		{"unknown.sites.test", "unknown.sites.test", false, nil, true},
		{"any.customer.test", "*.customer.test", true, nil, true},
		{"", "127.0.0.1", true, nil, true},
		{"evil.test", "", false, nil, false},
		{"blog.sites.test", "blog.sites.test", true, []string{ProtocolTLSALPN}, false},
	} {
		c, err := s.Certificate(&tls.ClientHelloInfo{ServerName: tt.host, SupportedProtos: tt.protocols}, tt.name, tt.known)
		if err != nil || (c != nil) != tt.want {
			t.Errorf("%s: certificate %v, %v, want %v", tt.host, c != nil, err, tt.want)
		}
		if c == nil {
			continue
		}
		leaf, err := x509.ParseCertificate(c.Certificate[0])
		if err != nil || leaf.VerifyHostname(tt.name) != nil && tt.name != "*.customer.test" ||
			len(leaf.DNSNames)+len(leaf.IPAddresses) != 1 {
			t.Errorf("%s: names %v %v, %v", tt.host, leaf.DNSNames, leaf.IPAddresses, err)
		}
	}
}

// A custom host gets a certificate from the local authority before its first visitor. The certificate is reported until
// custom_hosts marks the host as certified.
func TestLocalReports(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	for _, q := range []string{
		`DROP VIEW custom_hosts`,
		`CREATE TABLE custom_hosts (host TEXT PRIMARY KEY, site_id TEXT, redirect_to TEXT, state TEXT, version BIGINT NOT NULL, certified_until BIGINT NOT NULL DEFAULT 0)`,
	} {
		if err := d.Admin(t.Context(), q); err != nil {
			t.Fatal(err)
		}
	}
	var mu sync.Mutex
	heard := map[string][]Report{}
	s := local(t, d, sealer(t), func(c *Config) {
		c.Domains = hears(func(_ context.Context, tx *db.Tx, r Report) error {
			tx.AfterCommit(func() { mu.Lock(); defer mu.Unlock(); heard[r.Host] = append(heard[r.Host], r) })
			return nil
		})
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	times := func(host string) int { mu.Lock(); defer mu.Unlock(); return len(heard[host]) }
	until := func(ok func() bool) {
		t.Helper()
		wait.Until(t, "it is so", ok)
	}
	exec := func(q string) {
		t.Helper()
		if err := d.Admin(t.Context(), q); err != nil {
			t.Fatal(err)
		}
	}
	exec(
		`INSERT INTO custom_hosts VALUES ('www.customer.test', 's1', '', 'active', 1, 0), ('*.customer.test', 's1', '', 'active', 2, 0), ('old.customer.test', 's1', '', 'deleted', 3, 0)`,
	)
	until(func() bool { return times("www.customer.test") == 1 && times("*.customer.test") == 1 })
	mu.Lock()
	c := heard["www.customer.test"][0]
	mu.Unlock()
	if c.Event != Issued || c.State != Active || !strings.HasPrefix(c.Issuer, "Slipway Local Authority ") ||
		!c.NotBefore.Before(time.Now()) || time.Until(c.NotAfter) < 29*24*time.Hour {
		t.Errorf("report %+v", c)
	}
	exec(fmt.Sprintf("UPDATE custom_hosts SET certified_until = %d WHERE host = 'www.customer.test'",
		db.At(time.Now().Add(leafRenew+time.Hour))))
	exec(fmt.Sprintf("UPDATE custom_hosts SET certified_until = %d WHERE host = '*.customer.test'",
		db.At(time.Now().Add(leafRenew-time.Hour))))
	if _, err := s.certifyAbove(t.Context(), -1); err != nil {
		t.Fatal(err)
	}
	until(func() bool { return times("*.customer.test") == 2 })
	mu.Lock()
	defer mu.Unlock()
	if n := len(heard["www.customer.test"]); n != 1 || heard["*.customer.test"][1].Event != Renewed ||
		len(heard["old.customer.test"]) != 0 {
		t.Errorf("heard %+v", heard)
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

// hears is a function that receives certificate reports.
type hears func(ctx context.Context, tx *db.Tx, r Report) error

func (f hears) ReportTx(ctx context.Context, tx *db.Tx, r Report) error { return f(ctx, tx, r) }
func (hears) Delegated(context.Context, string) (bool, error)           { return true, nil }
