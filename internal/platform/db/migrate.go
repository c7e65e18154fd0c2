package db

import (
	"bytes"
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"
	"github.com/pressly/goose/v3/lock"
	"golang.org/x/sys/unix"
)

//go:embed migrations/*.sql
var migrations embed.FS

// schema is what the migrations up to its version leave in a new database of SQLite: one transaction instead of one for each of
// them, which takes an eighth of the time. "go test ./internal/platform/db -run TestSchema -update" writes it; it may lag behind.
//
//go:embed schema.sql
var schema string

// Migrate brings the schema up to date: numbered files, forward only, each in its own
// transaction. Nodes that start at the same moment wait for each other. A schema newer
// than this program is left as it is: an upgrade that is taken back leaves one. It is an
// error where the program that wrote it says that this one can't work with it.
func (d *DB) Migrate(ctx context.Context) error {
	if half, err := d.half(ctx); err != nil || half {
		return errors.Join(err, errHalf)
	}
	return d.MigrateTo(ctx, 0)
}

// MigrateTo is Migrate up to a version, so that tests can make a database as an earlier
// program left it. 0 means the newest.
func (d *DB) MigrateTo(ctx context.Context, version int64) error {
	ctx = Patient(ctx, migrateTime)
	dir, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return err
	}
	if d.single {
		dir = forSQLite{dir}
	}
	dialect, options := goose.DialectSQLite3, []goose.ProviderOption{goose.WithDisableGlobalRegistry(true)}
	if !d.single {
		locker, err := lock.NewPostgresSessionLocker(lock.WithLockTimeout(1, 300)) // seconds between tries, tries
		if err != nil {
			return fmt.Errorf("migrate: %w", err)
		}
		dialect, options = goose.DialectPostgres, append(options, goose.WithSessionLocker(locker))
	}
	p, err := goose.NewProvider(dialect, d.write, dir, options...)
	if err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	have, err := p.GetDBVersion(ctx)
	if err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	sources := p.ListSources()
	newest := sources[len(sources)-1].Version
	if have > newest {
		d.marked.Store(true)
		return d.readable(ctx, have, newest)
	}
	if have >= cmp.Or(version, newest) {
		d.marked.Store(have == newest)
		return nil
	}
	unlock, err := d.lockDirectory(ctx)
	if err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	defer unlock()
	// What a migration sorts may be larger than memory.
	if err := d.temporary(ctx, "FILE"); err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	if have == 0 && version == 0 && d.single {
		err = d.create(ctx, sources)
	}
	if err == nil {
		_, err = p.UpTo(ctx, cmp.Or(version, newest))
	}
	if err := errors.Join(err, d.temporary(context.WithoutCancel(ctx), "MEMORY")); err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	if version != 0 && version < newest {
		return nil
	}
	d.marked.Store(true)
	if err := d.searchIndex(ctx); err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	return d.Write(ctx, func(tx *Tx) error {
		_, err := tx.Exec(ctx, `
			INSERT INTO schema_readers (id, schema_known) VALUES (1, $1)
			ON CONFLICT (id) DO UPDATE SET schema_known = excluded.schema_known`, OldestReader)
		return err
	})
}

// migrateTime is how long a statement of a migration may take on PostgreSQL.
const migrateTime = 24 * time.Hour

// forSQLite reads migrations for SQLite: before version 3.44, which is newer than the sqlite3 of Debian 12, it has string_agg as
// group_concat alone.
type forSQLite struct{ fs.FS }

func (f forSQLite) Open(name string) (fs.File, error) {
	file, err := f.FS.Open(name)
	if err != nil || filepath.Ext(name) != ".sql" {
		return file, err
	}
	defer file.Close()
	text, err := io.ReadAll(file)
	return &statements{File: file, Reader: bytes.NewReader(bytes.ReplaceAll(text, []byte("string_agg("), []byte("group_concat(")))}, err
}

// statements is a migration that is read from memory. The file that it was made of is closed.
type statements struct {
	fs.File
	*bytes.Reader
}

