// Package server owns the wiring: it builds every package from one Config, starts them in
// order and stops them in the reverse one.
//
// It is the only place where services meet that don't know each other. It holds no rule of
// its own: what a service does is decided in the service.
package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"slipway/internal/blob"
	"slipway/internal/db"
	"slipway/internal/seal"
)

// Store says where an installation's data is.
type Store struct {
	DataDir  string
	Database string // postgres://…; empty: SQLite in DataDir
	Blobs    string // s3://… or a directory; empty: in DataDir. It may hold credentials: never print it.

	BlobCache int // MiB of the disk that copies of remote blobs may take. Optional: 0 means 2048.
}

func (s Store) path(elem ...string) string {
	return filepath.Join(append([]string{s.DataDir}, elem...)...)
}

// reachable reports what is wrong with a database that lies elsewhere, before anything
// is made here.
func (s Store) reachable(ctx context.Context) error {
	if s.Database == "" {
		return nil
	}
	d, err := db.Open(ctx, db.Config{URL: s.Database})
	if err != nil {
		return err
	}
	return d.Close()
}

// open opens and migrates the database and reads the secrets key. Any process may, also
// beside one that serves.
func (s Store) open(ctx context.Context, log *slog.Logger) (*db.DB, *seal.Sealer, error) {
	if err := os.MkdirAll(s.DataDir, 0o700); err != nil {
		return nil, nil, fmt.Errorf("data directory: %w", err)
	}
	url := s.Database
	if url == "" {
		dir, err := filepath.Abs(s.DataDir)
		if err != nil {
			return nil, nil, fmt.Errorf("data directory: %w", err)
		}
		url = "sqlite:" + filepath.Join(dir, "slipway.db")
	}
	d, err := db.Open(ctx, db.Config{URL: url, Log: log})
	if err != nil {
		return nil, nil, err
	}
	if err := d.Migrate(ctx); err != nil {
		d.Close()
		return nil, nil, err
	}
	sealer, err := seal.Load(s.path("secrets.key"))
	if err != nil {
		d.Close()
		return nil, nil, err
	}
	return d, sealer, nil
}

// blobs opens the store of files, without talking to it.
func (s Store) blobs(deletions blob.Deletions, log *slog.Logger) (*blob.Store, error) {
	o := blob.Options{Cache: s.path("blob-cache"), CacheSize: int64(s.BlobCache) << 20, Deletions: deletions, Log: log}
	if s.remote() {
		o.Scratch = s.path("blob-cache", "tmp")
	}
	address := s.blobDir()
	if s.remote() {
		address = s.Blobs
	}
	store, err := blob.Open(address, o)
	if err != nil {
		return nil, fmt.Errorf("--blobs: %w", err)
	}
	return store, nil
}

// blobDir is the directory of files, where they are not remote.
func (s Store) blobDir() string {
	return cmp.Or(strings.TrimPrefix(s.Blobs, "file://"), s.path("blobs"))
}

// checkBlobs reports what is wrong with the address. It talks to nobody.
func (s Store) checkBlobs() error {
	switch {
	case s.remote():
		_, err := blob.ParseS3(s.Blobs, os.Getenv)
		return err
	case strings.Contains(s.Blobs, "://") && !strings.HasPrefix(s.Blobs, "file:///"):
		return errors.New("the address must be a directory, or begin with s3://")
	}
	return nil
}

// probeBlobs asks the object store, if there is one, whether it can be used. What the
// operator must put right is an error; one that doesn't answer now may do so later.
func (s Store) probeBlobs(ctx context.Context, store *blob.Store, log *slog.Logger) error {
	if !s.remote() {
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

// remote reports whether files are kept elsewhere than in a directory.
func (s Store) remote() bool { return strings.HasPrefix(s.Blobs, "s3://") }

// lock makes this process the only one that serves from the data directory. The lock
// goes with the process, however it ends.
func (s Store) lock() (release func(), err error) {
	if err := os.MkdirAll(s.DataDir, 0o700); err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	f, err := os.OpenFile(s.path("serve.lock"), os.O_CREATE|os.O_RDWR, 0o600)
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
	return func() { f.Close() }, nil
}

// VersionText returns the output of `slipway version`.
func VersionText(version string) string {
	revision := ""
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				revision = " (" + s.Value[:min(12, len(s.Value))] + ")"
			}
		}
	}
	return fmt.Sprintf("slipway %s%s, %s, %s/%s", version, revision, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
