package control

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"slipway/internal/edge/connlimit"
	"slipway/internal/edge/graceful"
)

// Server returns the server for --listen, with limits against slow and endless requests.
func Server(h http.Handler, log *slog.Logger) *graceful.Server {
	return graceful.New(&http.Server{
		Handler:           h,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ConnState:         connlimit.Idle,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	})
}

// Operator serves --listen: the interface, and the operator's /metrics, /healthz and /readyz.
type Operator struct {
	Door    *Door
	Public  http.Handler // the interface
	Metrics http.Handler
	Serving *atomic.Bool    // false while starting or draining
	Needs   map[string]Need // conditions of /readyz by their message when not ready
}

// Need reports whether a requirement of requests is ready.
type Need func(ctx context.Context) bool

// Seldom calls n at most once per interval and returns the last result in between.
func Seldom(every time.Duration, n Need) Need {
	var mu sync.Mutex // guards the rest
	var asked time.Time
	var is bool
	return func(ctx context.Context) bool {
		mu.Lock()
		defer mu.Unlock()
		if time.Since(asked) >= every {
			is = n(ctx)
			asked = time.Now()
		}
		return is
	}
}

// Handler returns the handler for --listen.
func (o Operator) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", o.Metrics)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { Plain(w, http.StatusOK, "ok") })
	mux.HandleFunc("GET /readyz", o.ready)
	metrics, public := o.Door.Named(mux), o.Door.Named(o.Public)
	return o.Door.Bounded(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path { // a mux would redirect paths that aren't clean
		case "/healthz", "/readyz": // probes use any host name
			mux.ServeHTTP(w, r)
		case "/metrics":
			metrics.ServeHTTP(w, r)
		default:
			public.ServeHTTP(w, r)
		}
	}))
}

func (o Operator) ready(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), 2*time.Second)
	defer cancel()
	if !o.Serving.Load() {
		Plain(w, http.StatusServiceUnavailable, "starting or draining")
		return
	}
	for says, is := range o.Needs {
		if !is(ctx) {
			Plain(w, http.StatusServiceUnavailable, says)
			return
		}
	}
	Plain(w, http.StatusOK, "ready")
}

// Plain responds with a line of text that must not be cached.
func Plain(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	if status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	w.WriteHeader(status)
	fmt.Fprintln(w, text)
}
