package domains

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"slipway/e2e/world"
)

// shake performs a TLS handshake like a browser that trusts only the authority.
func (h *harness) shake(name string, protocols ...string) (*x509.Certificate, error) {
	roots, err := h.roots()
	if err != nil {
		return nil, err
	}
	c, err := tls.DialWithDialer(&net.Dialer{
		Timeout: time.Minute,
	}, "tcp", h.HTTPS, &tls.Config{RootCAs: roots, ServerName: name, NextProtos: protocols})
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return c.ConnectionState().PeerCertificates[0], nil
}

func (h *harness) roots() (*x509.CertPool, error) {
	if h.ca != nil {
		return h.ca.Roots, nil
	}
	return h.Trust()
}

// strange reports whether a handshake fails with the alert unrecognized_name.
func (h *harness) strange(name string, protocols ...string) bool {
	_, err := h.shake(name, protocols...)
	return err != nil && strings.Contains(err.Error(), "unrecognized name")
}

// fetch requests a URL over TLS and doesn't follow redirects.
func (h *harness) fetch(host, path string) (status int, body, location string, err error) {
	roots, err := h.roots()
	if err != nil {
		return 0, "", "", err
	}
	client := &http.Client{
		Timeout:       time.Minute,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			TLSClientConfig: &tls.Config{RootCAs: roots}, DisableKeepAlives: true,
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, "tcp", h.HTTPS)
			},
		},
	}
	r, err := client.Get("https://" + host + path)
	if err != nil {
		return 0, "", "", err
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	return r.StatusCode, string(b), r.Header.Get("Location"), err
}

// shows waits until a host returns a line, or fails the test.
func (h *harness) shows(host, line string) {
	h.t.Helper()
	var last error
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	err := world.Until(ctx, 20*time.Millisecond, func() (bool, error) {
		status, body, _, err := h.fetch(host, "/")
		if last = err; err == nil && (status != 200 || body != line) {
			last = fmt.Errorf("%d %.100q", status, body)
		}
		return last == nil, nil
	})
	if err != nil {
		h.t.Fatalf("https://%s: %v", host, last)
	}
}
