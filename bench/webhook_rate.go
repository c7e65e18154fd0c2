package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"slipway/e2e/world"
)

// webhookRate measures first attempts at a steady 1,000 deliveries per second.
func (b *bench) webhookRate(w *world.World) error {
	const hooks, each, lasts = 20, 20 * time.Millisecond, 20 * time.Second
	if err := b.subscribe(w, b.key, w.Hooks.URL+"/rate", hooks); err != nil {
		return err
	}
	site, err := b.quietSite(w, b.key, "steady")
	if err != nil {
		return err
	}
	changes := int(lasts / each)
	if err := b.renameSteadily(w, b.key, site, changes, each); err != nil {
		return err
	}
	took, err := b.firstAttempts(w, "/rate/", changes*hooks)
	if err != nil {
		return err
	}
	b.add(row{
		what:  fmt.Sprintf("webhook, first attempt at %.0f deliveries/s%s", float64(hooks)/each.Seconds(), b.on()),
		value: fmt.Sprintf("p50 %s, p99 %s", ms(quantile(took, .5)), ms(quantile(took, .99))), goal: "p50 < 10 ms, p99 < 300 ms",
	})
	return nil
}

// webhookHanging measures first attempts to healthy endpoints while 100 others accept requests but don't answer for 15
// s. Half of the healthy ones belong to the same user, half to another, and every event goes to all endpoints of its
// user.
func (b *bench) webhookHanging(w *world.World) error {
	const hanging, healthy, each, lasts = 100, 10, 100 * time.Millisecond, 40 * time.Second
	other, err := w.User("other@example.test")
	if err != nil {
		return err
	}
	url, end, err := w.Hooks.Hang(15 * time.Second)
	if err != nil {
		return err
	}
	defer end()
	if err := errors.Join(
		b.subscribe(w, b.key, url+"/hang", hanging),
		b.subscribe(w, b.key, w.Hooks.URL+"/same", healthy),
		b.subscribe(w, other, w.Hooks.URL+"/other", healthy),
	); err != nil {
		return err
	}
	mine, err := b.quietSite(w, b.key, "mine")
	if err != nil {
		return err
	}
	theirs, err := b.quietSite(w, other, "theirs")
	if err != nil {
		return err
	}
	changes := int(lasts / each)
	ended := make(chan error, 1)
	go func() { ended <- b.renameSteadily(w, other, theirs, changes, each) }()
	if err := errors.Join(b.renameSteadily(w, b.key, mine, changes, each), <-ended); err != nil {
		return err
	}
	for _, x := range []struct{ path, whose string }{{"/same/", "the same user's"}, {"/other/", "another user's"}} {
		took, err := b.firstAttempts(w, x.path, changes*healthy)
		if err != nil {
			return err
		}
		b.add(row{
			what: fmt.Sprintf("webhook, first attempt to %s %d healthy endpoints beside %d that hang for 15 s%s",
				x.whose, healthy, hanging, b.on()),
			value: fmt.Sprintf("p50 %s, p99 %s", ms(quantile(took, .5)), ms(quantile(took, .99))),
			goal:  "p99 < 2 s",
		})
	}
	return nil
}

