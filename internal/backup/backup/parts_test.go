package backup

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"time"

	"slipway/internal/backup/repository"
	"slipway/internal/backup/snapshot"
	"slipway/internal/deploy/deployment"
	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/program/database"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/operation"
	"slipway/internal/tenant/site"
)

// stored is a fake storage of sites.
type stored struct {
	list func(id site.ID) ([]snapshot.Folder, error)
	hold func(id site.ID) (release func())
	make func(id site.ID, name string) (snapshot.Folder, error) // nil: not supported
}

func (d *stored) FetchStorage(context.Context, site.ID) (io.Closer, error) {
	return io.NopCloser(nil), nil
}
func (d *stored) KeepStorage(context.Context, site.ID) error { return nil }
func (d *stored) StorageFolders(id site.ID) (map[string]string, error) {
	list, err := d.list(id)
	out := map[string]string{}
	for _, f := range list {
		out[f.Name] = f.Dir
	}
	return out, err
}

func (d *stored) MakeStorage(_ context.Context, id site.ID, name string) (string, error) {
	if d.make == nil {
		return "", errors.New("no folder can be made")
	}
	f, err := d.make(id, name)
	return f.Dir, err
}

func (d *stored) Hold(id site.ID) (release func()) { return d.hold(id) }

// databaseServer is a fake database server whose databases have dumps.
type databaseServer struct {
	of   func(id site.ID) ([]dumped, error)
	load func(owner account.OwnerID, in io.Reader, check bool) (snapshot.Loaded, error)
}

// dumped is a database and its dump.
type dumped struct {
	Name  string
	Place int64
	Dump  func(ctx context.Context, out io.Writer) error
}

func (s *databaseServer) Unavailable() string {
	if s.load == nil {
		return "no database can be loaded"
	}
	return ""
}

func (s *databaseServer) OfSite(_ context.Context, id site.ID) ([]snapshot.Database, error) {
	list, err := s.of(id)
	var out []snapshot.Database
	for _, d := range list {
		out = append(out, snapshot.Database{Name: d.Name, Place: d.Place, ID: database.ID(id)})
	}
	return out, err
}

func (s *databaseServer) AllOfSite(ctx context.Context, id site.ID) ([]snapshot.Database, error) {
	return s.OfSite(ctx, id)
}

func (s *databaseServer) Dump(ctx context.Context, d snapshot.Database, w io.Writer) error {
	list, err := s.of(site.ID(d.ID))
	if err != nil {
		return err
	}
	for _, x := range list {
		if x.Name == d.Name {
			return x.Dump(ctx, w)
		}
	}
	return errors.New("no such database")
}

func (s *databaseServer) Load(_ context.Context, owner account.OwnerID, r io.Reader, check bool) (snapshot.Loaded, error) {
	return s.load(owner, r, check)
}

// scratch is a loaded dump.
type scratch struct {
	put  func(ctx context.Context, tx *db.Tx, owner account.OwnerID, id site.ID, name string, place int64) error
	drop func()
	// tables puts tables by themselves. Optional: nil has none.
	tables func(owner account.OwnerID, id site.ID, name string, list []string) error
}

func (s *scratch) Access() database.Access { return database.Access{} }
func (s *scratch) Drop(context.Context)    { s.drop() }
func (s *scratch) PutTx(ctx context.Context, tx *db.Tx, owner account.OwnerID, id site.ID, name string, place int64) error {
	return s.put(ctx, tx, owner, id, name, place)
}

// CheckTables knows the table posts alone.
func (s *scratch) CheckTables(_ context.Context, _ account.OwnerID, _ site.ID, _ string, list []string) error {
	if !slices.Equal(list, []string{"posts"}) {
		return fault.New(fault.NotFound, "table_not_found", "The backup has no such table", "it has posts")
	}
	return nil
}

func (s *scratch) PutTables(_ context.Context, owner account.OwnerID, id site.ID, name string, list []string) error {
	return s.tables(owner, id, name, list)
}

// extra is a fake WordPress: its data, and a callback for restores.
type extra struct {
	text  string
	toldf func(tx *db.Tx, s site.Site, e json.RawMessage, of Restored) error // Optional.
}

func (e extra) Export(context.Context, site.ID) (json.RawMessage, error) {
	return json.RawMessage(e.text), nil
}

func (e extra) ImportTx(_ context.Context, tx *db.Tx, s site.Site, text json.RawMessage, of Restored) error {
	if e.toldf == nil {
		return nil
	}
	return e.toldf(tx, s, text, of)
}

func (extra) AdoptTx(context.Context, *db.Tx, site.Site, site.ID, operation.ID, map[string]any) (bool, error) {
	return false, nil
}

// programs are the fake programs of sites. Each field is optional.
type programs struct {
	room  func() int64
	renew func(id site.ID) error
	trial func() (Trial, error)
}

func (p *programs) Room(context.Context, site.ID, *deployment.Live) (int64, error) {
	if p.room == nil {
		return 1 << 40, nil
	}
	return p.room(), nil
}

func (p *programs) Renew(_ context.Context, id site.ID) error {
	if p.renew == nil {
		return nil
	}
	return p.renew(id)
}

func (p *programs) Quiet(site.ID, time.Duration) (release func()) { return func() {} }

func (p *programs) Trial(context.Context) (Trial, error) {
	if p.trial == nil {
		return noTrial{}, nil
	}
	return p.trial()
}

// noTrial is a trial that accepts everything and returns nothing.
type noTrial struct{}

func (noTrial) Folder(context.Context, string) (snapshot.Folder, error) {
	return snapshot.Folder{}, errors.New("no trial")
}
func (noTrial) Answer(context.Context, Tried) (string, error) { return "", nil }
func (noTrial) Close()                                        {}

// everything is a fake installation: a text and sites.
type everything struct {
	copy  func(path string) (string, error)
	sites []site.ID
}

func (c everything) CopyTo(_ context.Context, path string) (string, error) { return c.copy(path) }
func (c everything) Sites(context.Context) ([]site.ID, error)              { return c.sites, nil }

// opens is an Installation implemented by a function.
type opens func(to string) (*repository.Repository, Source, error)

func (f opens) Open(to string) (*repository.Repository, Source, error) { return f(to) }
