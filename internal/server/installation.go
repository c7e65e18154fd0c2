package server

import (
	"context"
	"io"
	"os"

	"slipway/internal/backup"
	"slipway/internal/blob"
	"slipway/internal/db"
	"slipway/internal/fault"
	"slipway/internal/recovery"
	"slipway/internal/site"
)

// installation returns what this installation consists of, and the repository at a place.
func (h *node) installation(store *blob.Store) func(to string) (*backup.Repository, backup.Source, error) {
	return func(to string) (*backup.Repository, backup.Source, error) {
		var s backup.Source
		if to == "" {
			to = h.s.Backup.To
		}
		if to == "" || h.s.Inside(to) {
			return nil, s, &fault.Error{Kind: fault.Invalid, Message: "No location for the backup", Details: "--to or the setting --backup-to must name a directory outside the data directory, best on another disk, or s3://…"}
		}
		repo, _, err := recovery.Open(h.s.Store, recovery.Settings{To: to, Recipients: h.s.Backup.Recipients}, h.seal, h.s.Log)
		if err != nil {
			return nil, s, err
		}
		scratch := h.s.Path("backup-tmp")
		if err := os.MkdirAll(scratch, 0o700); err != nil {
			return nil, s, err
		}
		s = backup.Source{Blobs: store, Scratch: scratch, Version: h.s.Version, Copy: h.db.CopyTo, Sites: h.allSites, Log: h.s.Log,
			Files: map[string]string{}, Databases: h.databasesByID}
		for _, name := range []string{"secrets.key", "mariadb/id", "root.pem"} {
			s.Files[name] = h.s.Path(name)
		}
		if h.s.Backup.To == "" && !h.s.Remote() {
			s.Objects = h.s.Path("backups")
		}
		if h.engine != nil {
			s.Storage, s.Hold = h.storageFolders, h.hold
		}
		return repo, s, nil
	}
}

func (h *node) allSites(ctx context.Context) ([]site.ID, error) {
	rows, err := h.db.Query(ctx, `SELECT id FROM open_sites ORDER BY id`)
	return db.Collect(rows, err, func(s db.Scanner) (id site.ID, err error) { return id, s.Scan(&id) })
}

// databasesByID lists the databases of a site and its previews by their ids, which stay when they are restored.
func (h *node) databasesByID(ctx context.Context, id site.ID) ([]backup.Database, error) {
	list, err := h.databases.AllOfSite(ctx, h.db, id)
	out := make([]backup.Database, 0, len(list))
	for _, x := range list {
		out = append(out, backup.Database{Name: string(x.ID), Place: x.Place(), Dump: func(ctx context.Context, w io.Writer) error { return h.databases.Dump(ctx, x.ID, w) }})
	}
	return out, err
}
