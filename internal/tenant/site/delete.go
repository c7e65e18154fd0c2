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

// Purge is the job that removes what a deleted site leaves behind. It is enqueued with the deletion and performed by
// the service that knows all of it.
type Purge struct{ Site ID }

// Kind implements [job.Args].
func (Purge) Kind() string { return "site.purge" }

// Forget is the job that deletes a deleted site's row, which edges need for a while to see that the site is gone.
type Forget struct{ Site ID }

// Kind implements [job.Args].
func (Forget) Kind() string { return "site.forget" }

// DeleteTx deletes the owner's site: from the commit on it isn't listed or served. Its name stays reserved for the
// owner for 90 days.
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

// PurgeTx deletes everything this service stores about a deleted site, except the row that informs the edges. Forget
// deletes that an hour later.
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

func (s *Sites) Work(j *job.Jobs) {
	job.Handle(j, job.Policy{}, func(ctx context.Context, f Forget, _ int64) error {
		return s.c.DB.Write(ctx, func(tx *db.Tx) error {
			_, err := tx.Exec(ctx, `DELETE FROM sites WHERE id = $1 AND deleted_at > 0`, f.Site)
			return err
		})
	})
}
