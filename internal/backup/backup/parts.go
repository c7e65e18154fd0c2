package backup

import (
	"context"
	"encoding/json"
	"io"

	"slipway/internal/deploy/deployment"
	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/program/database"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/operation"
	"slipway/internal/tenant/site"
)

// Storage is where sites' programs keep files, on a node that runs them: the engine of programs.
type Storage interface {
	// StorageFolders returns the directories of a site's storage folders on this host, by their
	// names: paths below the project.
	StorageFolders(site string) (map[string]string, error)
	// MakeStorage makes a storage folder that a site lacks.
	MakeStorage(ctx context.Context, site, name string) (dir string, err error)
	// Hold keeps a site's programs from writing until release is called.
	Hold(site string) (release func())
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
	id    database.ID
}

// Loaded is a dump in a database beside the site's own.
type Loaded interface {
	// Access is how a trial reaches it until it is put in place.
	Access() database.Access
	// PutTx makes it the site's database of that name.
	PutTx(ctx context.Context, tx *db.Tx, owner account.OwnerID, id site.ID, name string, place int64) error
	// Drop does nothing after PutTx.
	Drop(ctx context.Context)
}

// WordPress knows what a WordPress has besides files and a database. Package wordpress
// stands on this one.
type WordPress interface {
	// Export returns what must be known of a site's WordPress to bring it back; nil: it is none.
	Export(ctx context.Context, id site.ID) (json.RawMessage, error)
	// ImportTx gives a site what of it belongs to what is restored in the same transaction.
	ImportTx(ctx context.Context, tx *db.Tx, s site.Site, e json.RawMessage, of Restored) error
	// AdoptTx begins to make databases that were another site's this one's own, and goes on with
	// the restore's operation, which ends with the result. It returns false where there is
	// nothing to do.
	AdoptTx(ctx context.Context, tx *db.Tx, s site.Site, from site.ID, o operation.ID, result map[string]any) (begun bool, err error)
}

// Programs are the programs of sites. Package launch, which stands on this one, says what they run.
type Programs interface {
	// Room returns how many bytes the storage of a site may hold; live is what it serves once
	// it is restored, nil where that doesn't change.
	Room(ctx context.Context, id site.ID, live *deployment.Live) (int64, error)
	// Renew ends a site's programs, which start with the next request: what they stand on
	// has been replaced.
	Renew(ctx context.Context, id site.ID) error
	// Trial makes a place in which what a backup holds runs once it is verified.
	Trial(ctx context.Context) (Trial, error)
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
			return nil, &fault.Error{
				Kind:    fault.Conflict,
				Message: "The database " + x.Name + " can't be backed up",
				Details: "its status is " + string(x.Status),
				Code:    "database_not_active",
			}
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
	return d.Databases.Dump(ctx, x.id, w)
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

// ofAll is a server of databases that lists those of previews too.
type ofAll struct{ DatabaseServer }

func (d ofAll) OfSite(ctx context.Context, id site.ID) ([]Database, error) {
	return d.AllOfSite(ctx, id)
}

// folders lists the storage folders of a site by their names.
func folders(s Storage, id site.ID) ([]Folder, error) {
	if s == nil {
		return nil, nil
	}
	dirs, err := s.StorageFolders(string(id))
	list := make([]Folder, 0, len(dirs))
	for _, name := range sortedKeys(dirs) {
		list = append(list, Folder{Name: name, Dir: dirs[name]})
	}
	return list, err
}
