package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"slipway/e2e/world"
	"slipway/internal/platform/db"
)

const loadHooks = 50 // webhooks that share the pending deliveries

// webhookLoad measures how fast pending deliveries reach a TLS receiver after a start, against a sender that stores and
// signs nothing.
func (b *bench) webhookLoad(w *world.World) error {
	var hooks []string
	for n := range loadHooks {
		var made struct{ ID string }
		err := w.Call(b.ctx, b.key, "POST", "/webhooks", map[string]any{
			"url":    fmt.Sprintf("%s/load/%d", w.Hooks.URL, n),
			"events": []string{"payment.failed"},
			"secret": "sixteen characters",
		}, &made)
		if err != nil {
			return err
		}
		hooks = append(hooks, made.ID)
	}
	body := []byte(
		`{"id":"evt_bench","event":"payment.failed","timestamp":"2026-01-01T00:00:00.000Z","data":{"payment":{"id":"pay_1","amount":1900,"currency":"USD","status":"failed"}}}`,
	)
	before, err := bareSender(b.ctx, w, body, b.deliveries/4)
	if err != nil {
		return err
	}
	if err := b.restarted(w, func() error { return seedPending(b.ctx, w, hooks, string(body), b.deliveries) }); err != nil {
		return err
	}
	var n, seen int
	var first, last time.Time
	arrived := func() bool {
		for _, d := range w.Hooks.From(seen) {
			seen++
			if strings.HasPrefix(d.Path, "/load/") {
				n++
				if first.IsZero() {
					first = d.At
				}
				last = d.At
			}
		}
		return n >= b.deliveries
	}
	ctx, cancel := context.WithTimeout(b.ctx, 10*time.Minute)
	defer cancel()
	err = world.Until(ctx, 200*time.Millisecond, func() (bool, error) { return arrived(), fmt.Errorf("%d of %d came", n, b.deliveries) })
	if err != nil {
		return err
	}
	ours := float64(b.deliveries) / last.Sub(first).Seconds()
	after, err := bareSender(b.ctx, w, body, b.deliveries/4)
	if err != nil {
		return err
	}
	bare := (before + after) / 2
	b.add(row{
		what:      fmt.Sprintf("webhook deliveries, %d pending at start, %d endpoints%s", b.deliveries, loadHooks, b.on()),
		value:     fmt.Sprintf("%.0f/s", ours),
		yardstick: fmt.Sprintf("a sender that keeps nothing %.0f/s; Svix publishes 800/s (svix.com/pricing, Professional)", bare),
		ratio:     fmt.Sprintf("%.2f×", ours/bare),
		goal:      "4,000/s, 0.45×",
	})
	return nil
}

// seedPending writes due deliveries, the same number for each webhook.
func seedPending(ctx context.Context, w *world.World, hooks []string, body string, n int) error {
	d, err := open(ctx, w)
	if err != nil {
		return err
	}
	defer d.Close()
	const batch = 2000
	for from := 0; from < n; from += batch {
		err := d.Write(ctx, func(tx *db.Tx) error {
			for i := from; i < min(from+batch, n); i++ {
				event, at := db.NewID("evt"), db.Now()
				if _, err := tx.Exec(ctx,
					`INSERT INTO webhook_events (id, owner_id, name, body, created_at) VALUES ($1, '', 'payment.failed', $2, $3)`,
					event, body, at); err != nil {
					return err
				}
				if _, err := tx.Exec(ctx, `
					INSERT INTO webhook_deliveries (id, event_id, hook_id, state, claims, failures, next_at, lease_until, created_at, finished_at, redelivery_of)
					VALUES ($1, $2, $3, 'pending', 0, 0, $4, 0, $4, 0, '')`, db.NewID("dlv"), event, hooks[i%len(hooks)], at); err != nil {
					return err
				}
			}
			_, err := tx.Exec(ctx, `UPDATE webhooks SET turn_at = 0`)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// bareSender posts a body n times with as many workers as the service has concurrent deliveries, and returns the rate.
func bareSender(ctx context.Context, w *world.World, body []byte, n int) (float64, error) {
	ca, err := os.ReadFile(w.Hooks.CA)
	if err != nil {
		return 0, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	const workers = 100
	client := &http.Client{
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, MaxIdleConnsPerHost: workers, ForceAttemptHTTP2: true},
	}
	defer client.CloseIdleConnections()
	var left atomic.Int64
	left.Store(int64(n))
	errs := make([]error, workers)
	began := time.Now()
	var all sync.WaitGroup
	for i := range workers {
		all.Go(func() {
			for left.Add(-1) >= 0 {
				req, err := http.NewRequestWithContext(ctx, "POST", w.Hooks.URL+"/bare", bytes.NewReader(body))
				if err == nil {
					req.Header.Set("Content-Type", "application/json")
					_, err = world.Read(client.Do(req))
				}
				if err != nil {
					errs[i] = err
					return
				}
			}
		})
	}
	all.Wait()
	return float64(n) / time.Since(began).Seconds(), errors.Join(errs...)
}
