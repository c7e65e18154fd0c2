package config

import (
	"cmp"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"

	"slipway/internal/tenant/mail"
)

// SMTP says which server takes mails, as it was said. An empty Addr: none.
type SMTP struct {
	Addr         string // HOST:PORT
	User         string
	Password     string
	PasswordFile string // holds it instead
	From         string
	TLS          string // empty: auto
	CAFile       string // further roots to trust
}

// Mailer checks what was said and returns what sends mails, or nil where nothing does.
// name is how this machine introduces itself.
func (m SMTP) Mailer(name string) (*mail.Mailer, error) {
	if m.Addr == "" {
		if m.User != "" || m.PasswordFile != "" || m.From != "" {
			return nil, errors.New("--smtp: the other email settings have no effect without the server's HOST:PORT")
		}
		return nil, nil
	}
	if m.From == "" {
		return nil, errors.New("--smtp-from: mails need a sender, such as noreply@example.com")
	}
	password, err := m.password()
	if err != nil {
		return nil, err
	}
	if m.User != "" && password == "" {
		return nil, errors.New(
			"--smtp-user: there is no password for it; put it into a file (--smtp-password-file) or into SLIPWAY_SMTP_PASSWORD",
		)
	}
	c := mail.Config{
		Addr:     m.Addr,
		User:     m.User,
		Password: password,
		From:     m.From,
		TLS:      mail.TLS(cmp.Or(m.TLS, string(mail.Auto))),
		Name:     name,
	}
	if m.CAFile != "" {
		pem, err := os.ReadFile(m.CAFile)
		if err != nil {
			return nil, fmt.Errorf("--outbound-ca-file: %w", err)
		}
		if c.Roots, err = x509.SystemCertPool(); err != nil {
			return nil, fmt.Errorf("read system roots: %w", err)
		}
		if !c.Roots.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("--outbound-ca-file: %s holds no certificate in PEM form", m.CAFile)
		}
	}
	out, err := mail.New(c)
	if err != nil {
		return nil, fmt.Errorf("--smtp: %w", err)
	}
	return out, nil
}

func (m SMTP) password() (string, error) {
	switch {
	case m.PasswordFile == "":
		return m.Password, nil
	case m.Password != "":
		return "", errors.New("--smtp-password-file: SLIPWAY_SMTP_PASSWORD is set too; use only one of the two")
	}
	f, err := os.Open(m.PasswordFile)
	if err != nil {
		return "", fmt.Errorf("--smtp-password-file: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, 4097))
	password := strings.TrimRight(string(text), "\r\n")
	switch {
	case err != nil:
		return "", fmt.Errorf("--smtp-password-file: %w", err)
	case password == "" || len(text) > 4096 || strings.ContainsAny(password, "\r\n\x00"):
		return "", fmt.Errorf("--smtp-password-file: %s does not hold one line with a password", m.PasswordFile)
	}
	return password, nil
}

// hostOf is the host of an address that was checked.
func hostOf(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	return u.Hostname()
}
