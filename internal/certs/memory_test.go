package certs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"runtime"
	"testing"
	"time"
)

// chain makes a certificate with an intermediate, as authorities hand them out.
func chain(t testing.TB, n int) (certificates [][]byte, keys [][]byte) {
	t.Helper()
	check := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	key := func() *ecdsa.PrivateKey {
		k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		check(err)
		return k
	}
	caKey := key()
	ca := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "Intermediate", Organization: []string{"Authority"}}, IsCA: true,
		BasicConstraintsValid: true, NotBefore: time.Now(), NotAfter: time.Now().AddDate(1, 0, 0)}
	caDER, err := x509.CreateCertificate(rand.Reader, ca, ca, &caKey.PublicKey, caKey)
	check(err)
	for i := range n {
		k := key()
		leaf := &x509.Certificate{SerialNumber: big.NewInt(int64(i)), DNSNames: []string{fmt.Sprintf("www.customer-%d.test", i)}, NotBefore: time.Now(),
			NotAfter: time.Now().AddDate(0, 0, 90), OCSPServer: []string{"http://ocsp.authority.test"}, IssuingCertificateURL: []string{"http://authority.test/ca.der"}}
		der, err := x509.CreateCertificate(rand.Reader, leaf, ca, &k.PublicKey, caKey)
		check(err)
		private, err := x509.MarshalECPrivateKey(k)
		check(err)
		certificates = append(certificates, append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
			pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: caDER})...))
		keys = append(keys, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: private}))
	}
	return certificates, keys
}

// BenchmarkMemory says what 10,000 certificates take in memory, ECDSA P-256 with one
// intermediate each.
func BenchmarkMemory(b *testing.B) {
	const n = 10_000
	certificates, keys := chain(b, n)
	use := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	for b.Loop() {
		before := use()
		h := newHeld()
		for i := range n {
			c, err := pair(certificates[i], keys[i])
			if err != nil {
				b.Fatal(err)
			}
			h.put(c.Leaf.DNSNames[0], &entry{cert: lean(c), version: 1})
		}
		took := use() - before
		runtime.KeepAlive(h)
		b.ReportMetric(float64(took)/n, "B/certificate")
		b.ReportMetric(float64(took)/(1<<20), "MiB")
	}
}

// There is an end to what is kept, and a newer row is not replaced by an older one.
func TestHeld(t *testing.T) {
	t.Parallel()
	h := newHeld()
	for i := range maxHeld + 100 {
		h.put(fmt.Sprint(i), &entry{version: 1})
	}
	if len(h.at) != maxHeld {
		t.Errorf("%d are kept", len(h.at))
	}
	h.put("x", &entry{version: 5})
	h.put("x", &entry{version: 4})
	if h.get("x").version != 5 {
		t.Error("an older one won")
	}
	certificates, keys := chain(t, 2)
	if _, err := pair(certificates[0], keys[1]); err == nil {
		t.Error("a certificate with another's key")
	}
	c, err := pair(certificates[0], keys[0])
	if err != nil {
		t.Fatal(err)
	}
	if l := lean(c); l.Leaf != nil || len(l.Certificate) != 2 || string(l.Certificate[0]) != string(c.Certificate[0]) {
		t.Errorf("%d certificates", len(l.Certificate))
	}
}
