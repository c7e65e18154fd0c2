package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"slipway/e2e/world"
)

// webhookRate measures first attempts at a steady 1,000 deliveries per second.
func (b *bench) webhookRate(w *world.World) error {
	const hooks, each, lasts = 20, 20 * time.Millisecond, 20 * time.Second
	for i := range hooks {
		if err := b.call(w, "POST", "/webhooks", map[string]any{
			"url":    fmt.Sprintf("%s/rate/%d", w.Hooks.URL, i),
			"events": []string{"site.updated"},
			"secret": "sixteen characters",
		}, nil); err != nil {
			return err
		}
	}
	if err := b.repository(w, "quiet", map[string]string{"index.html": "quiet"}); err != nil {
		return err
	}
	site, _, err := b.create(w, b.key, "steady", "quiet")
	if err == nil {
		err = b.ends(w, b.key, "/sites/"+site, "active", "error")
	}
	if err != nil {
		return err
	}
	changes := int(lasts / each)
	if err := b.renameSteadily(w, site, changes, each); err != nil {
		return err
	}
	took, err := b.firstAttempts(w, changes*hooks)
	if err != nil {
		return err
	}
	b.add(row{
		what:  fmt.Sprintf("webhook, first attempt at %.0f deliveries/s%s", float64(hooks)/each.Seconds(), b.on()),
		value: fmt.Sprintf("p50 %s, p99 %s", ms(quantile(took, .5)), ms(quantile(took, .99))), goal: "p50 < 10 ms, p99 < 300 ms",
	})
	return nil
}

// renameSteadily renames a site at a fixed interval, regardless of the duration of answers.
func (b *bench) renameSteadily(w *world.World, site string, n int, each time.Duration) error {
	tick := time.NewTicker(each)
	defer tick.Stop()
	errs := make(chan error, n)
	for i := range n {
		select {
		case <-tick.C:
		case <-b.ctx.Done():
			return b.ctx.Err()
		}
		go func() {
			errs <- b.call(w, "PATCH", "/sites/"+site, map[string]string{"name": fmt.Sprintf("steady %d", i)}, nil)
		}()
	}
	var all error
	for range n {
		all = errors.Join(all, <-errs)
	}
	return all
}

// firstAttempts waits for n first attempts, and returns the time from each event to its attempt.
func (b *bench) firstAttempts(w *world.World, n int) ([]time.Duration, error) {
	var took []time.Duration
	ctx, cancel := context.WithTimeout(b.ctx, 2*time.Minute)
	defer cancel()
	seen := 0
	err := world.Until(ctx, 200*time.Millisecond, func() (bool, error) {
		for _, d := range w.Hooks.From(seen) {
			seen++
			if !strings.HasPrefix(d.Path, "/rate/") || d.Header.Get("X-Service-Attempt") != "1" ||
				!strings.Contains(string(d.Body), `"name":"steady `) {
				continue
			}
			var of struct{ Timestamp time.Time }
			if err := json.Unmarshal(d.Body, &of); err != nil {
				return false, err
			}
			took = append(took, max(0, d.At.Sub(of.Timestamp)))
		}
		return len(took) >= n, fmt.Errorf("%d of %d came", len(took), n)
	})
	return took, err
}
