package recovery

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"slipway/internal/backup/backup"
	"slipway/internal/backup/repository"
	"slipway/internal/operator/installation"
	"slipway/internal/platform/db"
	"slipway/internal/platform/disk"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/gc"
	"slipway/internal/platform/node"
	"slipway/internal/platform/sandbox"
	"slipway/internal/platform/seal"
	"slipway/internal/platform/text"
	"slipway/internal/program/database"
	"slipway/internal/program/placement"
	"slipway/internal/program/runtime"
	"slipway/internal/tenant/site"
)

// restoring is the file of a data directory whose restore has not ended.
const restoring = "restore.incomplete"

// Verify proves that a backup of the installation can be restored: all of it is read,
// its database is opened and checked, and each site's database is loaded into a server of
// its own and compared. Nothing of the installation is touched.
func Verify(ctx context.Context, s installation.Store, p Place, id backup.ID, mariaDB string, out io.Writer) error {
	repo, done, err := p.open(s, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	defer done()
	c, err := backup.OpenCopy(ctx, repo, id)
	if err != nil {
		return fault.Sentence(err)
	}
	fmt.Fprintf(out, "Reading %s of %s\n", text.Size(c.Copy.Size), c.Copy.ID)
	said := time.Now()
	if err := c.Check(ctx, func(done, all int64) {
		if time.Since(said) > 5*time.Second {
			said = time.Now()
			fmt.Fprintf(out, "%s of %s\n", text.Size(done), text.Size(all))
		}
	}); err != nil {
		return damagedBackup(err)
	}
	if c.Dialect() != "sqlite" {
		fmt.Fprintln(
			out,
			"All files are complete. The installation's database is PostgreSQL: only a restore with --database proves that it loads",
		)
		return nil
	}
	dir, err := os.MkdirTemp("", "slipway-verify-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o711); err != nil {
		return err
	}
	to := installation.Store{DataDir: dir}
	if err := c.Files(ctx, dir); err != nil {
		return damagedBackup(err)
	}
	d, sealer, err := openRestored(ctx, to, c)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := loadDatabases(ctx, c, to, d, sealer, mariaDB, out); err != nil {
		return err
	}
	fmt.Fprintf(out, "%s can be restored: %d databases were loaded and compared\n", c.Copy.ID, c.Databases())
	return nil
}

func damagedBackup(err error) error {
	if errors.Is(err, repository.ErrDamaged) {
		return fmt.Errorf("the backup can't be restored: %w", err)
	}
	return fault.Sentence(err)
}

// openRestored writes the installation's database into the data directory and opens it.
func openRestored(ctx context.Context, s installation.Store, c *backup.CopyReader) (*db.DB, *seal.Sealer, error) {
	at := s.Path("slipway.db")
	if s.Database != "" {
		at = s.Path("backup-tmp.sql")
		defer os.Remove(at)
	}
	if _, err := c.Control(ctx, at); err != nil {
		return nil, nil, damagedBackup(err)
	}
	if s.Database != "" {
		f, err := os.Open(at)
		if err != nil {
			return nil, nil, err
		}
		defer f.Close()
		if err := db.LoadPostgres(ctx, s.Database, f); err != nil {
			return nil, nil, fmt.Errorf("load the installation's database: %w", err)
		}
	}
	d, sealer, err := s.Open(ctx, nil)
	if err != nil {
		return nil, nil, err
	}
	if err := d.Integrity(ctx); err != nil {
		d.Close()
		return nil, nil, fmt.Errorf("the installation's database: %w", err)
	}
	return d, sealer, nil
}

// Target says where what doesn't lie in the data directory is restored to.
type Target struct {
	MariaDB   string // the operator's server; empty: private ones
	NoStorage bool   // what sites store is left out: RestoreStorage puts it into volumes
}

// Restore makes an installation of a backup, in a data directory that is empty.
func Restore(ctx context.Context, s installation.Store, p Place, id backup.ID, to Target, out io.Writer) error {
	if p.Key == "" && p.Identity == "" {
		return errors.New(
			"name what opens the backup: --key with the old installation's secrets.key, or --identity with an identity of age",
		)
	}
	repo, done, err := p.open(s, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	defer done()
	c, err := backup.OpenCopy(ctx, repo, id)
	if err != nil {
		return fault.Sentence(err)
	}
	switch {
	case c.Dialect() == "postgres" && s.Database == "":
		return errors.New("the backup's database is of PostgreSQL: name an empty one with --database")
	case c.Dialect() == "sqlite" && s.Database != "":
		return errors.New("the backup's database is SQLite: leave out --database")
	case c.Databases() > 0 && to.MariaDB == "" && database.Missing() != "":
		return errors.New("the backup has databases of sites: " + database.Missing())
	}
	if err := begin(s); err != nil {
		return err
	}
	unlock, err := s.Lock()
	if err != nil {
		return err
	}
	defer unlock()
	step := func(format string, args ...any) { fmt.Fprintf(out, format+"\n", args...) }
	step("Restoring %s of %s: %s", c.Copy.ID, c.Copy.At.UTC().Format(time.DateTime), text.Size(c.Copy.Size))
	if err := c.Files(ctx, s.DataDir); err != nil {
		return damagedBackup(err)
	}
	d, sealer, err := openRestored(ctx, s, c)
	if err != nil {
		return err
	}
	defer d.Close()
	// The sites' storage comes into the data directory, the nodes that had their programs are others, and the backup itself has ended.
	if err := errors.Join(node.Unmark(ctx, d), placement.Clear(ctx, d), backup.EndCopied(ctx, d)); err != nil {
		return err
	}
	step("Restoring files of releases")
	store, err := s.OpenBlobs(gc.NewRecord(d), slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	defer store.Close()
	if err := c.PutBlobs(ctx, store); err != nil {
		return damagedBackup(err)
	}
	if !to.NoStorage {
		step("Restoring sites' storage")
		if err := putStorage(ctx, c, s); err != nil {
			return damagedBackup(err)
		}
	}
	if err := loadDatabases(ctx, c, s, d, sealer, to.MariaDB, out); err != nil {
		return err
	}
	// What was restored is on the disk before the mark that it is incomplete goes.
	if err := errors.Join(disk.SyncAll(s.DataDir), os.Remove(s.Path(restoring)), disk.Sync(s.DataDir)); err != nil {
		return err
	}
	for _, p := range c.Copy.Problems {
		step("Missing in the backup: %s", p)
	}
	step("Restored. Start it with the settings of the old installation: slipway serve --data-dir %s …", s.DataDir)
	if to.NoStorage {
		step("What sites store was left out: run slipway backup restore-storage --from … --id %s once it runs", c.Copy.ID)
	}
	return nil
}

// putStorage writes what sites store into the data directory.
func putStorage(ctx context.Context, c *backup.CopyReader, s installation.Store) error {
	return c.Storage(ctx, func(site, folder string) (string, error) {
		if strings.ContainsAny(site, "/.\x00") || site == "" {
			return "", repository.ErrDamaged
		}
		return filepath.Abs(s.Path("storage", site, runtime.StorageName(folder)))
	})
}

// begin makes an empty data directory, or empties one whose restore was interrupted.
func begin(s installation.Store) error {
	if err := os.MkdirAll(s.DataDir, 0o700); err != nil {
		return fmt.Errorf("data directory: %w", err)
	}
	entries, err := os.ReadDir(s.DataDir)
	if err != nil {
		return fmt.Errorf("data directory: %w", err)
	}
	if len(entries) > 0 {
		if _, err := os.Stat(s.Path(restoring)); err != nil {
			return fmt.Errorf("%s is not empty: a restore needs a new data directory, so that nothing is overwritten", s.DataDir)
		}
		for _, e := range entries {
			if e.Name() == restoring || e.Name() == "serve.lock" {
				continue
			}
			if err := os.RemoveAll(s.Path(e.Name())); err != nil {
				return fmt.Errorf("data directory: %w", err)
			}
		}
	}
	return disk.Write(s.Path(restoring), []byte("slipway backup restore has not ended; run it again\n"), 0o600)
}

// Interrupted says whether the data directory is half restored.
func Interrupted(s installation.Store) error {
	if _, err := os.Stat(s.Path(restoring)); err == nil {
		return fmt.Errorf("the restore into %s was interrupted: run slipway backup restore again", s.DataDir)
	}
	return nil
}

// loadDatabases loads the databases of sites, into the data directory's own server or the
// operator's, and compares them.
func loadDatabases(
	ctx context.Context,
	c *backup.CopyReader,
	s installation.Store,
	d *db.DB,
	sealer *seal.Sealer,
	mariaDB string,
	out io.Writer,
) error {
	if c.Databases() == 0 {
		return nil
	}
	fmt.Fprintf(out, "Loading %d databases\n", c.Databases())
	dir, err := filepath.Abs(s.Path("mariadb"))
	if err != nil {
		return err
	}
	if err := errors.Join(os.MkdirAll(dir, 0o711), os.Chmod(dir, 0o711)); err != nil { // the server has another identity
		return err
	}
	boxes, err := filepath.Abs(s.Path("builds", "sandbox"))
	if err != nil {
		return err
	}
	runner, err := sandbox.New(sandbox.Config{Dir: boxes, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	databases, err := database.New(database.Config{
		DB:       d,
		Sites:    site.New(site.Config{DB: d, Seal: sealer}),
		Seal:     sealer,
		Dir:      dir,
		Runner:   runner,
		UID:      installation.DatabaseUID,
		FirstUID: installation.FirstDatabaseUID,
		UIDs:     installation.DatabaseUIDs,
		External: mariaDB,
		Size:     1 << 50,
		Log:      slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	if why := databases.Unavailable(); why != "" {
		return errors.New("the backup has databases of sites: " + why)
	}
	life, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	// uncaught: a command, which ends with it
	go func() { defer close(done); _ = databases.Run(life) }()
	err = c.LoadDatabases(ctx, func(id database.ID, r io.Reader) error {
		err := databases.Refill(ctx, id, r)
		if fault.Is(err, fault.NotFound) {
			fmt.Fprintf(out, "The database %s was deleted while the backup was taken\n", id)
			_, err = io.Copy(io.Discard, r)
		}
		return err
	})
	stop()
	<-done
	return damagedBackup(err)
}
