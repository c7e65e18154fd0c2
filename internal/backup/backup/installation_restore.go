package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"slipway/internal/platform/id"

	"slipway/internal/backup/repository"
	"slipway/internal/backup/snapshot"
	"slipway/internal/platform/blob"
	"slipway/internal/platform/fault"
)

// CopyReader reads a backup of an installation. It is for one goroutine.
type CopyReader struct {
	Copy Copy
	in   *snapshot.Reader
}

// OpenCopy opens a backup of the installation; the newest where id is empty.
func OpenCopy(ctx context.Context, r *repository.Repository, id ID) (*CopyReader, error) {
	list, _, err := copies(ctx, r) // others may be damaged
	if err != nil {
		return nil, err
	}
	for _, c := range list {
		if id != "" && c.ID != id {
			continue
		}
		m, err := snapshot.Load(ctx, r, c.Manifest)
		if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("its list of files is missing: %w", repository.ErrDamaged)
		}
		if err != nil {
			return nil, fmt.Errorf("open backup %s: %w", c.ID, err)
		}
		return &CopyReader{c, snapshot.NewReader(r, "", m)}, nil
	}
	if id != "" {
		return nil, &fault.Error{
			Kind:    fault.NotFound,
			Message: "There is no backup " + string(id) + " at this location",
			Details: "slipway backup list shows which there are",
		}
	}
	return nil, &fault.Error{
		Kind:    fault.NotFound,
		Message: "No backup of an installation found at this location",
		Details: "create one with slipway backup create",
	}
}

// Databases is how many databases of sites it holds.
func (c *CopyReader) Databases() int { return len(c.in.Manifest.Under(snapshot.InDatabase)) }

// Check reads all of it, and compares the digest of every file.
func (c *CopyReader) Check(ctx context.Context, progress func(done, all int64)) error {
	var done int64
	all := c.in.Manifest.Size()
	for _, f := range c.in.Manifest.Files {
		if f.Link != "" {
			continue
		}
		if err := c.in.Copy(ctx, io.Discard, f); err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("%s: a stored object is missing: %w", f.Path, repository.ErrDamaged)
			}
			return err
		}
		done += f.Size
		progress(done, all)
	}
	return nil
}

// Control writes the installation's own database to a new file and says in which dialect
// it is.
func (c *CopyReader) Control(ctx context.Context, at string) (dialect string, err error) {
	for name, dialect := range map[string]string{controlSQL: "sqlite", controlPG: "postgres"} {
		if f, ok := c.in.Manifest.File(inControl + name); ok {
			return dialect, c.write(ctx, f, at)
		}
	}
	return "", fmt.Errorf("the installation's database is missing: %w", repository.ErrDamaged)
}

// Dialect says in which dialect the installation's own database is.
func (c *CopyReader) Dialect() string {
	if _, ok := c.in.Manifest.File(inControl + controlPG); ok {
		return "postgres"
	}
	return "sqlite"
}

func (c *CopyReader) write(ctx context.Context, f repository.File, at string) error {
	out, err := os.OpenFile(at, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(c.in.Copy(ctx, out, f), out.Close())
}

// Files writes what lay in the data directory, the objects of sites' backups included.
func (c *CopyReader) Files(ctx context.Context, dir string) error {
	for folder, below := range map[string]string{inFiles: "", inObjects: "backups"} {
		for _, f := range c.in.Manifest.Under(folder) {
			if !filepath.IsLocal(f.Path) {
				return fmt.Errorf("%s: %w", f.Path, repository.ErrDamaged)
			}
			at := filepath.Join(dir, below, f.Path)
			if err := os.MkdirAll(filepath.Dir(at), 0o700); err != nil {
				return err
			}
			f.Path = folder + f.Path
			if err := c.write(ctx, f, at); err != nil {
				return err
			}
		}
	}
	return snapshot.SyncAll(dir)
}

// PutBlobs puts the files of releases and programs into a store.
func (c *CopyReader) PutBlobs(ctx context.Context, store *blob.Store) error {
	return c.in.PutBlobs(ctx, store)
}

// Storage writes the storage folders of sites; place says which directory each is. They
// belong to who runs this until the site's program starts.
func (c *CopyReader) Storage(ctx context.Context, place func(site, folder string) (dir string, err error)) error {
	for _, name := range c.in.Manifest.Folders {
		site, folder, ok := strings.Cut(name, "/")
		if !ok || folder == "" {
			return fmt.Errorf("%s: %w", name, repository.ErrDamaged)
		}
		dir, err := place(site, folder)
		if err != nil {
			return err
		}
		if err := os.MkdirAll(filepath.Dir(dir), 0o711); err != nil {
			return err
		}
		files := c.in.Manifest.Under(snapshot.InStorage + path.Clean(name) + "/")
		w, err := snapshot.Prepare(ctx, c.in, snapshot.Folder{Name: folder, Dir: dir}, files, false)
		if err != nil {
			w.Drop()
			return fmt.Errorf("storage of %s: %w", site, err)
		}
		if err := os.Chmod(w.Next, 0o755); err != nil {
			return err
		}
		if err := os.Rename(w.Next, dir); err != nil {
			return err
		}
	}
	return nil
}

// LoadDatabases hands the dump of each site's database to load, by the database's id.
func (c *CopyReader) LoadDatabases(ctx context.Context, load func(id id.Database, r io.Reader) error) error {
	for _, f := range c.in.Manifest.Under(snapshot.InDatabase) {
		id := id.Database(strings.TrimSuffix(path.Base(f.Path), ".sql"))
		f.Path = snapshot.InDatabase + f.Path
		if err := c.in.Pipe(ctx, f, func(r io.Reader) error { return load(id, r) }); err != nil {
			return fmt.Errorf("database %s: %w", id, err)
		}
	}
	return nil
}

// Verified notes in the repository that the backup could be restored just now, or that it is damaged.
func (c *CopyReader) Verified(ctx context.Context, whole bool) error {
	r, now := c.in.Repository, time.Now().UTC()
	if !whole {
		return r.PutNamed(ctx, damagedKind, string(c.Copy.ID), now)
	}
	return errors.Join(r.PutNamed(ctx, verifiedKind, string(c.Copy.ID), now), r.DeleteNamed(ctx, damagedKind, string(c.Copy.ID)))
}
