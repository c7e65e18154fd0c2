package delivery

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

// The error codes of attempts without a valid response. They and their sentences never contain addresses or resolver
// messages, which would turn the log into a port scanner.
const (
	ReasonBlocked     = "blocked_address"
	ReasonTimeout     = "timeout"
	ReasonDNS         = "dns_error"
	ReasonConnect     = "connect_error"
	ReasonAuthority   = "certificate_unknown_authority"
	ReasonWrongName   = "certificate_wrong_name"
	ReasonExpired     = "certificate_expired"
	ReasonNoTLS       = "no_tls"
	ReasonTLS         = "tls_error"
	ReasonClosedEarly = "closed_early"
	ReasonConnection  = "connection_error"
	ReasonRedirect    = "redirect_not_followed"
	ReasonUnreadable  = "secret_unreadable"
	ReasonInternal    = "internal_error"
)

// Reasons maps the values of Attempt.Error to advice for the receiver's developer.
var Reasons = map[string]string{
	ReasonBlocked:     "The host resolves to an address that is not public, so no connection was made",
	ReasonTimeout:     "The endpoint did not answer within the time limit: answer first, then do the work",
	ReasonDNS:         "The host name does not resolve: check its DNS records",
	ReasonConnect:     "Nothing accepts connections at that host and port",
	ReasonAuthority:   "The certificate comes from an unknown authority: install the full chain, or a certificate of a public authority",
	ReasonWrongName:   "The certificate is for another host name",
	ReasonExpired:     "The certificate has expired or is not valid yet",
	ReasonNoTLS:       "The port does not speak TLS: webhooks are sent over HTTPS only",
	ReasonTLS:         "The TLS handshake did not succeed: TLS 1.2 or newer is needed",
	ReasonClosedEarly: "The endpoint closed the connection before it had answered",
	ReasonConnection:  "The endpoint's answer is not valid HTTP, or its headers are over 64 KiB",
	ReasonRedirect:    "The endpoint redirects, and redirects are not followed: change the webhook's URL",
	ReasonUnreadable:  "The webhook's secret can't be read: rotate it",
	ReasonInternal:    "Slipway could not make the request: the operator finds why in the server's log",
}

// reason returns the code of an error.
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
	case errors.Is(err, egress.ErrBlocked):
		return ReasonBlocked
	case ctx.Err() != nil, errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return ReasonTimeout
	case errors.As(err, &dns):
		return ReasonDNS
	case errors.As(err, &host):
		return ReasonWrongName
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return ReasonExpired
	case errors.As(err, &authority):
		return ReasonAuthority
	case errors.As(err, &record), errors.Is(err, http.ErrSchemeMismatch):
		return ReasonNoTLS
	case errors.As(err, &op) && op.Op == "dial":
		return ReasonConnect
	case errors.As(err, &verify), errors.As(err, &alert), strings.Contains(err.Error(), "tls: "):
		return ReasonTLS
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE),
		strings.Contains(err.Error(), "server closed idle connection"):
		return ReasonClosedEarly
	}
	return ReasonConnection
}
