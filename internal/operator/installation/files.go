package installation

import (
	"context"
	"fmt"
	"time"

	"slipway/internal/platform/blob"
	"slipway/internal/platform/db"
	"slipway/internal/platform/node"
)

// evidence is how many files that the database names are looked for.
const evidence = 20

// FilesAt returns the directory of files, or their remote address without credentials.
func (s Store) FilesAt() (dir, remote string) {
	if s.Remote() {
		return "", s.Shared()
	}
	return s.BlobDir(), ""
}

// Files finds the installation's files, and changes nothing. It is an error where they are elsewhere. store is asked if it isn't nil;
// otherwise, and for a directory, nothing is opened.
func (s Store) Files(ctx context.Context, d *db.DB, store *blob.Store) (*node.Place, error) {
	has := func(d blob.Digest) (bool, error) { return blob.In(s.BlobDir(), d), nil }
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	dir, remote := s.FilesAt()
	if remote != "" {
		has = func(d blob.Digest) (bool, error) { return store.Has(ctx, d) }
	}
	return node.Files(ctx, d, dir, remote, func() (named, found bool, err error) {
		rows, err := d.Query(ctx, `SELECT release FROM live WHERE release <> '' LIMIT $1`, evidence)
		releases, err := db.Collect(rows, err, func(s db.Scanner) (id string, err error) { return id, s.Scan(&id) })
		if err != nil {
			return false, false, fmt.Errorf("read what is live: %w", err)
		}
		for _, id := range releases {
			digest, err := blob.ParseDigest(id)
			if err != nil {
				continue
			}
			if found, err := has(digest); found || err != nil {
				return true, found, err
			}
			named = true
		}
		// What is in the data directory is this installation's, also if its database is one of before it was marked.
		return named, !named && s.Blobs == "", nil
	})
}
