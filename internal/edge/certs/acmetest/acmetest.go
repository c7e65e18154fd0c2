// Package acmetest owns an ACME authority (Pebble) on loopback in the test's process. Tests choose the ports and the
// resolver for validation and can make it fail.
package acmetest

import (
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/letsencrypt/pebble/v2/ca"
	"github.com/letsencrypt/pebble/v2/db"
	"github.com/letsencrypt/pebble/v2/va"
	"github.com/letsencrypt/pebble/v2/wfe"
)

// Config says how an Authority validates names, and which accounts it accepts.
type Config struct {
	HTTP01    int    // port for http-01
	TLSALPN01 int    // port for tls-alpn-01
	Resolver  string // host:port of the DNS

	Life time.Duration     // of certificates. Optional: 0 means 90 days.
	Keys map[string]string // external account keys by ID; if set, they are required. Optional.
}

// Authority is an ACME authority. Its methods may be called at any time.
type Authority struct {
	*httptest.Server
	Roots    *x509.CertPool // verify its certificates
	Orders   atomic.Int64   // orders placed
	Requests atomic.Int64

	root    *x509.Certificate
	between atomic.Pointer[func(w http.ResponseWriter, r *http.Request) bool]
}

var once sync.Once

// New starts an authority that ends with the test.
func New(t testing.TB, c Config) *Authority {
	t.Helper()
	once.Do(func() { // Pebble: don't sleep, refuse some nonces, never reuse an authorization
		os.Setenv("PEBBLE_VA_NOSLEEP", "1")
		os.Setenv("PEBBLE_WFE_NONCEREJECT", "5")
		os.Setenv("PEBBLE_AUTHZREUSE", "0")
	})
	if c.Life == 0 {
		c.Life = 90 * 24 * time.Hour
	}
	quiet := log.New(io.Discard, "", 0)
	store := db.NewMemoryStore()
	for id, key := range c.Keys {
		if err := store.AddExternalAccountKeyByID(id, key); err != nil {
			t.Fatal(err)
		}
	}
	issuer := ca.New(quiet, store, "", "ecdsa", 0, 1, map[string]ca.Profile{"default": {ValidityPeriod: uint64(c.Life / time.Second)}})
	front := wfe.New(quiet, store, va.New(quiet, c.HTTP01, c.TLSALPN01, false, c.Resolver,
		store), issuer, []string{"pebble.test"}, false, len(c.Keys) > 0, 1, 1)
	root, err := x509.ParseCertificate(issuer.GetRootCert(0).DER)
	if err != nil {
		t.Fatal(err)
	}
	a := &Authority{Roots: x509.NewCertPool(), root: root}
	a.Roots.AddCert(root)
	h := front.Handler()
	a.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.Requests.Add(1)
		if f := a.between.Load(); f != nil && (*f)(w, r) {
			return
		}
		h.ServeHTTP(&hasty{w, func(status int) {
			if r.URL.Path == orders && status == http.StatusCreated {
				a.Orders.Add(1)
			}
		}}, r)
	}))
	a.Config.ErrorLog = quiet // some tests kill clients on purpose
	a.StartTLS()
	t.Cleanup(func() { a.CloseClientConnections(); a.Close() })
	return a
}

const orders = "/order-plz" // Pebble's path for new orders

// Directory returns the ACME directory's URL.
func (a *Authority) Directory() string { return a.URL + "/dir" }

// PEM returns the certificate to trust for the authority's own address.
func (a *Authority) PEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.Certificate().Raw})
}

// RootPEM returns the root of the certificates that it issues.
func (a *Authority) RootPEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.root.Raw})
}

// Between calls f before every request until Restore. If f returns true, it has answered the request.
func (a *Authority) Between(f func(w http.ResponseWriter, r *http.Request) bool) { a.between.Store(&f) }

// Refuse answers new orders with a problem, until Restore.
func (a *Authority) Refuse(status int, kind, detail string) {
	a.Between(func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != orders {
			return false
		}
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(status)
		json.NewEncoder(w).Encode(map[string]any{"type": "urn:ietf:params:acme:error:" + kind, "detail": detail, "status": status})
		return true
	})
}

// Stop makes the authority unreachable, until Restore.
func (a *Authority) Stop() {
	a.Between(func(w http.ResponseWriter, _ *http.Request) bool {
		if c, _, err := w.(http.Hijacker).Hijack(); err == nil {
			c.Close()
		}
		return true
	})
}

// Restore ends Between, Refuse and Stop.
func (a *Authority) Restore() { a.between.Store(nil) }

// hasty removes Retry-After from responses, so that clients poll at once.
type hasty struct {
	http.ResponseWriter
	answered func(status int)
}

func (h *hasty) WriteHeader(status int) {
	h.Header().Del("Retry-After")
	h.answered(status)
	h.ResponseWriter.WriteHeader(status)
}

func (h *hasty) Write(b []byte) (int, error) {
	h.Header().Del("Retry-After")
	return h.ResponseWriter.Write(b)
}
