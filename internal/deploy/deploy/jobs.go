package deploy

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"slipway/internal/deploy/deployment"
	"slipway/internal/deploy/journal"
	"slipway/internal/deploy/preview"
	"slipway/internal/deploy/screenshot"
	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/job"
	"slipway/internal/tenant/site"
)

// Collect is the hourly job that deletes old deployments and releases. Package gc then deletes what nothing refers to.
// Only one exists.
type Collect struct{}

// drawing is the job that made thumbnails of releases before version 0.3. Such jobs may be queued, or come from nodes of
// an earlier version during an upgrade, and now do nothing.
type drawing struct{}

func (drawing) Kind() string { return "deploy.thumbnail" }

// maxWait is how long a build may wait for a free place. The deployment's timeout is paused meanwhile.
const maxWait = 24 * time.Hour

func (Collect) Kind() string { return "deploy.collect" }

// Work registers the package's jobs.
func (d *Deployments) Work(j *job.Jobs) {
	job.Handle(j, job.Policy{
		Timeout:  d.c.Timeout + maxWait,
		Attempts: 50, // the deployment counts crashes itself, see crash.go
		Backoff:  func(int) time.Duration { return time.Second },
		GivenUp: func(ctx context.Context, args []byte, _ error) error {
			var r Run
			if err := json.Unmarshal(args, &r); err != nil {
				return err
			}
			return d.givenUp(ctx, r.Deployment)
		},
	}, d.work)
	job.Handle(j, job.Policy{}, d.provision)
	job.Handle(j, job.Policy{Formerly: "deploy.portray"}, func(context.Context, drawing, int64) error { return nil })
	job.Handle(j, job.Policy{Attempts: 1000}, d.purge)
	job.Handle(j, job.Policy{Timeout: time.Hour, Attempts: 1 << 30}, d.collect)
}

// Schedule makes sure that the recurring job exists.
func (d *Deployments) Schedule(ctx context.Context) error {
	return d.c.DB.Write(ctx, func(tx *db.Tx) error {
		_, err := job.Enqueue(ctx, tx, Collect{}, job.Options{Unique: "deploy.collect", At: db.Now().Add(time.Minute)})
		return err
	})
}

// provision starts the first deployment of a new site. If it runs twice, it finds the first one.
func (d *Deployments) provision(ctx context.Context, p site.Provision, _ int64) error {
	return d.c.DB.Write(ctx, func(tx *db.Tx) error {
		s, err := d.c.Sites.LockByIDTx(ctx, tx, p.Site)
		if fault.Is(err, fault.NotFound) {
			return nil
		}
		if err != nil || s.Status != site.Pending {
			return err
		}
		var n int
		if err := tx.QueryRow(ctx, `SELECT count(*) FROM deployments WHERE site_id = $1 AND cause = 'provision'`,
			s.ID).Scan(&n); err != nil {
			return fmt.Errorf("look for the first deployment: %w", err)
		}
		if n > 0 {
			return nil
		}
		_, err = d.insert(ctx, tx, s, Trigger{Cause: deployment.ByProvision})
		return err
	})
}

// purge deletes what a deleted site leaves behind: it stops what runs, then deletes rows, files and other packages'
// data. Every step may be repeated.
func (d *Deployments) purge(ctx context.Context, p site.Purge, _ int64) error {
	var running bool
	err := d.c.DB.Write(ctx, func(tx *db.Tx) error {
		ids, err := idsOf(ctx, tx, `SELECT id FROM deployments WHERE site_id = $1 AND status IN `+open, p.Site)
		if err != nil {
			return fmt.Errorf("find open deployments: %w", err)
		}
		for _, id := range ids {
			if err := d.cancel(ctx, tx, id, "The site was deleted"); err != nil {
				return err
			}
			running = true
		}
		return nil
	})
	if err != nil {
		return err
	}
	if running {
		return job.Later(100 * time.Millisecond) // until their workers have recorded the end
	}
	if err := d.c.Source.Forget(ctx, p.Site); err != nil {
		return fmt.Errorf("forget source: %w", err)
	}
	if err := d.c.Builds.Forget(ctx, p.Site); err != nil {
		return fmt.Errorf("forget build caches: %w", err)
	}
	for _, k := range d.keepers {
		if err := k.ForgetSite(ctx, p.Site); err != nil {
			return err
		}
	}
	for _, part := range d.parts {
		if err := d.c.DB.Write(ctx, func(tx *db.Tx) error { return part.ForgetSiteTx(ctx, tx, p.Site) }); err != nil {
			return err
		}
	}
	return d.c.DB.Write(ctx, func(tx *db.Tx) error {
		ids, err := idsOf(ctx, tx, `SELECT id FROM deployments WHERE site_id = $1`, p.Site)
		if err != nil {
			return fmt.Errorf("find deployments: %w", err)
		}
		if err := journal.ForgetTx(ctx, tx, ids); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `DELETE FROM deployments WHERE site_id = $1`, p.Site); err != nil {
			return fmt.Errorf("purge deployments: %w", err)
		}
		if err := preview.PurgeTx(ctx, tx, p.Site); err != nil {
			return err
		}
		if err := d.c.Builds.ReleaseUIDTx(ctx, tx, p.Site); err != nil {
			return err
		}
		return d.c.Sites.PurgeTx(ctx, tx, p.Site)
	})
}

// collect deletes deployments beyond the site's history, and the releases that aren't kept for rollbacks.
func (d *Deployments) collect(ctx context.Context, _ Collect, _ int64) error {
	err := d.c.DB.Write(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, `
			UPDATE deployments SET release = '', bundle = '' WHERE id IN (
				SELECT id FROM (
					SELECT d.id AS id, row_number() OVER (PARTITION BY d.site_id, d.target ORDER BY d.id DESC) AS place
					FROM deployments d JOIN open_sites s ON s.id = d.site_id
					WHERE d.release <> '' AND d.id <> s.live_deployment
					AND NOT EXISTS (SELECT 1 FROM shown_previews p WHERE p.site_id = d.site_id AND p.deployment_id = d.id)) AS kept
				WHERE place > $1)`, d.c.Keep)
		if err != nil {
			return fmt.Errorf("release old releases: %w", err)
		}
		ids, err := idsOf(ctx, tx, `
			SELECT id FROM (
				SELECT d.id AS id, row_number() OVER (PARTITION BY d.site_id ORDER BY d.id DESC) AS place
				FROM deployments d JOIN open_sites s ON s.id = d.site_id
				WHERE d.release = '' AND d.status IN ('success', 'failed', 'canceled')) AS old
			WHERE place > $1 LIMIT 500`, d.c.History)
		if err != nil {
			return fmt.Errorf("find old deployments: %w", err)
		}
		if err := journal.ForgetTx(ctx, tx, ids); err != nil {
			return err
		}
		for _, id := range ids {
			if _, err := tx.Exec(ctx, `DELETE FROM deployments WHERE id = $1`, id); err != nil {
				return fmt.Errorf("forget deployment: %w", err)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := d.c.Builds.Sweep(ctx); err != nil {
		return err
	}
	if err := screenshot.Tidy(ctx, d.c.DB); err != nil {
		return err
	}
	return job.Later(time.Hour)
}
