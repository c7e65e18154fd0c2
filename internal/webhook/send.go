package webhook

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"slipway/internal/db"
	"slipway/internal/egress"
)

// send makes one request. It never returns an error: what went wrong is the outcome.
func (w *Webhooks) send(ctx context.Context, f flight) outcome {
	o := outcome{flight: f, started: db.Now()}
	began := time.Now()
	parent := ctx
	ctx, cancel := context.WithTimeout(ctx, w.c.Timeout)
	defer cancel()
	err := w.exchange(ctx, f, &o)
	o.took = time.Since(began)
	switch {
	case err == nil:
		if o.status >= 300 && o.status <= 399 {
			o.err = "redirect_not_followed"
		}
	case parent.Err() != nil:
		o.abandoned = true
	default:
		o.err = class(ctx, err)
		if o.err == "secret_unreadable" {
			w.c.Log.ErrorContext(ctx, "webhook secret does not open", "webhook", f.hook, "err", err)
		}
	}
	return o
}

// exchange sends and reads within one deadline.
func (w *Webhooks) exchange(ctx context.Context, f flight, o *outcome) error {
	secret, err := w.c.Seal.Open(f.secret, sealPurpose+string(f.hook))
	if err != nil {
		return errSecret
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, f.url, bytes.NewReader(f.body))
	if err != nil {
		return err
	}
	now := time.Now()
	at := strconv.FormatInt(now.Unix(), 10)
	h := req.Header
	h.Set("Content-Type", "application/json")
	h.Set("User-Agent", "Slipway-Webhooks/1")
	h.Set("X-Service-Signature", Signature(string(secret), f.body))
	h.Set("X-Service-Event", f.name)
	h.Set("X-Service-Delivery", string(f.id))
	h.Set("X-Service-Timestamp", at)
	h.Set("X-Service-Attempt", strconv.FormatInt(f.claims, 10))
	h.Set("Webhook-Id", f.event)
	h.Set("Webhook-Timestamp", at)
	h.Set("Webhook-Signature", StandardSignature(string(secret), f.event, now, f.body))
	resp, err := w.c.Out.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	o.status = resp.StatusCode
	o.wait = retryAfter(resp.Header.Get("Retry-After"), now)
	// The head of the answer decides; its body is read for the log, as far as it comes.
	head := make([]byte, storedAnswer)
	n, err := io.ReadFull(resp.Body, head)
	o.answer = text(head[:n])
	if err == nil {
		io.CopyN(io.Discard, resp.Body, maxAnswer-storedAnswer) // so that the connection can be used again
	}
	return nil
}

var errSecret = errors.New("secret does not open")

// class is the word for an error that the log shows: never an address or a text of the
// resolver's, which would make the log a port scanner.
func class(ctx context.Context, err error) string {
	var dns *net.DNSError
	var op *net.OpError
	var verify *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	var alert tls.AlertError
	var authority x509.UnknownAuthorityError
	var host x509.HostnameError
	var timeout net.Error
	switch {
	case errors.Is(err, errSecret):
		return "secret_unreadable"
	case errors.Is(err, egress.ErrBlocked):
		return "blocked_address"
	case ctx.Err() != nil, errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return "timeout"
	case errors.As(err, &dns):
		return "dns_error"
	case errors.As(err, &verify), errors.As(err, &record), errors.As(err, &alert), errors.As(err, &authority), errors.As(err, &host), strings.Contains(err.Error(), "tls: "):
		return "tls_error"
	case errors.As(err, &op) && op.Op == "dial":
		return "connect_error"
	}
	return "connection_error"
}

// retryAfter reads seconds or a date (RFC 9110 section 10.2.3); 0 when there is neither.
func retryAfter(v string, now time.Time) time.Duration {
	if n, err := strconv.ParseUint(v, 10, 31); err == nil {
		return time.Duration(n) * time.Second
	}
	if t, err := http.ParseTime(v); err == nil {
		return max(t.Sub(now), 0)
	}
	return 0
}

// text makes what both databases store as TEXT: UTF-8 without NUL.
func text(b []byte) string {
	return strings.ReplaceAll(strings.ToValidUTF8(string(b), "\uFFFD"), "\x00", "\uFFFD")
}
