package snapshot

import (
	"context"
	"io"
	"maps"
	"slices"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/program/database"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/site"
)

// Storage is where sites' programs keep files, on a node that runs them: the engine of programs.
type Storage interface {
	// FetchStorage brings what StorageFolders lists up to date with what a site has stored, where that is elsewhere, and keeps it
	// there until the closer is closed. It may be called again for what has changed.
	FetchStorage(ctx context.Context, site site.ID) (io.Closer, error)
	// KeepStorage stores what was changed in the directories that the others return: all of it, or nothing.
	KeepStorage(ctx context.Context, site site.ID) error
	// StorageFolders returns the directories of a site's storage folders on this host, by their
	// names: paths below the project.
	StorageFolders(site site.ID) (map[string]string, error)
	// MakeStorage makes a storage folder that a site lacks.
	MakeStorage(ctx context.Context, site site.ID, name string) (dir string, err error)
	// Hold keeps a site's programs from writing until release is called.
	Hold(site site.ID) (release func())
}

// DatabaseServer holds the databases of sites. DatabasesOf returns package database's.
type DatabaseServer interface {
	// Unavailable says in words why no dump can be loaded on this node; empty: it can.
	Unavailable() string
	// OfSite lists the databases of a site by their names. It fails where one can't be read.
	OfSite(ctx context.Context, id site.ID) ([]Database, error)
	// AllOfSite lists the databases of a site and its previews by their ids, which stay when they
	// are restored.
	AllOfSite(ctx context.Context, id site.ID) ([]Database, error)
	// Dump writes a database as SQL, all as it was at the moment of the first byte.
	Dump(ctx context.Context, d Database, w io.Writer) error
	// Load loads a dump, and with check compares its tables with what Dump has read.
	Load(ctx context.Context, owner account.OwnerID, r io.Reader, check bool) (Loaded, error)
}

// Database is a database of a site.
type Database struct {
	Name  string
	Place int64 // in the site's list
	ID    database.ID
}

// Loaded is a dump in a database beside the site's own.
type Loaded interface {
	// Access is how a trial reaches it until it is put in place.
	Access() database.Access
	// PutTx makes it the site's database of that name.
	PutTx(ctx context.Context, tx *db.Tx, owner account.OwnerID, id site.ID, name string, place int64) error
	// CheckTables returns a fault unless it has all of these tables, and PutTables can put them.
	CheckTables(ctx context.Context, owner account.OwnerID, id site.ID, name string, tables []string) error
	// PutTables puts these tables in the place of those of the site's database of that name.
	PutTables(ctx context.Context, owner account.OwnerID, id site.ID, name string, tables []string) error
	// Drop does nothing after PutTx.
	Drop(ctx context.Context)
}

// databases are those of package database.
type databases struct {
	*database.Databases
	db *db.DB
}

// DatabasesOf returns the databases that a service keeps.
func DatabasesOf(d *database.Databases, in *db.DB) DatabaseServer { return databases{d, in} }

func (d databases) OfSite(ctx context.Context, id site.ID) ([]Database, error) {
	list, err := d.Databases.OfSite(ctx, id)
	out := make([]Database, 0, len(list))
	for _, x := range list {
		if x.Status != database.Active {
			return nil, fault.New(fault.Conflict, "database_not_active", "The database "+x.Name+" can't be backed up",
				"its status is "+string(x.Status))
		}
		out = append(out, Database{x.Name, x.Place(), x.ID})
	}
	return out, err
}

func (d databases) AllOfSite(ctx context.Context, id site.ID) ([]Database, error) {
	list, err := d.Databases.AllOfSite(ctx, d.db, id)
	out := make([]Database, 0, len(list))
	for _, x := range list {
		out = append(out, Database{string(x.ID), x.Place(), x.ID})
	}
	return out, err
}

func (d databases) Dump(ctx context.Context, x Database, w io.Writer) error {
	return d.Databases.Dump(ctx, x.ID, w)
}

func (d databases) Load(ctx context.Context, owner account.OwnerID, r io.Reader, check bool) (Loaded, error) {
	s, err := d.Databases.Load(ctx, owner, r, database.LoadOptions{Check: check})
	if err != nil {
		return nil, err
	}
	return loaded{s}, nil
}

type loaded struct{ *database.Scratch }

func (l loaded) PutTx(ctx context.Context, tx *db.Tx, owner account.OwnerID, id site.ID, name string, place int64) error {
	_, err := l.Scratch.PutTx(ctx, tx, owner, id, name, place)
	return err
}

// OfAll is a server of databases that lists those of previews too.
type OfAll struct{ DatabaseServer }

func (d OfAll) OfSite(ctx context.Context, id site.ID) ([]Database, error) {
	return d.AllOfSite(ctx, id)
}

// Folders lists the storage folders of a site by their names.
func Folders(s Storage, id site.ID) ([]Folder, error) {
	if s == nil {
		return nil, nil
	}
	dirs, err := s.StorageFolders(id)
	list := make([]Folder, 0, len(dirs))
	for _, name := range slices.Sorted(maps.Keys(dirs)) {
		list = append(list, Folder{Name: name, Dir: dirs[name]})
	}
	return list, err
}

// Folder is a storage folder of a site on the local disk.
type Folder struct {
	Name string // its path below the project
	Dir  string
}
