package webhook

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"time"

	"slipway/internal/platform/dbtest"
	"slipway/internal/platform/egress"
	"slipway/internal/tenant/webhook/delivery"
	"slipway/internal/tenant/webhook/event"
)

// authority issues certificates for endpoints.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t testing.TB) authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	cert := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "Test"},
		NotBefore:             time.Now().Add(-240 * time.Hour),
		NotAfter:              time.Now().Add(time.Hour),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, cert, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	if cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	return authority{cert, key}
}

func (a authority) issue(t testing.TB, until time.Time, ip string) tls.Certificate {
	t.Helper()
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2),
		NotBefore:    time.Now().Add(-48 * time.Hour),
		NotAfter:     until,
		IPAddresses:  []net.IP{net.ParseIP(ip)},
	}
	der, err := x509.CreateCertificate(rand.Reader, leaf, a.cert, &a.key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: a.key}
}

// Each kind of connection failure has a reason code and a sentence that the endpoint's developer can act on.
func TestReasons(t *testing.T) {
	t.Parallel()
	ca, stranger := newAuthority(t), newAuthority(t)
	roots := x509.NewCertPool()
	roots.AddCert(ca.cert)
	e, err := egress.New(egress.Config{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, Roots: roots})
	if err != nil {
		t.Fatal(err)
	}
	secure := func(c tls.Certificate) string {
		s := httptest.NewUnstartedServer(status(200))
		s.TLS = &tls.Config{Certificates: []tls.Certificate{c}}
		s.StartTLS()
		t.Cleanup(s.Close)
		return s.URL
	}
	plain := httptest.NewServer(status(200))
	t.Cleanup(plain.Close)
	raw := func(speak func(net.Conn)) string {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				speak(c)
				c.Close()
			}
		}()
		return "https://" + l.Addr().String()
	}
	good := ca.issue(t, time.Now().Add(time.Hour), "127.0.0.1")
	old := httptest.NewUnstartedServer(status(200))
	old.TLS = &tls.Config{Certificates: []tls.Certificate{good}, MaxVersion: tls.VersionTLS11, MinVersion: tls.VersionTLS10}
	old.StartTLS()
	t.Cleanup(old.Close)
	cut := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		c, _, _ := w.(http.Hijacker).Hijack()
		c.Write([]byte("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n"))
		c.Close()
	}))
	cut.TLS = &tls.Config{Certificates: []tls.Certificate{good}}
	cut.StartTLS()
	t.Cleanup(cut.Close)
	for name, tt := range map[string]struct{ url, want string }{
		"well":                    {secure(good), ""},
		"unknown authority":       {secure(stranger.issue(t, time.Now().Add(time.Hour), "127.0.0.1")), delivery.ReasonAuthority},
		"wrong name":              {secure(ca.issue(t, time.Now().Add(time.Hour), "127.0.0.2")), delivery.ReasonWrongName},
		"expired":                 {secure(ca.issue(t, time.Now().Add(-time.Hour), "127.0.0.1")), delivery.ReasonExpired},
		"plain HTTP":              {"https://" + plain.Listener.Addr().String(), delivery.ReasonNoTLS},
		"another protocol":        {raw(func(c net.Conn) { c.Write([]byte("220 mail.example.test ESMTP ready\r\n")) }), delivery.ReasonNoTLS},
		"TLS 1.1":                 {old.URL, delivery.ReasonTLS},
		"closed in the handshake": {raw(func(net.Conn) {}), delivery.ReasonClosedEarly},
		"closed in the answer":    {cut.URL, delivery.ReasonClosedEarly},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWebhooks(t, dbtest.New(t), nil, func(c *Config) { c.Out = e.Client(10 * time.Second) })
			start(t, w)
			h := create(t, w, tt.url, "site.created")
			emit(t, w, event.SiteCreated(someSite))
			d := settle(t, w, h.ID, tried(1))
			if d.Attempts[0].Error != tt.want || tt.want != "" && delivery.Reasons[tt.want] == "" {
				t.Errorf("attempt %+v, want %s", d.Attempts[0], tt.want)
			}
		})
	}
}
