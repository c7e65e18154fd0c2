package webhook

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"

	"slipway/internal/platform/egress"
)

// The words for an attempt that got no answer, or one that is none. They and their
// sentences never hold an address or a text of the resolver's, which would make the log
// a port scanner.
const (
	errBlocked     = "blocked_address"
	errTimeout     = "timeout"
	errDNS         = "dns_error"
	errConnect     = "connect_error"
	errAuthority   = "certificate_unknown_authority"
	errWrongName   = "certificate_wrong_name"
	errExpired     = "certificate_expired"
	errNoTLS       = "no_tls"
	errTLS         = "tls_error"
	errClosedEarly = "closed_early"
	errConnection  = "connection_error"
	errRedirect    = "redirect_not_followed"
	errUnreadable  = "secret_unreadable"
)

// Reasons lists the words of Attempt.Error with what a receiver's developer can do.
var Reasons = map[string]string{
	errBlocked:     "The host resolves to an address that is not public, so no connection was made",
	errTimeout:     "The endpoint did not answer within the time limit: answer first, then do the work",
	errDNS:         "The host name does not resolve: check its DNS records",
	errConnect:     "Nothing accepts connections at that host and port",
	errAuthority:   "The certificate comes from an unknown authority: install the full chain, or a certificate of a public authority",
	errWrongName:   "The certificate is for another host name",
	errExpired:     "The certificate has expired or is not valid yet",
	errNoTLS:       "The port does not speak TLS: webhooks are sent over HTTPS only",
	errTLS:         "The TLS handshake did not succeed: TLS 1.2 or newer is needed",
	errClosedEarly: "The endpoint closed the connection before it had answered",
	errConnection:  "The endpoint's answer is not valid HTTP, or its headers are over 64 KiB",
	errRedirect:    "The endpoint redirects, and redirects are not followed: change the webhook's URL",
	errUnreadable:  "The webhook's secret can't be read: rotate it",
}

var errSecret = errors.New("secret does not open")

// reason returns the word for an error of an exchange.
func reason(ctx context.Context, err error) string {
	var dns *net.DNSError
	var op *net.OpError
	var verify *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	var alert tls.AlertError
	var authority x509.UnknownAuthorityError
	var host x509.HostnameError
	var invalid x509.CertificateInvalidError
	var timeout net.Error
	switch {
	case errors.Is(err, errSecret):
		return errUnreadable
	case errors.Is(err, egress.ErrBlocked):
		return errBlocked
	case ctx.Err() != nil, errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return errTimeout
	case errors.As(err, &dns):
		return errDNS
	case errors.As(err, &host):
		return errWrongName
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return errExpired
	case errors.As(err, &authority):
		return errAuthority
	case errors.As(err, &record), errors.Is(err, http.ErrSchemeMismatch):
		return errNoTLS
	case errors.As(err, &op) && op.Op == "dial":
		return errConnect
	case errors.As(err, &verify), errors.As(err, &alert), strings.Contains(err.Error(), "tls: "):
		return errTLS
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE),
		strings.Contains(err.Error(), "server closed idle connection"):
		return errClosedEarly
	}
	return errConnection
}
