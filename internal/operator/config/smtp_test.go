package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
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
	if s, err := c.Check(); err != nil || s.Mailer != nil {
		t.Errorf("without mail: %v, %v", s.Mailer, err)
	}
	c.BaseURL, c.SMTP = "http://slipway.test", SMTP{
		Addr:         "mail.test:587",
		From:         "Slipway <noreply@slipway.test>",
		User:         "slipway",
		PasswordFile: written(t, "secret\n"),
	}
	if s, err := c.Check(); err != nil || s.Mailer == nil {
		t.Errorf("with mail: %v, %v", s.Mailer, err)
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
		if _, err := bad.Check(); err == nil || !strings.Contains(
			err.Error(),
			want,
		) || strings.Contains(err.Error(), "\n") || strings.Contains(err.Error(), "secret") {
			t.Errorf("got %v, want one line with %q", err, want)
		}
	}
}
