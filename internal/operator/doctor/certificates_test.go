package doctor

import (
	"strings"
	"testing"
)

// Doctor reports which visitors get no trusted certificate.
func TestDoctorOnCertificates(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		c    Certificates
		ok   bool
		says string
	}{
		"on this machine":  {Certificates{SiteDomain: "localhost"}, true, "local authority"},
		"no authority":     {Certificates{SiteDomain: "sites.example.com"}, false, "browsers warn"},
		"without wildcard": {Certificates{SiteDomain: "sites.example.com", Public: true}, false, "--acme-ca without --acme-dns"},
		"with wildcard":    {Certificates{SiteDomain: "sites.example.com", Public: true, DNS: true}, true, "*.sites.example.com"},
		"local below":      {Certificates{SiteDomain: "dev.localhost", Public: true}, true, "dev.localhost"},
	} {
		if got := tt.c.check(); got.OK != tt.ok || got.Required || !strings.Contains(got.Text, tt.says) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
