package backup

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"slipway/internal/backup/snapshot"
	"slipway/internal/platform/db"
	"slipway/internal/platform/job"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/operation"
	"slipway/internal/tenant/site"
)

// catchUpTime bounds how long a site's programs are held for what was written since its backup: visitors wait meanwhile.
const catchUpTime = 45 * time.Second

// quiet is the storage of a site whose programs are held.
type quiet struct{ snapshot.Storage }

// Hold is for [snapshot.Storage].
func (quiet) Hold(site.ID) func() { return func() {} }

// What a restore's step says after the id of the backup, once what was written since is in it, or can't be.
const (
	caughtUp = " caught-up"
	behind   = " behind"
)

// catchUp adds to the backup of what is there what was written since, right before that is replaced. The site's programs are held. It
// reports whether the backup has everything; not where that would take too long. It is done once: when it is repeated, a part may have
// been replaced.
func (s *Backups) catchUp(ctx context.Context, owner account.OwnerID, op operation.ID, id ID) (whole bool, err error) {
	o, err := s.c.Operations.Get(ctx, owner, op)
	switch {
	case err != nil:
		return false, err
	case strings.HasSuffix(o.Step, caughtUp):
		return true, nil
	case strings.HasSuffix(o.Step, behind):
		return false, nil
	}
	return s.CatchUp(ctx, id, func(tx *db.Tx, whole bool) error {
		how := caughtUp
		if !whole {
			how = behind
		}
		return s.c.Operations.AdvanceTx(ctx, tx, op, 0.9, string(id)+how, "Putting it in place")
	})
}

// CatchUp adds to a backup of a site what was written since, and reports whether it has everything. The caller holds the site's programs,
// and hears of it in the transaction that notes it.
func (s *Backups) CatchUp(ctx context.Context, id ID, done func(tx *db.Tx, whole bool) error) (whole bool, err error) {
	b, err := scan(s.c.DB.QueryRow(ctx, `SELECT `+columns+` FROM backups WHERE id = $1`, id))
	if err != nil {
		return false, err
	}
	if err := s.c.DB.QueryRow(ctx, `SELECT manifest FROM backups WHERE id = $1`, id).Scan(&b.base); err != nil {
		return false, fmt.Errorf("read backup %s: %w", id, err)
	}
	held := *s
	if held.c.Storage != nil {
		held.c.Storage = quiet{s.c.Storage}
	}
	short, cancel := context.WithTimeout(ctx, catchUpTime)
	defer cancel()
	m, w, err := held.collect(short, b)
	if errors.Is(short.Err(), context.DeadlineExceeded) && ctx.Err() == nil {
		s.c.Log.WarnContext(ctx, "what was written since a backup took too long to be added", "backup", id, "site", b.Site)
		var abandoned error
		if err == nil { // else nothing of it stayed
			abandoned = w.Abandon()
		}
		return false, errors.Join(abandoned, s.c.DB.Write(ctx, func(tx *db.Tx) error { return done(tx, false) }))
	}
	if err != nil {
		return false, fmt.Errorf("back up %s: %w", b.Site, err)
	}
	raw, err := m.Encode()
	if err != nil {
		return false, errors.Join(err, w.Abandon())
	}
	name, n, err := s.c.Repository.Put(ctx, raw)
	if err != nil {
		return false, errors.Join(fmt.Errorf("store manifest: %w", err), w.Abandon())
	}
	return true, s.c.DB.Write(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, `UPDATE backups SET size_bytes = $2, stored_bytes = $3, manifest = $4, checksum = $5, verified_at = 0
			WHERE id = $1 AND status = 'completed'`, id, m.Size(), b.Stored+w.Stored()+n, name, checksum(raw))
		if err != nil {
			return err
		}
		tx.Notify(b.Owner.Topic())
		if err := done(tx, true); err != nil {
			return err
		}
		_, err = job.Enqueue(ctx, tx, Verify{Backup: id}, job.Options{Queue: VerifyQueue, Unique: "verify/" + string(id), Share: string(b.Owner)})
		return err
	})
}