// webhookLive measures the deliveries per second, and their CPU time, while events are created as fast as the API
// accepts them. Unlike deliveries that are pending at a start, these are written and sent in small batches.
func (b *bench) webhookLive(w *world.World) error {
	const hooks, clients, lasts = 10, 8, 15 * time.Second
	if err := b.subscribe(w, b.key, w.Hooks.URL+"/live", hooks); err != nil {
		return err
	}
	var sites [clients]string
	for i := range sites {
		var err error
		if sites[i], err = b.quietSite(w, b.key, fmt.Sprintf("live %d", i)); err != nil {
			return err
		}
	}
	var all sync.WaitGroup
	var events atomic.Int64
	failed := make(chan error, clients)
	before, err := cpuTime(w.PID())
	if err != nil {
		return err
	}
	begun := time.Now()
	for _, site := range sites {
		all.Go(func() {
			for i := 0; time.Since(begun) < lasts && b.ctx.Err() == nil; i++ {
				if err := w.Call(b.ctx, b.key, "PATCH", "/sites/"+site, map[string]string{
					"name": fmt.Sprintf("live %d", i%2),
				}, nil); err != nil {
					failed <- err
					return
				}
				events.Add(1)
			}
		})
	}
	all.Wait()
	close(failed)
	for err := range failed {
		return err
	}
	want := int(events.Load()) * hooks
	n, seen, last := 0, 0, begun
	ctx, done := context.WithTimeout(b.ctx, time.Minute)
	defer done()
	err = world.Until(ctx, 100*time.Millisecond, func() (bool, error) {
		for _, d := range w.Hooks.From(seen) {
			seen++
			if strings.HasPrefix(d.Path, "/live/") {
				n++
				last = d.At
			}
		}
		return n >= want, fmt.Errorf("%d of %d came", n, want)
	})
	if err != nil {
		return err
	}
	after, err := cpuTime(w.PID())
	if err != nil {
		return err
	}
	took, each := last.Sub(begun), (after-before)/time.Duration(want)
	b.add(row{
		what: fmt.Sprintf("webhook deliveries, live from %.0f changes/s to %d endpoints%s",
			float64(events.Load())/took.Seconds(), hooks, b.on()),
		value: fmt.Sprintf("%.0f/s, %d µs of the server's processor each", float64(want)/took.Seconds(), each.Microseconds()),
		goal:  "4,000/s",
	})
	return nil
}

// subscribe creates webhooks for changes of sites.
func (b *bench) subscribe(w *world.World, key, url string, n int) error {
	for i := range n {
		err := w.Call(b.ctx, key, "POST", "/webhooks", map[string]any{
			"url":    fmt.Sprintf("%s/%d", url, i),
			"events": []string{"site.updated"},
			"secret": "sixteen characters",
		}, nil)
		if err != nil {
			return err
		}
	}
	return nil
}

// quietSite creates a site with one page, and waits until it is live.
func (b *bench) quietSite(w *world.World, key, name string) (string, error) {
	if err := b.repository(w, "quiet", map[string]string{"index.html": "quiet"}); err != nil {
		return "", err
	}
	var made struct{ Data struct{ ID string } }
	if err := w.Call(b.ctx, key, "POST", "/sites", map[string]string{
		"name":       name,
		"type":       "static",
		"repository": "git.test/bench/quiet",
		"branch":     "main",
	}, &made); err != nil {
		return "", err
	}
	ctx, done := context.WithTimeout(b.ctx, time.Minute)
	defer done()
	return made.Data.ID, world.Until(ctx, 20*time.Millisecond, func() (bool, error) {
		var site struct{ Status string }
		err := w.Call(ctx, key, "GET", "/sites/"+made.Data.ID, nil, &site)
		return err == nil && site.Status == "active", err
	})
}

// renameSteadily renames a site at a fixed interval, regardless of the duration of answers.
func (b *bench) renameSteadily(w *world.World, key, site string, n int, each time.Duration) error {
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
			errs <- w.Call(b.ctx, key, "PATCH", "/sites/"+site, map[string]string{"name": fmt.Sprintf("steady %d", i)}, nil)
		}()
	}
	var all error
	for range n {
		all = errors.Join(all, <-errs)
	}
	return all
}

// firstAttempts waits for n first attempts below a path, and returns the time from each event to its attempt.
func (b *bench) firstAttempts(w *world.World, path string, n int) ([]time.Duration, error) {
	var took []time.Duration
	ctx, cancel := context.WithTimeout(b.ctx, 2*time.Minute)
	defer cancel()
	seen := 0
	err := world.Until(ctx, 200*time.Millisecond, func() (bool, error) {
		for _, d := range w.Hooks.From(seen) {
			seen++
			if !strings.HasPrefix(d.Path, path) || d.Header.Get("X-Service-Attempt") != "1" ||
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
