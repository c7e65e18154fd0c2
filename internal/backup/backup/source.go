package backup

import (
	"context"
	"fmt"
	"os"

	"slipway/internal/backup/snapshot"
	"slipway/internal/build/bundle"
	"slipway/internal/platform/blob"
)

// scratchBundles returns bundles over a store, whose own directory is removed by done.
func (s *Backups) scratchBundles(store *blob.Store) (b *bundle.Bundles, done func(), err error) {
	dir, err := os.MkdirTemp(s.c.Scratch, "bundles-")
	if err != nil {
		return nil, nil, fmt.Errorf("make scratch directory: %w", err)
	}
	if b, err = s.bundles(store, dir); err != nil {
		os.RemoveAll(dir)
		return nil, nil, err
	}
	return b, func() { os.RemoveAll(dir) }, nil
}

// reader opens a completed backup. One that was transferred has no Git credential: it was the sender's.
func (s *Backups) reader(ctx context.Context, b Backup) (*snapshot.Reader, error) {
	if b.Status != Completed {
		return nil, notCompleted(b)
	}
	if err := s.possible(); err != nil {
		return nil, err
	}
	m, err := snapshot.Load(ctx, s.c.Repository, b.manifest)
	if err != nil {
		return nil, fmt.Errorf("open backup %s: %w", b.ID, err)
	}
	if b.moved && m.Config != nil { // a transfer leaves the sender's credential behind
		m.Config.Credential = nil
	}
	return snapshot.NewReader(s.c.Repository, b.Owner, m), nil
}
