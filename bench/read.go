package main

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"slipway/e2e/world"
)

const readers = 4 // twice the cores of a small machine, which the program shares

// read measures reads while the database holds many sites of one user.
func (b *bench) read(w *world.World) error {
	var ids []string
	if err := b.restarted(w, func() (err error) { ids, err = seedSites(b.ctx, w, b.sites, ""); return err }); err != nil {
		return err
	}
	bare, err := b.repeat(w, func(*rand.Rand) world.Request {
		return world.Request{Method: "GET", URL: "http://" + w.Listen + "/healthz"}
	})
	if err != nil {
		return err
	}
	for _, m := range []struct {
		what string
		path func(*rand.Rand) string
	}{
		{"GET /sites/:id", func(r *rand.Rand) string { return "/sites/" + ids[r.IntN(len(ids))] }},
		{"GET /sites", func(*rand.Rand) string { return "/sites" }},
		{"GET /sites, any of the first 100 pages", func(r *rand.Rand) string { return fmt.Sprintf("/sites?page=%d", 1+r.IntN(100)) }},
		{"GET /sites?status=active&limit=100", func(*rand.Rand) string { return "/sites?status=active&limit=100" }},
	} {
		d, err := b.repeat(w, func(r *rand.Rand) world.Request {
			return world.Request{Method: "GET", Path: m.path(r), Key: b.key}
		})
		if err != nil {
			return err
		}
		rate, bareRate := float64(len(d))/b.load.Seconds(), float64(len(bare))/b.load.Seconds()
		b.add(row{
			what:      fmt.Sprintf("%s, %d sites", m.what, b.sites),
			value:     fmt.Sprintf("%.0f/s, p50 %s, p99 %s", rate, ms(quantile(d, .5)), ms(quantile(d, .99))),
			yardstick: fmt.Sprintf("/healthz %.0f/s, p99 %s", bareRate, ms(quantile(bare, .99))),
			ratio:     fmt.Sprintf("%.2f×", rate/bareRate), goal: "p99 < 10 ms",
		})
	}
	return nil
}

// repeat sends requests from several concurrent clients and returns the durations.
func (b *bench) repeat(w *world.World, next func(*rand.Rand) world.Request) ([]time.Duration, error) {
	var (
		mu    sync.Mutex // guards all and first
		all   []time.Duration
		first error
		group sync.WaitGroup
	)
	end := time.Now().Add(b.load)
	for n := range readers {
		group.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(n)))
			var own []time.Duration
			for time.Now().Before(end) && b.ctx.Err() == nil {
				r := next(random)
				start := time.Now()
				a, err := w.Do(b.ctx, r)
				own = append(own, time.Since(start))
				if err == nil {
					err = a.Err()
				}
				if err != nil {
					mu.Lock()
					first = err
					mu.Unlock()
					return
				}
			}
			mu.Lock()
			all = append(all, own...)
			mu.Unlock()
		})
	}
	group.Wait()
	return all, first
}
