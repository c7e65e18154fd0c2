package gc

import (
	"context"
	"fmt"
	"strings"
	"time"

	"slipway/internal/platform/blob"
	"slipway/internal/platform/db"
)

// Record is the deletion record that all nodes share; it implements [blob.Deletions].
type Record struct {
	db      *db.DB
	sweeper string // this process
}

// NewRecord returns the record in the database.
func NewRecord(d *db.DB) *Record { return &Record{d, db.NewID("sweep")} }

// remembered is how long ended deletions stay recorded: longer than any batch of puts.
const remembered = 24 * time.Hour

// Begin implements [blob.Deletions].
func (r *Record) Begin(ctx context.Context, blobs []blob.Digest) error {
	return r.note(ctx, blobs, true)
}

// End implements [blob.Deletions].
func (r *Record) End(ctx context.Context, blobs []blob.Digest) error {
	return r.note(ctx, blobs, false)
}

func (r *Record) note(ctx context.Context, blobs []blob.Digest, underWay bool) error {
	if len(blobs) == 0 {
		return nil
	}
	now := db.Now()
	args := db.Args{r.sweeper, now, underWay}
	rows := make([]string, len(blobs))
	for i, b := range blobs {
		rows[i] = "(" + args.Add(b.String()) + ", $1, $2, $3)"
	}
	err := r.db.Write(ctx, func(tx *db.Tx) error {
		if _, err := tx.Exec(ctx, `DELETE FROM blob_deletions WHERE at < $1`, now.Add(-remembered)); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `
			INSERT INTO blob_deletions (digest, sweeper, at, under_way) VALUES `+strings.Join(rows, ", ")+`
			ON CONFLICT (digest, sweeper) DO UPDATE SET at = excluded.at, under_way = excluded.under_way`, args...)
		return err
	})
	if err != nil {
		return fmt.Errorf("record deletions: %w", err)
	}
	return nil
}

// Since implements [blob.Deletions]. Deletions of a dead sweeper count as ended after the time limit that the sweeper
// itself would have respected.
func (r *Record) Since(ctx context.Context, t time.Time) (map[blob.Digest]bool, error) {
	rows, err := r.db.Query(ctx, `SELECT digest, under_way AND at > $2 FROM blob_deletions WHERE at >= $1`, db.At(t),
		db.Now().Add(-blob.SweepTime))
	out := map[blob.Digest]bool{}
	_, err = db.Collect(rows, err, func(s db.Scanner) (struct{}, error) {
		var name string
		var underWay bool
		if err := s.Scan(&name, &underWay); err != nil {
			return struct{}{}, err
		}
		d, err := blob.ParseDigest(name)
		out[d] = out[d] || underWay
		return struct{}{}, err
	})
	if err != nil {
		return nil, fmt.Errorf("read deletions: %w", err)
	}
	return out, nil
}
