package certs

import (
	"log/slog"
	"net/http"
	"net/netip"
	"time"

	"slipway/internal/platform/egress"
)

// AuthorityClient returns the HTTP client for ACME authorities. The operator named them, so private addresses are
// allowed.
func AuthorityClient(caFile string, log *slog.Logger) (*http.Client, error) {
	out, err := egress.New(egress.Config{
		Allow:  []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")},
		CAFile: caFile, Log: log,
	})
	if err != nil {
		return nil, err
	}
	return out.Client(time.Minute), nil
}
