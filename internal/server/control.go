package server

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"slipway/internal/api"
)

// control returns the handler of --listen: the interface, and what only the operator's own
// tools should reach.
func (h *node) control() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", h.metricsHandler())
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { plain(w, http.StatusOK, "ok") })
	mux.HandleFunc("GET /readyz", h.readyz)
	metrics, public := h.door.Named(mux), h.door.Named(h.public())
	return h.door.Bounded(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path { // not by a mux: it would redirect paths that are not clean
		case "/healthz", "/readyz": // asked by machines that know no name of ours
			mux.ServeHTTP(w, r)
		case "/metrics":
			metrics.ServeHTTP(w, r)
		default:
			public.ServeHTTP(w, r)
		}
	}))
}

// public is the part of the control plane that is meant for users, and that the edge
// serves too where --base-url is https: programs at /api, /hooks and /docs, people
// everywhere else.
func (h *node) public() http.Handler {
	if h.api == nil {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			plain(w, http.StatusNotFound, "This node does not serve the interface.")
		})
	}
	programs, people := h.api.Handler(), h.pages.Handler()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if api.Serves(r.URL.Path) {
			programs.ServeHTTP(w, r)
		} else {
			people.ServeHTTP(w, r)
		}
	})
}

func (h *node) readyz(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), 2*time.Second)
	defer cancel()
	switch {
	case !h.serving.Load():
		plain(w, http.StatusServiceUnavailable, "starting or draining")
	case h.db.Ping(ctx) != nil:
		plain(w, http.StatusServiceUnavailable, "the database does not answer")
	case h.edge != nil && !h.edge.Ready():
		plain(w, http.StatusServiceUnavailable, "the edge has not read its table yet")
	default:
		plain(w, http.StatusOK, "ready")
	}
}

func plain(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	if status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	w.WriteHeader(status)
	fmt.Fprintln(w, text)
}

// ready reports whether the interface may answer.
func (h *node) ready() bool { return h.serving.Load() }
