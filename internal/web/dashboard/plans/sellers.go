package plans

import (
	"context"
	"net/http"
	"strconv"
	"strings"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/audit"
	"slipway/internal/tenant/billing"
	"slipway/internal/tenant/billing/seller"
	"slipway/internal/web/dashboard/shell"
)

// sellersPage lists the resellers.
func (d *Pages) sellersPage(ctx context.Context, _ *shell.Request) (shell.Answer, error) {
	list, err := seller.List(ctx, d.DB)
	return shell.Page("operator_sellers", "Sellers", struct{ Sellers []seller.Seller }{list}), err
}

// setHost sets or removes a seller's host.
func (d *Pages) setHost(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	who, host := q.Value("seller"), strings.TrimSpace(q.Value("host"))
	err := d.ActOn(ctx, q, func(tx *db.Tx) (audit.Event, error) {
		return audit.Event{Action: "billing.seller_updated", Subject: who, Detail: who + ": " + host}, d.hosts.SetTx(ctx, tx, who, host)
	})
	if err != nil {
		return shell.Answer{}, shell.AtCode(err, map[string]string{"invalid_host": "host", "host_taken": "host"})
	}
	return shell.GoTo("/operator/sellers", "Host saved"), nil
}

// assign assigns an account to a seller.
func (d *Pages) assign(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	return d.actFor(ctx, q, "Seller changed", func(tx *db.Tx, c billing.Customer) (audit.Event, error) {
		to := q.Value("seller")
		return audit.Event{Action: "billing.seller_changed", Subject: to, Detail: c.Name + ": " + to}, seller.AssignTx(ctx, tx, c.Owner, to)
	})
}

// logo serves a seller's logo. Its name is its digest, so browsers can cache it.
func (d *Pages) logo(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	digest, ok := strings.CutSuffix(q.PathValue("logo"), ".png")
	if !ok || len(digest) != 64 {
		return shell.Answer{}, fault.Missing("page")
	}
	picture, err := seller.Logo(ctx, d.DB, digest)
	if err != nil {
		return shell.Answer{}, err
	}
	return shell.Raw(func(w http.ResponseWriter) {
		h := w.Header()
		h.Set("Content-Type", "image/png")
		h.Set("Content-Length", strconv.Itoa(len(picture)))
		h.Set("Content-Security-Policy", "default-src 'none'; sandbox")
		h.Set("Cache-Control", "public, max-age=31536000, immutable")
		_, _ = w.Write(picture)
	}), nil
}
