package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"syscall"
	"time"
)

// report tells systemd that the service is ready as soon as /readyz says so, and from then on
// that it is alive, until ctx ends. A service that can't be alive is restarted: so only what a
// restart would heal counts, which is a listener that nobody accepts from, or a database in the
// data directory that does not answer. A PostgreSQL that is away is none of it, and a visitor
// can't bring it about: the listener of the control plane is asked, not those of the sites.
func (h *node) report(ctx context.Context, control net.Addr) {
	if !h.tell.Listens() {
		return
	}
	for asked := time.NewTicker(100 * time.Millisecond); ; {
		if err := answers(ctx, control, "/readyz", http.StatusOK); err == nil {
			asked.Stop()
			break
		}
		select {
		case <-asked.C:
		case <-ctx.Done():
			asked.Stop()
			return
		}
	}
	h.say(ctx, h.tell.Ready())
	if h.tell.Watchdog() == 0 {
		return
	}
	look := time.NewTicker(h.tell.Watchdog() / 4)
	defer look.Stop()
	for {
		if err := h.alive(ctx, control); err != nil {
			h.s.Log.ErrorContext(ctx, "the service does not answer itself; systemd restarts it if that goes on", "err", err)
		} else {
			h.say(ctx, h.tell.Alive())
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return
		}
	}
}

// alive returns an error if the service does not work in a way that a restart heals.
func (h *node) alive(ctx context.Context, control net.Addr) error {
	ctx, cancel := context.WithTimeout(ctx, h.tell.Watchdog()/4)
	defer cancel()
	if h.db.Single() {
		if err := h.db.Ping(ctx); err != nil {
			return fmt.Errorf("database: %w", err)
		}
	}
	return answers(ctx, control, "/healthz", 0)
}

// answers asks the service itself for path. A connection that is closed at once was accepted by
// somebody who has too many: want 0 takes that, and any status, for an answer.
func answers(ctx context.Context, at net.Addr, path string, want int) error {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	host, port, err := net.SplitHostPort(at.String())
	if err != nil {
		return err
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+net.JoinHostPort(host, port)+path, http.NoBody)
	if err != nil {
		return err
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, Proxy: nil}}
	res, err := client.Do(r)
	if want == 0 && (errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET)) {
		return nil
	}
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if want != 0 && res.StatusCode != want {
		return fmt.Errorf("%s: %s", path, res.Status)
	}
	return nil
}

// say logs that systemd could not be told.
func (h *node) say(ctx context.Context, err error) {
	if err != nil {
		h.s.Log.WarnContext(ctx, "systemd is not told", "err", err)
	}
}
