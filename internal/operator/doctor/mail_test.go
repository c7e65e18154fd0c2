package doctor

import (
	"encoding/pem"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"slipway/internal/operator/config"
	"slipway/internal/tenant/mail/mailtest"
)

// Doctor connects to the mail server as for sending an email and reports what fails.
func TestDoctorChecksMail(t *testing.T) {
	t.Parallel()
	srv := mailtest.New(t, mailtest.Config{StartTLS: true, User: "slipway", Password: "secret"})
	certified := httptest.NewTLSServer(nil)
	certified.Close()
	roots := written(t, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certified.Certificate().Raw}))
	m := config.SMTP{Addr: srv.Addr, From: "noreply@slipway.test", User: "slipway", Password: "secret", TLS: "starttls", CAFile: roots}
	if c := mailServer(t.Context(), m); !c.OK || c.Required || !strings.Contains(c.Text, "over TLS 1.3, and knows slipway") {
		t.Errorf("all well: %+v", c)
	}
	for want, change := range map[string]func(*config.SMTP){
		"535":         func(m *config.SMTP) { m.Password = "wrong" },
		"certificate": func(m *config.SMTP) { m.CAFile = "" },
		"--smtp-from": func(m *config.SMTP) { m.From = "" },
	} {
		bad := m
		change(&bad)
		if c := mailServer(
			t.Context(),
			bad,
		); c.OK || !strings.Contains(c.Text, want) || strings.Contains(c.Text, "wrong") && want == "535" {
			t.Errorf("got %+v, want %q", c, want)
		}
	}
	if c := mailServer(t.Context(), config.SMTP{}); !c.OK || !strings.Contains(c.Text, "not configured") {
		t.Errorf("without mail: %+v", c)
	}
	srv.Stop()
	if c := mailServer(t.Context(), m); c.OK || !strings.Contains(c.Text, "reach mail server") {
		t.Errorf("a server that is down: %+v", c)
	}
}

func written(t *testing.T, b []byte) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}
