package main

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"slipway/e2e/world"
)

// programsMany measures a machine with many applications of which fifty run: what the
// service takes, what a visitor of one that runs waits, and one of one that sleeps.
func (b *bench) programsMany(w *world.World) error {
	dir := filepath.Join(w.Dir, "app")
	if err := world.WriteFiles(dir, benchProgram); err != nil {
		return err
	}
	if _, err := w.Git.Commit("bench/app", "main", dir, "app"); err != nil {
		return err
	}
	idle, err := settled(w)
	if err != nil {
		return err
	}
	sites := make([]program, b.programCount)
	g, ctx := errgroup.WithContext(b.ctx)
	g.SetLimit(4)
	begun := time.Now()
	for i := range sites {
		g.Go(func() error {
			var made struct{ Data struct{ ID, URL string } }
			body := map[string]any{"name": fmt.Sprint("app", i), "type": "static", "repository": "git.test/bench/app", "branch": "main", "run": map[string]any{"sleepAfterSeconds": 1}}
			if err := w.Call(ctx, b.key, "POST", "/sites", body, &made); err != nil {
				return err
			}
			sites[i].id, sites[i].url = made.Data.ID, made.Data.URL
			return b.settledSite(w, made.Data.ID)
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	b.add(row{what: fmt.Sprintf("%d applications deployed, four at a time, each", len(sites)), value: ms(time.Since(begun) / time.Duration(len(sites)))})
	browser, err := w.Browser()
	if err != nil {
		return err
	}
	const running = 50
	for _, p := range sites[:min(running, len(sites))] {
		if err := b.call(w, "PATCH", "/sites/"+p.id, map[string]any{"run": map[string]any{"sleepAfterSeconds": 0}}, nil); err != nil {
			return err
		}
		var op struct{ ID string }
		if err := b.call(w, "POST", "/sites/"+p.id+"/restart", nil, &op); err != nil {
			return err
		}
		if err := hello(browser, p.url); err != nil {
			return err
		}
	}
	if err := world.Until(b.ctx, 200*time.Millisecond, func() (bool, error) {
		n := processesOf(benchScript)
		return n == running, fmt.Errorf("%d run", n)
	}); err != nil {
		return err
	}
	now, err := settled(w)
	if err != nil {
		return err
	}
	b.add(row{what: fmt.Sprintf("memory of the service, %d applications of which %d run", len(sites), running), value: megabytes(now), yardstick: "idle " + megabytes(idle), ratio: fmt.Sprintf("%.2f×", float64(now)/float64(idle))})
	var awake, woken []time.Duration
	for range 2000 {
		begun := time.Now()
		if err := hello(browser, sites[rand.IntN(running)].url); err != nil {
			return err
		}
		awake = append(awake, time.Since(begun))
	}
	for _, p := range sites[running:min(running+20, len(sites))] {
		begun := time.Now()
		if err := hello(browser, p.url); err != nil {
			return err
		}
		woken = append(woken, time.Since(begun))
	}
	b.timing("of these, a request to one that runs, p50", median(awake), 0, "", "")
	b.timing("of these, the wake of one that sleeps, with its handshake, p50", median(woken), 0, "", "150 ms")
	return nil
}
