package main

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"slipway/e2e/world"
)

// fair measures how much one user's writes slow another user's: two clients of the first user constantly post arrays of
// a thousand variables, while the second posts single variables.
func (b *bench) fair(w *world.World) error {
	other, err := w.User("other@example.test")
	if err != nil {
		return err
	}
	if err := b.commit(w, "bench/fair", 1, "fair"); err != nil {
		return err
	}
	site := func(key string) (string, error) {
		var created struct{ Data struct{ ID string } }
		err := w.Call(b.ctx, key, "POST", "/sites", map[string]string{
			"name":       "fair",
			"type":       "static",
			"repository": "git.test/bench/fair",
			"branch":     "main",
		}, &created)
		return created.Data.ID, err
	}
	greedy, err := site(b.key)
	if err != nil {
		return err
	}
	theirs, err := site(other)
	if err != nil {
		return err
	}
	if err := b.settledSite(w, greedy); err != nil {
		return err
	}
	vars := make([]map[string]any, 1000)
	for i := range vars {
		value := make([]byte, 470)
		rand.Read(value)
		vars[i] = map[string]any{"key": fmt.Sprint("V", i), "value": hex.EncodeToString(value)}
	}
	one := func(n int) (time.Duration, error) {
		start := time.Now()
		err := w.Call(b.ctx, other, "POST", "/sites/"+theirs+"/env", map[string]any{"key": fmt.Sprint("K", n), "value": "x"}, nil)
		return time.Since(start), err
	}
	const posts = 100
	measure := func() (took []time.Duration, err error) {
		for n := range posts {
			d, err := one(n)
			if err != nil {
				return nil, err
			}
			took = append(took, d)
		}
		slices.Sort(took)
		return took, nil
	}
	alone, err := measure()
	if err != nil {
		return err
	}
	var stop atomic.Bool
	var arrays atomic.Int64
	var failed atomic.Pointer[error]
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() {
			for !stop.Load() {
				if err := w.Call(b.ctx, b.key, "POST", "/sites/"+greedy+"/env", vars, nil); err != nil {
					failed.Store(&err)
					return
				}
				arrays.Add(1)
			}
		})
	}
	beside, err := measure()
	stop.Store(true)
	all.Wait()
	if p := failed.Load(); err == nil && p != nil {
		err = *p
	}
	if err != nil {
		return err
	}
	at := func(took []time.Duration) string {
		return fmt.Sprintf("p50 %s, p99 %s, worst %s", ms(took[posts/2]), ms(took[posts*99/100]), ms(took[posts-1]))
	}
	b.add(row{
		what:      fmt.Sprintf("another user's POST beside arrays of 1000 variables (%d of them)", arrays.Load()),
		value:     at(beside),
		yardstick: "alone " + at(alone),
		ratio:     fmt.Sprintf("%.1f×", float64(beside[posts/2])/float64(alone[posts/2])),
		goal:      "worst < 500 ms",
	})
	return nil
}
