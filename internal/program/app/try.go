package app

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/text"
)

// Try runs a program beside all that serve until it answers, ends it, and returns the status of its answer: one below 500, or 503, with
// which a site says itself that it is closed. Nobody visits it, and no log has what it prints; where it doesn't answer so in the time
// that it has to become healthy, the fault says why, with the last error that it printed.
func (a *Apps) Try(ctx context.Context, want Wanted) (status int, err error) {
	if a.c.Engine == nil {
		return 0, a.noEngine()
	}
	if err := a.room(ctx, nil, want.Owner, true); err != nil {
		return 0, err
	}
	defer a.up.Add(-1)
	var last atomic.Value
	want.Spec.ID = db.NewID("try")
	want.Spec.Output = func(stream, line string) {
		if stream != "stderr" && !strings.Contains(line, "rror") {
			return
		}
		if want.Secrets != nil {
			line = want.Secrets.Redact(line)
		}
		last.Store(line)
	}
	said := func(err error) error {
		f := fault.As(err)
		line, _ := last.Load().(string)
		if f == nil || line == "" {
			return err
		}
		own := *f
		own.Details = "it printed: " + text.Clip(line, 300)
		return &own
	}
	starting, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	running, err := a.c.Engine.Start(starting, want.Spec)
	if err != nil {
		return 0, err
	}
	defer running.Stop(0)
	p := &program{apps: a, want: want}
	in := &instance{
		running:   running,
		site:      want.Site,
		begun:     time.Now(),
		used:      time.Now(),
		transport: p.transportTo(running, want),
		fatal:     new(atomic.Value),
	}
	defer in.transport.CloseIdleConnections()
	path := want.HealthPath
	if path == "" {
		path = "/"
	}
	health, cancel := context.WithTimeout(ctx, want.Health)
	defer cancel()
	broken := make(<-chan time.Time)
	for {
		if got, err := in.transport.Ask(health, want.Host, path); err == nil {
			if got < 500 {
				return got, nil
			}
			if status == 0 {
				broken = time.After(brokenTime)
			}
			status = got
		}
		select {
		case <-running.Done():
			return 0, said(ended(running.Exit()))
		case <-broken:
			return tried(status, path, said)
		case <-health.Done():
			if ctx.Err() != nil {
				return 0, context.Cause(ctx)
			}
			if status != 0 {
				return tried(status, path, said)
			}
			f := &fault.Error{
				Kind:    fault.Invalid,
				Code:    "application_unhealthy",
				Message: fmt.Sprintf("It does not respond to %s after %s", path, want.Health.Round(time.Second)),
			}
			return 0, said(f)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// brokenTime is how long a program that answers, but with an error, has to get over it.
const brokenTime = 5 * time.Second

// tried is the end of a trial whose program answers with an error.
func tried(status int, path string, said func(error) error) (int, error) {
	if status == http.StatusServiceUnavailable {
		return status, nil
	}
	return 0, said(&fault.Error{
		Kind:    fault.Invalid,
		Code:    "application_unhealthy",
		Message: fmt.Sprintf("It answers %s with %d", path, status),
	})
}
