package server

import (
	"context"
	"net/http"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"slipway/internal/web/api"
	"slipway/internal/web/control"
	"slipway/internal/web/mcp"
	"slipway/internal/web/mirror"
	"slipway/internal/web/oauth"
)

// control returns the handler of --listen.
func (h *node) control() http.Handler {
	needs := map[string]control.Need{"the database does not answer": func(ctx context.Context) bool { return h.db.Ping(ctx) == nil }}
	if h.edge != nil {
		needs["the edge has not read its table yet"] = func(context.Context) bool { return h.edge.Ready() }
	}
	return control.Operator{
		Door:    h.door,
		Public:  h.public(),
		Metrics: promhttp.HandlerFor(h.metrics, promhttp.HandlerOpts{}),
		Serving: &h.serving,
		Needs:   needs,
	}.Handler()
}

// public is the part of the control plane that is meant for users, and that the edge
// serves too where --base-url is https: programs at /api, /hooks, /docs, /mcp, /terraform and the endpoints of OAuth, people
// everywhere else.
func (h *node) public() http.Handler {
	if h.api == nil {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			control.Plain(w, http.StatusNotFound, "This node does not serve the interface.")
		})
	}
	programs, people, provider := h.api.Handler(), h.pages.Handler(), mirror.Handler(h.s.DataDir, h.s.Proxies)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case api.Serves(r.URL.Path):
			programs.ServeHTTP(w, r)
		case oauth.Serves(r.URL.Path):
			h.tokens.ServeHTTP(w, r)
		case r.URL.Path == mcp.Path:
			h.agents.ServeHTTP(w, r)
		case mirror.Serves(r.URL.Path):
			provider.ServeHTTP(w, r)
		default:
			people.ServeHTTP(w, r)
		}
	})
}