func (s *statements) Read(p []byte) (int, error) { return s.Reader.Read(p) }

// create makes a new database of SQLite as schema says, unless another process has migrated it meanwhile.
func (d *DB) create(ctx context.Context, sources []*goose.Source) error {
	of, err := schemaVersion()
	if err != nil {
		return err
	}
	versions, err := database.NewStore(goose.DialectSQLite3, goose.DefaultTablename)
	if err != nil {
		return err
	}
	tx, err := d.write.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if have, err := versions.GetLatestVersion(ctx, tx); err != nil || have > 0 {
		return err
	}
	if _, err := tx.ExecContext(ctx, schema); err != nil {
		return err
	}
	for _, s := range sources {
		if s.Version > of {
			break
		}
		if err := versions.Insert(ctx, tx, database.InsertRequest{Version: s.Version}); err != nil {
			return err
		}
	}
	return tx.Commit()
}

// schemaVersion returns that of the last migration in schema, as its first line says.
func schemaVersion() (version int64, err error) {
	if _, err := fmt.Sscanf(schema, "-- version %d\n", &version); err != nil {
		return 0, fmt.Errorf("schema.sql does not say its version: %w", err)
	}
	return version, nil
}

// OldestReader is the schema version of the oldest program that works with this program's schema: what came since only adds, so
// that an upgrade can be taken back without losing what was written meanwhile. A migration that takes something away raises it
// to its own number, and must come two releases after the last program that used what it takes.
const OldestReader = 240

// Newest returns the schema version that Migrate leads to.
func Newest() (int64, error) {
	files, err := migrations.ReadDir("migrations")
	if err != nil {
		return 0, err
	}
	number, _, _ := strings.Cut(files[len(files)-1].Name(), "_")
	return strconv.ParseInt(number, 10, 64)
}

// readable returns an error where a program that knows the schema up to newest can't work with the database's.
func (d *DB) readable(ctx context.Context, have, newest int64) error {
	var known int64
	err := d.QueryRow(ctx, `SELECT schema_known FROM schema_readers`).Scan(&known)
	if err == nil && known <= newest {
		return nil
	}
	return fmt.Errorf(
		"the database has schema version %d and this program knows only up to %d: use the newer slipway that wrote it",
		have, newest,
	)
}

// searchIndex makes the index that a search of many sites is counted with: without it SQLite reads every site of the account
// from the file, as a reader's cache doesn't hold them. PostgreSQL has them in memory, and its index rows hold 2,704 bytes at
// most, which a site's searchable text can exceed.
func (d *DB) searchIndex(ctx context.Context) error {
	if !d.single {
		return nil
	}
	_, err := d.write.ExecContext(ctx, "CREATE INDEX IF NOT EXISTS sites_search ON sites (owner_id, search, id) WHERE deleted_at = 0")
	return err
}

// temporary says where SQLite's writer puts what it needs for one statement only.
func (d *DB) temporary(ctx context.Context, where string) error {
	if !d.single {
		return nil
	}
	_, err := d.write.ExecContext(ctx, "PRAGMA temp_store = "+where)
	return err
}

// lockDirectory keeps other processes from migrating the same SQLite file: the command
// line runs beside a server. It locks the directory, because a lock of the file itself
// would be SQLite's. PostgreSQL has goose's advisory lock.
func (d *DB) lockDirectory(ctx context.Context) (unlock func(), err error) {
	if !d.single {
		return func() {}, nil
	}
	dir, err := os.Open(filepath.Dir(d.file()))
	if err != nil {
		return nil, err
	}
	for {
		err := unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() {
				_ = unix.Flock(int(dir.Fd()), unix.LOCK_UN) // a child that has been forked and not begun its program has it open, too
				dir.Close()
			}, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			dir.Close()
			return nil, fmt.Errorf("lock %s: %w", dir.Name(), err)
		}
		select {
		case <-ctx.Done():
			dir.Close()
			return nil, context.Cause(ctx)
		case <-time.After(20 * time.Millisecond):
		}
	}
}
