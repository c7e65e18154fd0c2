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
	"testing"
	"time"
)

// chain returns n certificates with keys, each chain with an intermediate as authorities issue them.
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
	ca := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "Intermediate", Organization: []string{"Authority"}},
		IsCA:                  true,
		BasicConstraintsValid: true,
		NotBefore:             time.Now(),
		NotAfter:              time.Now().AddDate(1, 0, 0),
	}
	caDER, err := x509.CreateCertificate(rand.Reader, ca, ca, &caKey.PublicKey, caKey)
	check(err)
	for i := range n {
		k := key()
		leaf := &x509.Certificate{
			SerialNumber:          big.NewInt(int64(i)),
			DNSNames:              []string{fmt.Sprintf("www.customer-%d.test", i)},
			NotBefore:             time.Now(),
			NotAfter:              time.Now().AddDate(0, 0, 90),
			OCSPServer:            []string{"http://ocsp.authority.test"},
			IssuingCertificateURL: []string{"http://authority.test/ca.der"},
		}
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

// The cache is bounded, and an older row doesn't replace a newer one.
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
	l := h.lean(c)
	if l.Leaf != nil || len(l.Certificate) != 2 || string(l.Certificate[0]) != string(c.Certificate[0]) ||
		string(l.Certificate[1]) != string(c.Certificate[1]) {
		t.Errorf("%d certificates", len(l.Certificate))
	}
	// An intermediate shared by many names is kept in memory once, and the number of intermediates is bounded.
	second, err := pair(certificates[1], keys[1])
	if err != nil {
		t.Fatal(err)
	}
	if other := h.lean(second); &other.Certificate[1][0] != &l.Certificate[1][0] || &other.Certificate[0][0] == &l.Certificate[0][0] {
		t.Error("the authority's certificate is kept twice, or the leaf once")
	}
	for i := range 3 * maxShared {
		der := []byte(fmt.Sprint(i))
		if got := h.shared(der); string(got) != string(der) || &got[0] == &der[0] {
			t.Fatalf("%q for %q", got, der)
		}
	}
}
