package upload

import (
	"context"
	"fmt"
	"time"

	"slipway/internal/platform/blob"
	"slipway/internal/platform/db"
	"slipway/internal/platform/job"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/site"
)

// Collect is the hourly job that deletes expired uploads. Only one exists.
type Collect struct{}

func (Collect) Kind() string { return "upload.collect" }

// Work registers the job.
func (u *Uploads) Work(j *job.Jobs) {
	job.Handle(j, job.Policy{Timeout: 10 * time.Minute, Attempts: 1 << 30}, func(ctx context.Context, _ Collect, _ int64) error {
		if err := u.Expire(ctx); err != nil {
			return err
		}
		return job.Later(time.Hour)
	})
}

// Schedule makes sure that the job exists.
func (u *Uploads) Schedule(ctx context.Context) error {
	return u.c.DB.Write(ctx, func(tx *db.Tx) error {
		_, err := job.Enqueue(ctx, tx, Collect{}, job.Options{Unique: Collect{}.Kind(), At: db.Now().Add(time.Minute)})
		return err
	})
}

// Expire deletes uploads that received nothing for a day, except those that the site's production, its newest preview
// or an open deployment was made from.
func (u *Uploads) Expire(ctx context.Context) error {
	for {
		var n int
		err := u.c.DB.Write(ctx, func(tx *db.Tx) error {
			rows, err := tx.Query(ctx, `
				SELECT id FROM uploads u
				WHERE touched_at < $1
					AND (status = 'open' OR EXISTS (SELECT 1 FROM uploads n WHERE n.site_id = u.site_id AND n.status = 'deployed'
						AND n.target = u.target AND n.deployment_id > u.deployment_id))
					AND NOT EXISTS (SELECT 1 FROM uploads_in_use d WHERE d.upload_id = u.id)
				LIMIT 200`, db.Now().Add(-Patience))
			ids, err := db.Collect(rows, err, func(s db.Scanner) (id ID, err error) { return id, s.Scan(&id) })
			if err != nil {
				return fmt.Errorf("find uploads that are over: %w", err)
			}
			for _, id := range ids {
				if err := deleteTx(ctx, tx, id); err != nil {
					return err
				}
			}
			n = len(ids)
			return nil
		})
		if err != nil || n == 0 {
			return err
		}
	}
}

// Roots marks the blobs of every upload: its manifest, the contents that it names, and what was received. Garbage
// collection must call it after the roots of deployments: a release that an upload relies on may be deleted meanwhile.
func (u *Uploads) Roots(ctx context.Context, mark func(blob.Digest)) error {
	type stored struct{ manifest, needed string }
	var all []stored
	err := u.c.DB.Snapshot(ctx, func(r db.Reader) error {
		rows, err := r.Query(ctx, `SELECT manifest, needed FROM uploads WHERE manifest <> ''`)
		if all, err = db.Collect(rows, err, func(s db.Scanner) (x stored, err error) { return x, s.Scan(&x.manifest, &x.needed) }); err != nil {
			return fmt.Errorf("list uploads: %w", err)
		}
		rows, err = r.Query(ctx, `SELECT blobs FROM upload_batches`)
		have := map[blob.Digest]int64{}
		if err := received(rows, err, have); err != nil {
			return err
		}
		for d := range have {
			mark(d)
		}
		rows, err = r.Query(ctx, `SELECT DISTINCT blob FROM upload_parts`)
		parts, err := db.Collect(rows, err, scanDigest)
		if err != nil {
			return fmt.Errorf("list parts of files: %w", err)
		}
		for _, d := range parts {
			mark(d)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, x := range all {
		if d, err := blob.ParseDigest(x.needed); err == nil {
			mark(d)
		}
		list, err := u.files(ctx, Upload{Manifest: x.manifest})
		if err != nil {
			return err
		}
		d, err := blob.ParseDigest(x.manifest)
		if err != nil {
			return err
		}
		mark(d)
		for _, e := range list {
			mark(e.digest)
		}
	}
	return nil
}

// MoveSiteTx transfers a site's uploads to another owner.
func (u *Uploads) MoveSiteTx(ctx context.Context, tx *db.Tx, id site.ID, from, to account.OwnerID) (int64, error) {
	n, err := tx.Exec(ctx, `UPDATE uploads SET owner_id = $2 WHERE site_id = $1 AND owner_id <> $2`, id, to)
	if err != nil {
		return 0, fmt.Errorf("move uploads of site: %w", err)
	}
	return n, nil
}

// ForgetSiteTx deletes the uploads of a deleted site.
func (u *Uploads) ForgetSiteTx(ctx context.Context, tx *db.Tx, id site.ID) error {
	for _, statement := range []string{
		`DELETE FROM upload_batches WHERE upload_id IN (SELECT id FROM uploads WHERE site_id = $1)`,
		`DELETE FROM upload_parts WHERE upload_id IN (SELECT id FROM uploads WHERE site_id = $1)`,
		`DELETE FROM uploads WHERE site_id = $1`,
	} {
		if _, err := tx.Exec(ctx, statement, id); err != nil {
			return fmt.Errorf("forget uploads: %w", err)
		}
	}
	return nil
}
