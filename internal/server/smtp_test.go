package server

import (
	"encoding/pem"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"slipway/internal/mail/mailtest"
)

func written(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestCheckMailSettings(t *testing.T) {
	t.Parallel()
	c := good()
	if s, err := c.check(); err != nil || s.mailer != nil {
		t.Errorf("without mail: %v, %v", s.mailer, err)
	}
	c.BaseURL, c.SMTP = "http://slipway.test", SMTP{Addr: "mail.test:587", From: "Slipway <noreply@slipway.test>", User: "slipway", PasswordFile: written(t, "secret\n")}
	if s, err := c.check(); err != nil || s.mailer == nil {
		t.Errorf("with mail: %v, %v", s.mailer, err)
	}
	for want, change := range map[string]func(*Config){
		"--base-url":                          func(c *Config) { c.BaseURL = "" },
		"--smtp-from":                         func(c *Config) { c.SMTP.From = "" },
		"--smtp: the sender":                  func(c *Config) { c.SMTP.From = "nobody" },
		"is not HOST:PORT":                    func(c *Config) { c.SMTP.Addr = "mail.test" },
		"have no effect without the server's": func(c *Config) { c.SMTP.Addr = "" },
		"there is no password for it":         func(c *Config) { c.SMTP.PasswordFile = "" },
		"use only one of the two":             func(c *Config) { c.SMTP.Password = "x" },
		"--smtp-password-file: open":          func(c *Config) { c.SMTP.PasswordFile = "/does/not/exist" },
		"does not hold one line":              func(c *Config) { c.SMTP.PasswordFile = written(t, "\n") },
		"one line with a password":            func(c *Config) { c.SMTP.PasswordFile = written(t, "a\nb") },
		"sent only over TLS":                  func(c *Config) { c.SMTP.TLS = "off" },
	} {
		bad := c
		change(&bad)
		if _, err := bad.check(); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") || strings.Contains(err.Error(), "secret") {
			t.Errorf("got %v, want one line with %q", err, want)
		}
	}
}

// The doctor talks to the server as a mail would, and says what stands in the way.
func TestDoctorChecksMail(t *testing.T) {
	t.Parallel()
	srv := mailtest.New(t, mailtest.Config{StartTLS: true, User: "slipway", Password: "secret"})
	certified := httptest.NewTLSServer(nil)
	certified.Close()
	roots := written(t, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certified.Certificate().Raw})))
	m := SMTP{Addr: srv.Addr, From: "noreply@slipway.test", User: "slipway", Password: "secret", TLS: "starttls", CAFile: roots}
	if c := mailServer(t.Context(), m); !c.ok || c.required || !strings.Contains(c.text, "over TLS 1.3, and knows slipway") {
		t.Errorf("all well: %+v", c)
	}
	for want, change := range map[string]func(*SMTP){
		"535":         func(m *SMTP) { m.Password = "wrong" },
		"certificate": func(m *SMTP) { m.CAFile = "" },
		"--smtp-from": func(m *SMTP) { m.From = "" },
	} {
		bad := m
		change(&bad)
		if c := mailServer(t.Context(), bad); c.ok || !strings.Contains(c.text, want) || strings.Contains(c.text, "wrong") && want == "535" {
			t.Errorf("got %+v, want %q", c, want)
		}
	}
	if c := mailServer(t.Context(), SMTP{}); !c.ok || !strings.Contains(c.text, "not configured") {
		t.Errorf("without mail: %+v", c)
	}
	srv.Stop()
	if c := mailServer(t.Context(), m); c.ok || !strings.Contains(c.text, "reach mail server") {
		t.Errorf("a server that is down: %+v", c)
	}
}
