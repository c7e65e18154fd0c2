package backup

import (
	"context"
	"fmt"
	"strings"

	"slipway/internal/backup/repository"
	"slipway/internal/backup/snapshot"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/site"
)

// Stored is what a backup has of a site's storage. It is for one goroutine.
type Stored struct {
	Folders []string

	in    *snapshot.Reader
	below string // where they are in it
}

// PutBack makes the folders of a site what the backup has; see [snapshot.PutBack].
func (x *Stored) PutBack(ctx context.Context, to snapshot.Storage, id site.ID, renew func(context.Context, site.ID) error) error {
	return snapshot.PutBack(ctx, to, x.in, id, x.below, x.Folders, renew)
}

// Stored returns what the backup has of each site's storage.
func (c *CopyReader) Stored() (map[site.ID]*Stored, error) {
	all := map[site.ID]*Stored{}
	for _, name := range c.in.Manifest.Folders {
		of, folder, ok := strings.Cut(name, "/")
		if !ok || folder == "" {
			return nil, fmt.Errorf("%s: %w", name, repository.ErrDamaged)
		}
		id := site.ID(of)
		if all[id] == nil {
			all[id] = &Stored{in: c.in, below: snapshot.InStorage + of + "/"}
		}
		all[id].Folders = append(all[id].Folders, folder)
	}
	return all, nil
}

// NewestStored returns what the newest backup of a site that includes files has of its storage; nil: it has no such backup. What was
// there before a restore is not what its owner wanted to have.
func (s *Backups) NewestStored(ctx context.Context, id site.ID) (*Stored, error) {
	b, err := scan(s.c.DB.QueryRow(ctx, `
		SELECT `+columns+` FROM backups WHERE site_id = $1 AND status = 'completed' AND includes LIKE '%files%' AND type <> $2
		ORDER BY id DESC LIMIT 1`, id, BeforeRestore))
	if fault.Is(err, fault.NotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	in, err := s.reader(ctx, b)
	if err != nil {
		return nil, err
	}
	return &Stored{Folders: in.Manifest.Folders, in: in, below: snapshot.InStorage}, nil
}
