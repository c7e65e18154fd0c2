// Package installation owns where an installation's data lies: its data directory, its
// database, its files and its key, and which process may serve from them.
//
// Any process may open them, also beside one that serves: commands do. What the data says is
// for the services to know.
package installation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"slipway/internal/platform/blob"
	"slipway/internal/platform/db"
	"slipway/internal/platform/disk"
	"slipway/internal/platform/node"
	"slipway/internal/platform/seal"
)

// Store says where an installation's data is.
type Store struct {
	DataDir  string
	Database string // postgres://…; empty: SQLite in DataDir
	Blobs    string // s3://… or a directory; empty: in DataDir. It may hold credentials: never print it.
	Redis    string // redis[s]://… that sites' programs reach; empty: none. It may hold credentials: never print it.
	Storage  string // directory of sites' storage that all nodes mount; empty: in DataDir

	BlobCache int // MiB of the disk that copies of remote blobs may take. Optional: 0 means 2048.
}

// Path is the path of something in the data directory.
func (s Store) Path(elem ...string) string {
	return filepath.Join(append([]string{s.DataDir}, elem...)...)
}

// Scratch returns a directory for what is on its way, empty: what a crash left there is gone.
func (s Store) Scratch(name string) (string, error) {
	dir := s.Path(name)
	if err := os.RemoveAll(dir); err != nil {
		return "", fmt.Errorf("clear %s: %w", name, err)
	}
	return dir, os.MkdirAll(dir, 0o700)
}

// Reachable checks an external database before setup writes anything.
func (s Store) Reachable(ctx context.Context) error {
	if s.Database == "" {
		return nil
	}
	d, err := db.Open(ctx, db.Config{URL: s.Database})
	if err != nil {
		return err
	}
	return d.Close()
}

// Open opens and migrates the database and reads the secrets key. Any process may, also
// beside one that serves. A nil log hears nothing.
func (s Store) Open(ctx context.Context, log *slog.Logger) (*db.DB, *seal.Sealer, error) {
	d, err := s.OpenDatabase(ctx, log)
	if err != nil {
		return nil, nil, err
	}
	sealer, err := s.Secrets(ctx, d)
	if err != nil {
		d.Close()
		return nil, nil, err
	}
	return d, sealer, nil
}

