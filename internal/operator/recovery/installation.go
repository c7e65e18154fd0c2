package recovery

import (
	"context"
	"log/slog"
	"os"

	"slipway/internal/backup/backup"
	"slipway/internal/backup/repository"
	"slipway/internal/backup/snapshot"
	"slipway/internal/operator/installation"
	"slipway/internal/platform/blob"
	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/seal"
	"slipway/internal/tenant/site"
)

// Installation is the installation of a service that runs, as its backups take it.
type Installation struct {
	Store     installation.Store
	Settings  Settings
	DB        *db.DB
	Seal      *seal.Sealer
	Blobs     *blob.Store
	Databases snapshot.DatabaseServer
	Storage   snapshot.Storage // nil: this node runs no programs
	Version   string
	Log       *slog.Logger
}

// Open returns the repository at a place, the one of the settings where that is empty, and what the
// installation consists of.
func (i *Installation) Open(to string) (*repository.Repository, backup.Source, error) {
	var s backup.Source
	if to == "" {
		to = i.Settings.To
	}
	if to == "" || i.Store.Inside(to) {
		return nil, s, &fault.Error{
			Kind:    fault.Invalid,
			Message: "No location for the backup",
			Details: "--to or the setting --backup-to must name a directory outside the data directory, best on another disk, or s3://…",
		}
	}
	repo, _, err := Open(i.Store, Settings{To: to, Recipients: i.Settings.Recipients}, i.Seal, i.Log)
	if err != nil {
		return nil, s, err
	}
	scratch := i.Store.Path("backup-tmp")
	if err := os.MkdirAll(scratch, 0o700); err != nil {
		return nil, s, err
	}
	s = backup.Source{
		Blobs:     i.Blobs,
		Scratch:   scratch,
		Version:   i.Version,
		Control:   control{i.DB},
		Storage:   i.Storage,
		Databases: i.Databases,
		Log:       i.Log,
		Files:     map[string]string{},
	}
	for _, name := range []string{"secrets.key", "node-id", "mariadb/id", "root.pem"} {
		s.Files[name] = i.Store.Path(name)
	}
	if i.Settings.To == "" && !i.Store.Remote() {
		s.Objects = i.Store.Path("backups")
	}
	return repo, s, nil
}

// Read opens the repository at a place with the installation's own key, until done is called.
func (i *Installation) Read(from string) (*repository.Repository, func(), error) {
	return Place{From: from}.open(i.Store, i.Log)
}

// control is the installation's own database.
type control struct{ *db.DB }

// Sites lists the sites that are not deleted.
func (c control) Sites(ctx context.Context) ([]site.ID, error) {
	rows, err := c.Query(ctx, `SELECT id FROM open_sites ORDER BY id`)
	return db.Collect(rows, err, func(s db.Scanner) (id site.ID, err error) { return id, s.Scan(&id) })
}
