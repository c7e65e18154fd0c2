package backup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"slipway/internal/backup/repository"
	"slipway/internal/platform/db"
)

// sweepDue sweeps the repository when the last time is long enough ago, whichever node
// that was.
func (s *Backups) sweepDue(ctx context.Context, now time.Time) error {
	due := false
	err := s.c.DB.Write(ctx, func(tx *db.Tx) error {
		n, err := tx.Exec(ctx, `
			INSERT INTO backup_sweeps (id, at) VALUES (1, $1)
			ON CONFLICT (id) DO UPDATE SET at = excluded.at WHERE backup_sweeps.at <= $2`, db.At(now), db.At(now.Add(-sweepEvery)))
		due = n > 0
		return err
	})
	if err != nil || !due {
		return err
	}
	return s.Sweep(ctx)
}

// Sweep deletes the objects of the repository that no backup has any more. A backup whose
// list can't be read stops it: what it held is not known.
func (s *Backups) Sweep(ctx context.Context) error {
	return s.SweepPlace(ctx, s.c.Repository)
}

// SweepPlace is Sweep of any repository of this installation: backups of sites and of the
// installation may lie in one place or in two.
func (s *Backups) SweepPlace(ctx context.Context, r *repository.Repository) error {
	keep := map[string]bool{}
	if err := kept(ctx, r, keep); err != nil {
		return fmt.Errorf("sweep backups: %w", err)
	}
	rows, err := s.c.DB.Query(ctx, `SELECT manifest FROM backups WHERE manifest <> '' UNION SELECT base FROM backups WHERE base <> ''`)
	manifests, err := db.Collect(rows, err, func(s db.Scanner) (name string, err error) { return name, s.Scan(&name) })
	if err != nil {
		return fmt.Errorf("list backups: %w", err)
	}
	for _, name := range strings.Split(strings.Join(manifests, ","), ",") {
		if name == "" {
			continue
		}
		m, err := r.Load(ctx, name, nil)
		if errors.Is(err, fs.ErrNotExist) {
			continue // it can't be restored, and verifying it says so
		}
		if err != nil {
			return fmt.Errorf("sweep backups: %w", err)
		}
		keep[name] = true
		for _, p := range m.Packs {
			keep[p] = true
		}
	}
	removed, size, err := r.Sweep(ctx, keep)
	if removed > 0 {
		s.c.Log.InfoContext(ctx, "objects of deleted backups deleted", "objects", removed, "bytes", size)
	}
	if err != nil {
		return fmt.Errorf("sweep backups: %w", err)
	}
	return nil
}
