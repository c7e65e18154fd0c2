// Package server owns the wiring: it builds every package from one Config, starts them in
// order and stops them in the reverse one.
//
// It is the only place where services meet that don't know each other. It holds no rule of
// its own: what a service does is decided in the service.
package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/errgroup"

	"slipway/internal/edge/graceful"
	"slipway/internal/edge/ports"
	"slipway/internal/operator/config"
	"slipway/internal/operator/recovery"
	"slipway/internal/platform/panics"
	"slipway/internal/platform/systemd"
	"slipway/internal/web/control"
)

// drain is how long requests and jobs under way may go on after a signal.
const drain = 20 * time.Second

// Serve runs the service until ctx ends, then drains. What is wrong with the settings,
// the addresses or the database is an error before anything is changed. Programs run on this machine, or elsewhere if
// that is not nil.
func Serve(ctx context.Context, c config.Config, elsewhere Elsewhere) error {
	tell := systemd.NewNotifier()
	passed, err := systemd.Sockets()
	if err != nil {
		return err
	}
	s, err := c.Check()
	if err != nil {
		return err
	}
	if err := recovery.Interrupted(s.Store); err != nil {
		return err
	}
	opening := s.Ports()
	opening.Passed = passed
	listeners, err := ports.Open(opening)
	if err != nil {
		return err
	}
	defer listeners.Close()
	if err := s.Reachable(ctx); err != nil {
		return err
	}
	unlock, err := s.Lock()
	if err != nil {
		return err
	}
	defer unlock()
	panics.Report(func(err error) { s.Log.Error("panic caught: one piece of work ended", "err", err) })
	// A start may have to migrate the database. What hangs for longer than this won't end.
	if err := tell.Working("Preparing the database.", 15*time.Minute); err != nil {
		s.Log.WarnContext(ctx, "systemd is not told", "err", err)
	}
	h, err := wire(ctx, s, listeners, elsewhere)
	if err != nil {
		return err
	}
	defer h.DB.Close()
	if err := h.prepare(ctx); err != nil {
		return err
	}
	s.Log.InfoContext(ctx, "slipway is starting", "version", c.Version, "base_url", s.BaseURL, "sites", "*."+s.SiteDomain, "data", s.DataDir)
	if len(s.ACMECA) > 0 && s.ACMEDNS == "" && !config.Local(s.SiteDomain) {
		s.Log.WarnContext(ctx, "no wildcard certificate", "why", config.NoWildcard)
	}
	h.tell, h.activated = tell, len(passed) > 0
	return h.run(ctx, listeners)
}

// run starts every service in order, serves, and stops in the reverse order.
func (h *node) run(ctx context.Context, l *ports.Ports) error {
	// Services outlive the listeners: a request that is being answered may still need them.
	services, stopServices := context.WithCancel(context.WithoutCancel(ctx))
	defer stopServices()
	g, failed := errgroup.WithContext(services)
	for _, r := range h.services {
		g.Go(func() error {
			if err := panics.Again(failed, r.run); err != nil && failed.Err() == nil {
				return fmt.Errorf("%s: %w", r.name, err)
			}
			return nil
		})
	}
	work, stopWork := context.WithCancel(failed)
	defer stopWork()
	var working sync.WaitGroup
	if h.s.Role("worker") {
		for _, r := range h.workers {
			working.Go(func() {
				panics.Keep(work, r.run, func(err error) {
					h.s.Log.ErrorContext(ctx, "worker ended, and starts again", "worker", r.name, "err", err)
				})
			})
		}
	}

	if err := l.Limit(h.s.Connections(h.metrics)); err != nil {
		return err
	}
	servers := graceful.NewGroup()
	operator := control.Server(h.operator(), h.s.Log)
	servers.Serve(operator, func() error { return operator.Serve(l.Control) })
	if h.relay != nil {
		servers.Serve(h.relay, h.relay.Serve)
	}
	if h.edge != nil {
		h.edge.Serve(failed, servers, l)
	}
	h.serving.Store(true)
	reporting, stopReporting := context.WithCancel(failed)
	defer stopReporting()
	// uncaught: reports to systemd
	go h.tell.Report(reporting, l.Control.Addr(), h.DB.Works, h.s.Log)

	var end error
	select {
	case <-ctx.Done():
		h.s.Log.InfoContext(ctx, "slipway is draining")
	case end = <-servers.Failed():
	case <-failed.Done():
	}

	stopReporting()
	if err := h.tell.Stopping(); err != nil {
		h.s.Log.WarnContext(ctx, "systemd is not told", "err", err)
	}
	// Where systemd holds the sockets, whoever comes from here on waits for the next life of the
	// program, which answers. Elsewhere /readyz says no and the control plane answers 503 from
	// here on. Whoever comes all the same, because a load balancer has not noticed yet, finds
	// the listeners open for a while; then what is under way may finish.
	if !h.activated {
		h.draining.Store(true)
		h.serving.Store(false)
		if end == nil && ctx.Err() != nil {
			h.giveAway(ctx)
			select {
			case <-time.After(h.s.DrainDelay):
			case <-failed.Done():
			}
		}
	}
	bound, done := context.WithTimeout(context.WithoutCancel(ctx), drain)
	defer done()
	servers.Shutdown(bound)
	stopWork()
	working.Wait()
	stopServices()
	if err := g.Wait(); err != nil {
		end = errors.Join(end, err)
	}
	if end == nil {
		if err := h.forget(ctx); err != nil {
			h.s.Log.WarnContext(ctx, "node stays on the list", "err", err)
		}
		h.s.Log.InfoContext(ctx, "slipway has stopped")
	}
	return end
}

// operator returns the handler of --listen.
func (h *node) operator() http.Handler {
	needs := map[string]control.Need{
		"the database does not answer":      func(ctx context.Context) bool { return h.DB.Ping(ctx) == nil },
		"the database does not take writes": control.Seldom(time.Second, func(ctx context.Context) bool { return h.DB.TakesWrites(ctx) == nil }),
	}
	if h.edge != nil {
		needs["the edge has not read its table yet"] = func(context.Context) bool { return h.edge.Ready() }
	}
	return control.Operator{
		Door:    h.door,
		Public:  h.control,
		Metrics: promhttp.HandlerFor(h.metrics, promhttp.HandlerOpts{}),
		Serving: &h.serving,
		Needs:   needs,
	}.Handler()
}