// OpenDatabase opens and migrates the database.
func (s Store) OpenDatabase(ctx context.Context, log *slog.Logger) (*db.DB, error) {
	if err := os.MkdirAll(s.DataDir, 0o700); err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	if err := s.moved(); err != nil {
		return nil, err
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	if s.Database == "" { // SQLite makes files that others can read
		f, err := os.OpenFile(s.Path("slipway.db"), os.O_CREATE|os.O_EXCL, 0o600)
		switch {
		case err == nil:
			f.Close()
		case errors.Is(err, fs.ErrExist): // opening and closing it would end SQLite's locks
			err = unix.Access(s.Path("slipway.db"), unix.R_OK|unix.W_OK)
			if err != nil {
				err = &fs.PathError{Op: "open", Path: s.Path("slipway.db"), Err: err}
			}
		}
		if err != nil {
			return nil, fmt.Errorf("open database: %w", err)
		}
	}
	d, err := db.Open(ctx, db.Config{URL: s.URL(), Log: log})
	if err != nil {
		return nil, err
	}
	if err = d.Sessions(ctx); err == nil {
		err = d.Migrate(ctx)
	}
	if err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}

// movedFile says where the database was moved, so that nothing serves from the one before by mistake.
const movedFile = "database.moved"

// SQLite is the value of Moved for the database in the data directory.
const SQLite = "sqlite"

// Moved notes that the database is elsewhere now: SQLite, or an address without a password.
func (s Store) Moved(to string) error {
	return disk.Write(s.Path(movedFile), []byte(to+"\n"), 0o600)
}

func (s Store) moved() error {
	text, err := os.ReadFile(s.Path(movedFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	to := strings.TrimSpace(string(text))
	switch {
	case err != nil || (to == SQLite) == (s.Database == ""):
		return err
	case to == SQLite:
		return fmt.Errorf("the database was moved to SQLite: remove the setting database (delete %s to use the one before)", s.Path(movedFile))
	}
	return fmt.Errorf("the database was moved: set database to %s, with its password (delete %s to use the one before)", to, s.Path(movedFile))
}

// Secrets reads the secrets key, which is made for a new installation.
func (s Store) Secrets(ctx context.Context, d *db.DB) (*seal.Sealer, error) {
	return node.Secrets(ctx, d, s.Path("secrets.key"))
}

// URL is the address of the database.
func (s Store) URL() string {
	if s.Database != "" {
		return s.Database
	}
	dir, err := filepath.Abs(s.DataDir)
	if err != nil {
		dir = s.DataDir
	}
	return "sqlite:" + filepath.Join(dir, "slipway.db")
}

// OpenBlobs opens the store of files, without talking to it.
func (s Store) OpenBlobs(deletions blob.Deletions, log *slog.Logger) (*blob.Store, error) {
	o := blob.Options{Cache: s.Path("blob-cache"), CacheSize: int64(s.BlobCache) << 20, Deletions: deletions, Log: log}
	if s.Remote() {
		o.Scratch = s.Path("blob-cache", "tmp")
	}
	address := s.BlobDir()
	if s.Remote() {
		address = s.Blobs
	}
	store, err := blob.Open(address, o)
	if err != nil {
		return nil, fmt.Errorf("--blobs: %w", err)
	}
	return store, nil
}

// BlobDir is the directory of files, where they are not remote.
func (s Store) BlobDir() string {
	return cmp.Or(strings.TrimPrefix(s.Blobs, "file://"), s.Path("blobs"))
}

// Shared names the place of files for other nodes to compare with theirs, without credentials; empty: the data directory. A
// directory may be mounted in another place there, so its path says nothing.
func (s Store) Shared() string {
	switch where, err := blob.ParseS3(s.Blobs, os.Getenv); {
	case s.Remote() && err == nil:
		return where.String()
	case s.Blobs != "":
		return "a directory"
	}
	return ""
}

// CheckBlobs reports what is wrong with the address. It talks to nobody.
func (s Store) CheckBlobs() error {
	switch {
	case s.Remote():
		_, err := blob.ParseS3(s.Blobs, os.Getenv)
		return err
	case strings.Contains(s.Blobs, "://") && !strings.HasPrefix(s.Blobs, "file:///"):
		return errors.New("the address must be a directory, or begin with s3://")
	}
	return nil
}

// ProbeBlobs asks the object store, if there is one, whether it can be used. What the
// operator must put right is an error; one that doesn't answer now may do so later.
func (s Store) ProbeBlobs(ctx context.Context, store *blob.Store, log *slog.Logger) error {
	if !s.Remote() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	err := store.Probe(ctx)
	if errors.Is(err, blob.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) {
		log.WarnContext(ctx, "the object store doesn't answer: serving what is cached until it does", "err", err)
		return nil
	}
	if err != nil {
		return fmt.Errorf("--blobs: %w", err)
	}
	return nil
}

// Remote reports whether files are kept elsewhere than in a directory.
func (s Store) Remote() bool { return strings.HasPrefix(s.Blobs, "s3://") }

// Lock makes this process the only one that serves from the data directory. The lock
// goes with the process, however it ends.
func (s Store) Lock() (release func(), err error) {
	if err := os.MkdirAll(s.DataDir, 0o700); err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	f, err := os.OpenFile(s.Path("serve.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("another slipway already serves from %s", s.DataDir)
		}
		return nil, fmt.Errorf("lock data directory: %w", err)
	}
	// Overwrites with the same length, so it works on a full disk.
	_, err = f.WriteAt(fmt.Appendf(nil, "%-19d\n", os.Getpid()), 0)
	if err == nil {
		err = f.Truncate(20)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("lock data directory: %w", err)
	}
	return func() {
		_ = syscall.Flock(int(f.Fd()), syscall.LOCK_UN) // a child that has been forked and not begun its program has the file open, too
		f.Close()
	}, nil
}

// Find returns an error unless an installation is there, which is fs.ErrPermission if this user can't tell. It makes
// nothing.
func (s Store) Find() error {
	for _, name := range []string{"secrets.key", "slipway.db"} {
		if _, err := os.Stat(s.Path(name)); err == nil || errors.Is(err, fs.ErrPermission) {
			return err
		}
	}
	if _, err := os.Stat(s.DataDir); err == nil && s.Database != "" {
		return nil
	}
	return fmt.Errorf("%s has no installation: check --data-dir, or start slipway serve, which makes one", s.DataDir)
}

// Protect takes from other users what the data directory, its database and its key allow them, and returns what it changed, a line each.
// An error is of a file that isn't this process's.
func (s Store) Protect() (changed []string, err error) {
	for _, x := range []struct {
		path string
		mode os.FileMode
	}{
		{s.DataDir, 0o700},
		{s.Path("secrets.key"), 0o600},
		{s.Path("slipway.db"), 0o600},
		{s.Path("slipway.db-wal"), 0o600},
		{s.Path("slipway.db-shm"), 0o600},
	} {
		info, err := os.Stat(x.path)
		if err != nil || info.Mode().Perm()&^x.mode == 0 {
			continue
		}
		if err := os.Chmod(x.path, info.Mode().Perm()&x.mode); err != nil {
			return changed, fmt.Errorf("other users can read it: %w", err)
		}
		changed = append(changed, fmt.Sprintf("%s had mode %04o; other users can't open it any more", x.path, info.Mode().Perm()))
	}
	return changed, nil
}

// Serving returns the process that serves from the data directory, if one does. It takes no lock, which a program that starts at
// this moment would meet.
func (s Store) Serving() (pid int, ok bool) {
	text, err := os.ReadFile(s.Path("serve.lock"))
	if err != nil {
		return 0, false
	}
	if pid, err = strconv.Atoi(strings.TrimSpace(string(text))); err != nil {
		return 0, false
	}
	lock, err := os.Stat(s.Path("serve.lock"))
	if err != nil {
		return 0, false
	}
	// Its number may be another process's by now: that one doesn't have the file open.
	open := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(open)
	if err != nil {
		return 0, false
	}
	return pid, slices.ContainsFunc(entries, func(e os.DirEntry) bool {
		file, err := os.Stat(filepath.Join(open, e.Name()))
		return err == nil && os.SameFile(file, lock)
	})
}

// Inside reports whether a place is a directory of the data directory.
func (s Store) Inside(to string) bool {
	if strings.HasPrefix(to, "s3://") {
		return false
	}
	dir, err := resolved(s.DataDir)
	if err != nil {
		return true
	}
	at, err := resolved(strings.TrimPrefix(to, "file://"))
	if err != nil {
		return true
	}
	rel, err := filepath.Rel(dir, at)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, "../")
}

// resolved is the path of what may not be there yet, its links followed.
func resolved(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real, nil
	}
	parent, err := filepath.EvalSymlinks(filepath.Dir(path))
	if err != nil {
		return path, nil
	}
	return filepath.Join(parent, filepath.Base(path)), nil
}
