package domain

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/job"
	"slipway/internal/platform/panics"
)

const (
	pollEvery = 5 * time.Second // finds due checks and those whose notification was lost
	tidyEvery = time.Hour
	workers   = 8 // concurrent checks per node
)

// Run checks due domains, deletes old rows and refreshes the list of registries until ctx ends. Several nodes may run
// it on one database.
func (d *Domains) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { panics.Loop(ctx, d.tidying) })

	wake, stop := d.c.DB.Listen(topic)
	defer stop()
	// share: total 8 domains checked at once; owner in turn, see the pool of checks; edge checked a little later
	job.Loop{
		Places: workers, Wake: wake, Poll: pollEvery,
		Lease: func(ctx context.Context) (func(), error) {
			dom, found, err := d.due(ctx)
			if !found {
				return nil, err
			}
			return func() {
				if err := d.check(ctx, dom); err != nil && ctx.Err() == nil {
					d.c.Log.ErrorContext(ctx, "domain not checked", "domain", dom.Name, "err", err)
				}
			}, nil
		},
		Failed: func(ctx context.Context, err error) { d.c.Log.ErrorContext(ctx, "due domains not read", "err", err) },
	}.Run(ctx)
	return nil
}

// tidying runs tidy and refreshBootstrap at once and then hourly.
func (d *Domains) tidying(ctx context.Context) {
	tick := time.NewTicker(tidyEvery)
	defer tick.Stop()
	for {
		if err := d.tidy(ctx); err != nil && ctx.Err() == nil {
			d.c.Log.ErrorContext(ctx, "old claims not removed", "err", err)
		}
		if d.c.Registry != "local" {
			if err := d.refreshBootstrap(ctx); err != nil && ctx.Err() == nil {
				d.c.Log.InfoContext(ctx, "list of registries not refreshed", "err", err)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// tidy deletes unproven claims that failed a week ago, ended quarantines, and tombstones that every edge has seen.
func (d *Domains) tidy(ctx context.Context) error {
	now := db.Now()
	return d.c.DB.Write(ctx, func(tx *db.Tx) error {
		_, err1 := tx.Exec(ctx, "DELETE FROM domains WHERE proven_at = 0 AND status = 'failed' AND updated_at < $1", now.Add(-forget))
		_, err2 := tx.Exec(ctx, "DELETE FROM domain_releases WHERE released_at < $1", now.Add(-quarantine))
		_, err3 := tx.Exec(ctx, "DELETE FROM domain_routes WHERE state = 'deleted' AND changed_at < $1", now.Add(-quarantine))
		if err := errors.Join(err1, err2, err3); err != nil {
			return fmt.Errorf("tidy domains: %w", err)
		}
		return nil
	})
}
