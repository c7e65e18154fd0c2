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

// drain is how long running requests and jobs may continue after a signal.
const drain = 20 * time.Second

// Serve runs the service until ctx ends, then drains. Errors in settings, addresses or the database are returned before
// anything is changed. Programs run on this machine, or elsewhere if that isn't nil.
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
	changed, err := s.Protect()
	for _, line := range changed {
		s.Log.WarnContext(ctx, "file mode changed", "why", line)
	}
	if err != nil {
		s.Log.WarnContext(ctx, "file mode not changed", "err", err)
	}
	panics.Report(func(err error) { s.Log.Error("panic caught: one piece of work ended", "err", err) })
	// A start may migrate the database; one that takes longer than this hangs.
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
	// Services outlive the listeners, since running requests may need them.
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
	// If systemd holds the sockets, new connections wait for the next process. Otherwise /readyz and the control plane
	// return 503 from here on, and the listeners stay open a while for clients of load balancers that haven't noticed.
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
