package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"slipway/e2e/world"
)

// webhook measures the time from the answer to the request that caused an event until the receiver has it.
func (b *bench) webhook(w *world.World) error {
	if err := b.commit(w, "bench/small", 3, "small"); err != nil {
		return err
	}
	var created struct{ Data struct{ ID, URL string } }
	err := w.Call(b.ctx, b.key, "POST", "/sites", map[string]string{
		"name":       "small",
		"type":       "static",
		"repository": "git.test/bench/small",
		"branch":     "main",
	}, &created)
	if err != nil {
		return err
	}
	browser, err := w.Browser()
	if err != nil {
		return err
	}
	if err := b.shows(w, browser, created.Data.URL, "small"); err != nil {
		return err
	}
	err = w.Call(b.ctx, b.key, "POST", "/webhooks", map[string]any{
		"url":    w.Hooks.URL + "/bench",
		"events": []string{"site.updated"},
		"secret": "sixteen characters",
	}, nil)
	if err != nil {
		return err
	}
	var took []time.Duration
	for n := range 200 {
		name := fmt.Sprintf("renamed for the %dth time", n)
		if err := w.Call(b.ctx, b.key, "PATCH", "/sites/"+created.Data.ID, map[string]string{"name": name}, nil); err != nil {
			return err
		}
		answered := time.Now()
		ctx, cancel := context.WithTimeout(b.ctx, time.Minute)
		hits, err := w.Hooks.Wait(ctx, 1, func(d world.Delivery) bool { return strings.Contains(string(d.Body), `"`+name+`"`) })
		cancel()
		if err != nil {
			return err
		}
		took = append(took, max(0, hits[0].At.Sub(answered))) // it may arrive before the answer is read
	}
	b.add(row{
		what:  "webhook, first attempt after commit",
		value: fmt.Sprintf("p50 %s, p99 %s", ms(quantile(took, .5)), ms(quantile(took, .99))),
		goal:  "p50 < 100 ms",
	})
	return nil
}
