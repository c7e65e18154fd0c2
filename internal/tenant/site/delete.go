package site

import (
	"context"
	"fmt"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/job"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/webhook/event"
)

// Purge is the job that removes what a deleted site leaves behind. It is enqueued with
// the deletion and worked by the service that knows all of it.
type Purge struct{ Site ID }

// Kind names the job.
func (Purge) Kind() string { return "site.purge" }

// Forget is the job that removes the last of a deleted site: its row, which edges need
// for a while to learn that it is gone.
type Forget struct{ Site ID }

// Kind names the job.
func (Forget) Kind() string { return "site.forget" }

// DeleteTx ends the owner's site: from the commit on it is gone from the interface and
// no longer served. Its name stays the owner's for 90 days.
func (s *Sites) DeleteTx(ctx context.Context, tx *db.Tx, owner account.OwnerID, id ID) error {
	site, err := s.LockTx(ctx, tx, owner, id)
	if err != nil {
		return err
	}
	bump(tx, owner, id)
	now := db.Now()
	if _, err := tx.Exec(ctx, `UPDATE sites SET deleted_at = $2, credential = '' WHERE id = $1`, id, now); err != nil {
		return fmt.Errorf("delete site: %w", err)
	}
	if _, err := tx.Exec(ctx, `UPDATE slugs SET site_id = '', released_at = $2 WHERE slug = $1`, site.Slug, now); err != nil {
		return fmt.Errorf("release slug: %w", err)
	}
	if err := count(ctx, tx, owner, site.Type, site.Status, -1); err != nil {
		return err
	}
	if err := s.c.Hooks.EmitTx(ctx, tx, owner, event.SiteDeleted(s.Ref(site))); err != nil {
		return err
	}
	_, err = job.Enqueue(ctx, tx, Purge{id}, job.Options{Unique: "purge/" + string(id), Share: string(owner)})
	return err
}

// PurgeTx removes what this service stores of a deleted site, except the row that tells the
// edges; that goes an hour later.
func (s *Sites) PurgeTx(ctx context.Context, tx *db.Tx, id ID) error {
	for _, q := range []string{
		`DELETE FROM env WHERE site_id = $1`,
		`DELETE FROM site_serving WHERE site_id = $1`,
		`DELETE FROM deploy_hooks WHERE site_id = $1`,
	} {
		if _, err := tx.Exec(ctx, q, id); err != nil {
			return fmt.Errorf("purge site: %w", err)
		}
	}
	_, err := job.Enqueue(ctx, tx, Forget{id}, job.Options{Unique: "forget/" + string(id), At: db.Now().Add(time.Hour)})
	return err
}

// Work registers this service's own jobs.
func (s *Sites) Work(j *job.Jobs) {
	job.Handle(j, job.Policy{}, func(ctx context.Context, f Forget, _ int64) error {
		return s.c.DB.Write(ctx, func(tx *db.Tx) error {
			_, err := tx.Exec(ctx, `DELETE FROM sites WHERE id = $1 AND deleted_at > 0`, f.Site)
			return err
		})
	})
}
