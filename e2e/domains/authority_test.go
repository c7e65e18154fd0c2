package domains

import (
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/letsencrypt/pebble/v2/ca"
	pebbledb "github.com/letsencrypt/pebble/v2/db"
	"github.com/letsencrypt/pebble/v2/va"
	"github.com/letsencrypt/pebble/v2/wfe"
)

// authority is an ACME authority: Pebble, in this process, which proves names at the
// program's own ports.
type authority struct {
	*httptest.Server
	root     *x509.CertPool
	orders   atomic.Int64 // that were placed
	requests atomic.Int64
	between  atomic.Pointer[func(w http.ResponseWriter, r *http.Request) bool] // answers instead, where it returns true
}

// newAuthority issues certificates that live for life, with a key to customers alone.
func newAuthority(t testing.TB, http01, tlsALPN01, resolver string, life time.Duration, key string) *authority {
	t.Helper()
	port := func(addr string) int {
		_, text, _ := net.SplitHostPort(addr)
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	quiet := log.New(io.Discard, "", 0)
	store := pebbledb.NewMemoryStore()
	if key != "" {
		if err := store.AddExternalAccountKeyByID("customer-1", key); err != nil {
			t.Fatal(err)
		}
	}
	issuer := ca.New(quiet, store, "", "ecdsa", 0, 1, map[string]ca.Profile{"default": {ValidityPeriod: uint64(life / time.Second)}})
	front := wfe.New(quiet, store, va.New(quiet, port(http01), port(tlsALPN01), false, resolver, store), issuer, []string{"pebble.test"}, false, key != "", 1, 1)
	a := &authority{root: x509.NewCertPool()}
	root, err := x509.ParseCertificate(issuer.GetRootCert(0).DER)
	if err != nil {
		t.Fatal(err)
	}
	a.root.AddCert(root)
	h := front.Handler()
	a.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.requests.Add(1)
		if f := a.between.Load(); f != nil && (*f)(w, r) {
			return
		}
		h.ServeHTTP(&hasty{w, func(status int) {
			if r.URL.Path == "/order-plz" && status == http.StatusCreated {
				a.orders.Add(1)
			}
		}}, r)
	}))
	a.Config.ErrorLog = quiet // killed clients are the point here
	a.StartTLS()
	t.Cleanup(func() { a.CloseClientConnections(); a.Close() })
	return a
}

// pem is the certificate that the authority's own address is trusted by.
func (a *authority) pem() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.Certificate().Raw})
}

// hasty takes the answers' wish to be asked again after a second away.
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

// refuse makes the authority answer new orders with a problem until heal.
func (a *authority) refuse(status int, kind, detail string) {
	f := func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != "/order-plz" {
			return false
		}
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(status)
		json.NewEncoder(w).Encode(map[string]any{"type": "urn:ietf:params:acme:error:" + kind, "detail": detail, "status": status})
		return true
	}
	a.between.Store(&f)
}

// die makes the authority unreachable until heal.
func (a *authority) die() {
	f := func(w http.ResponseWriter, _ *http.Request) bool {
		if c, _, err := w.(http.Hijacker).Hijack(); err == nil {
			c.Close()
		}
		return true
	}
	a.between.Store(&f)
}

func (a *authority) heal() { a.between.Store(nil) }
