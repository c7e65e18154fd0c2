package server

import (
	"time"

	"slipway/internal/platform/egress"
	"slipway/internal/tenant/connection"
	"slipway/internal/tenant/notify"
)

// wireForges makes what speaks to forges and to people elsewhere.
func (h *node) wireForges(out *egress.Egress) {
	h.connections = connection.New(connection.Config{
		DB:     h.db,
		Seal:   h.seal,
		Out:    out.Client(30 * time.Second),
		Hosts:  h.s.GitAt,
		Egress: out,
		Base:   h.s.BaseURL,
		Hooks:  h.s.APIURL,
		Log:    h.s.Log,
	})
	h.notify = notify.New(notify.Config{
		DB:     h.db,
		Seal:   h.seal,
		Out:    out.Client(20 * time.Second),
		Owners: h.accounts,
		Mail:   h.s.Mailer,
		Base:   h.s.BaseURL,
		Log:    h.s.Log,
	})
}
