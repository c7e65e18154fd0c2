package certs

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
)

// The CAA names of large authorities are built in. Other authorities' names are read once from their directory, or are
// unknown.
func TestPermits(t *testing.T) {
	t.Parallel()
	var asked, ill atomic.Int64
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if ill.Load() != 0 {
			http.Error(w, "maintenance", http.StatusServiceUnavailable)
			return
		}
		w.Write(
			[]byte(
				`{"newNonce":"https://x.test/n","newAccount":"https://x.test/a","newOrder":"https://x.test/o","meta":{"caaIdentities":["CA.test","letsencrypt.org"]}}`,
			),
		)
	}))
	t.Cleanup(srv.Close)
	known := []string{
		"https://acme-v02.api.letsencrypt.org/directory", "https://acme.zerossl.com/v2/DV90",
		"https://dv.acme-v02.api.pki.goog/directory", "https://api.buypass.com/acme/directory",
		"https://acme-staging-v02.api.letsencrypt.org/directory",
	}
	p := NewPermits(append(known, srv.URL+"/one"), srv.Client(), "")
	for range 3 {
		if got := strings.Join(p.CAs(t.Context()), " "); got != "letsencrypt.org sectigo.com pki.goog buypass.com ca.test" {
			t.Errorf("got %q", got)
		}
	}
	if n := asked.Load(); n != 1 {
		t.Errorf("asked %d times", n)
	}
	ill.Store(1)
	p = NewPermits([]string{srv.URL + "/two", known[0]}, srv.Client(), "")
	before := asked.Load()
	for range 3 {
		if got := p.CAs(t.Context()); !slices.Equal(got, []string{"letsencrypt.org"}) {
			t.Errorf("got %q", got)
		}
	}
	if n := asked.Load() - before; n != 1 {
		t.Errorf("an ill directory was asked %d times", n)
	}
}
