package fetch

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"slipway/internal/platform/egress"
	"slipway/internal/platform/fault"
)

// https works through the proxy with the operator's own root certificates.
func TestHTTPS(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	commit := h.commit(t, "acme/private", "main", map[string]string{"x": "1"})
	tls := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, ".git/") { // a host that doesn't know the suffix
			http.NotFound(w, r)
			return
		}
		r.URL.Path = strings.Replace(r.URL.Path, "/private/", "/private.git/", 1)
		h.pass(w, r)
	}))
	t.Cleanup(tls.Close)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: tls.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	r := Request{Site: "s", Repository: repo(t, tls.URL+"/acme/private"), Credential: &Credential{Token: token}}
	for _, tt := range []struct {
		ca, allow, code string
	}{{ca, "127.0.0.0/8", ""}, {"", "127.0.0.0/8", "certificate_refused"}, {ca, "10.0.0.0/8", "host_blocked"}} {
		e, err := egress.New(egress.Config{CAFile: tt.ca, Allow: []netip.Prefix{netip.MustParsePrefix(tt.allow)}})
		if err != nil {
			t.Fatal(err)
		}
		s := open(t, nil, func(c *Config) { c.Egress = e })
		tree, err := s.Fetch(t.Context(), r)
		if tt.code == "" {
			if err != nil || tree.Commit != commit {
				t.Errorf("trusted: %v", err)
			}
			continue
		}
		if f := fault.As(err); f == nil || f.Code != tt.code {
			t.Errorf("want %s, got %v (%+v)", tt.code, err, f)
		}
	}
}
