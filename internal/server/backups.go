package server

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"

	"slipway/internal/account"
	"slipway/internal/backup"
	"slipway/internal/blob"
	"slipway/internal/database"
	"slipway/internal/db"
	"slipway/internal/deployment"
	"slipway/internal/fault"
	"slipway/internal/operation"
	"slipway/internal/recovery"
	"slipway/internal/site"
	"slipway/internal/wordpress"
)

// backupConfig tells the service of backups what it knows nobody of.
func (h *node) backupConfig(store *blob.Store, limits *account.Limits) (backup.Config, error) {
	c := backup.Config{DB: h.db, Limits: limits, Sites: h.sites, Deployments: h.deployments, Hooks: h.webhooks, Operations: h.operations, Blobs: store,
		Installation: h.installation(store), Every: h.s.Backup.Every, Alarm: h.s.Backup.Alarm, Scratch: h.s.Path("backup-tmp"), Log: h.s.Log, Mail: h.accounts}
	var err error
	if c.Repository, c.Why, err = recovery.Open(h.s.Store, h.s.Backup, h.seal, h.s.Log); err != nil {
		return c, err
	}
	c.Databases, c.Renew = h.siteDatabases, h.renew
	c.Extra, c.ExtraTx = h.exportWordPress, h.importWordPressTx
	c.AdoptTx = func(ctx context.Context, tx *db.Tx, s site.Site, from site.ID, o operation.ID, result map[string]any) (bool, error) {
		return h.wordpress.AdoptTx(ctx, tx, s, from, o, result) // made after the backups
	}
	if h.databases.Unavailable() == "" {
		c.Load = h.loadDatabase
	}
	if e := h.engine; e != nil {
		c.Room = func(ctx context.Context, id site.ID, live *deployment.Live) (int64, error) {
			return h.launch.Room(ctx, id, live)
		}
		c.Storage, c.Hold = h.storageFolders, h.hold
		c.Trial = func(ctx context.Context) (*backup.Trial, error) { return h.launch.Trial(ctx) }
		c.MakeFolder = func(ctx context.Context, id site.ID, name string) (backup.Folder, error) {
			dir, err := e.MakeStorage(ctx, string(id), name)
			return backup.Folder{Name: name, Dir: dir}, err
		}
	}
	if err := os.RemoveAll(c.Scratch); err != nil { // what a crash left there
		return c, fmt.Errorf("clear scratch space of backups: %w", err)
	}
	return c, os.MkdirAll(c.Scratch, 0o700)
}

func (h *node) storageFolders(_ context.Context, id site.ID) ([]backup.Folder, error) {
	folders, err := h.engine.StorageFolders(string(id))
	list := make([]backup.Folder, 0, len(folders))
	for _, name := range slices.Sorted(maps.Keys(folders)) {
		list = append(list, backup.Folder{Name: name, Dir: folders[name]})
	}
	return list, err
}

func (h *node) hold(_ context.Context, id site.ID) (release func(), err error) {
	return h.engine.Hold(string(id)), nil
}

// exportWordPress returns what a backup has of a WordPress besides files and database.
func (h *node) exportWordPress(ctx context.Context, id site.ID) (json.RawMessage, error) {
	e, err := h.wordpress.Export(ctx, id)
	if err != nil || e == nil {
		return nil, err
	}
	return json.Marshal(e)
}

// importWordPressTx is the inverse of exportWordPress.
func (h *node) importWordPressTx(ctx context.Context, tx *db.Tx, s site.Site, extra json.RawMessage, of backup.Restored) error {
	if s.Type != site.WordPress {
		return nil
	}
	var e wordpress.Export
	if err := json.Unmarshal(extra, &e); err != nil {
		return fmt.Errorf("read WordPress of backup: %w", err)
	}
	return h.wordpress.ImportTx(ctx, tx, s, e, of)
}

// renew ends a site's programs and forgets what is cached of it.
func (h *node) renew(ctx context.Context, id site.ID) error {
	h.apps.Renew(string(id))
	return h.db.Write(ctx, func(tx *db.Tx) error {
		x, err := h.sites.ByID(ctx, tx, id)
		if err == nil && x.Type == site.WordPress {
			err = h.wordpress.PurgeTx(ctx, tx, x.Owner, id, nil)
		}
		if fault.Is(err, fault.NotFound) {
			return nil
		}
		return err
	})
}

// siteDatabases lists a site's databases for a backup, which fails where one can't be read.
func (h *node) siteDatabases(ctx context.Context, id site.ID) ([]backup.Database, error) {
	list, err := h.databases.OfSite(ctx, id)
	out := make([]backup.Database, 0, len(list))
	for _, x := range list {
		if x.Status != database.Active {
			return nil, &fault.Error{Kind: fault.Conflict, Message: "The database " + x.Name + " can't be backed up", Details: "its status is " + string(x.Status), Code: "database_not_active"}
		}
		out = append(out, backup.Database{Name: x.Name, Place: x.Place(), Dump: func(ctx context.Context, w io.Writer) error { return h.databases.Dump(ctx, x.ID, w) }})
	}
	return out, err
}

// loadDatabase loads a dump into a database of its own.
func (h *node) loadDatabase(ctx context.Context, owner account.OwnerID, r io.Reader, check bool) (backup.Loaded, error) {
	x, err := h.databases.Load(ctx, owner, r, database.LoadOptions{Check: check})
	if err != nil {
		return backup.Loaded{}, err
	}
	put := func(ctx context.Context, tx *db.Tx, owner account.OwnerID, id site.ID, name string, place int64) error {
		_, err := x.PutTx(ctx, tx, owner, id, name, place)
		return err
	}
	a := x.Access()
	return backup.Loaded{Schema: a.Schema, Password: a.Password, PutTx: put, Drop: x.Drop}, nil
}
