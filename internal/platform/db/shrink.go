package db

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"slipway/internal/platform/disk"
)

// SQLite keeps pages that hold nothing any more in its file. New databases are made so that it can return them
// (auto_vacuum, in the DSN of the writer); older ones must be rewritten once.

const (
	shrinkStep = 1000    // pages that one transaction returns
	shrinkFrom = 256     // free pages that stay, as the next writes need them
	rewriteMax = 1 << 30 // bytes of a file that Shrinkable rewrites, which takes about 10 s
)

// Shrinkable makes Shrink work for a file of SQLite that an earlier program made, if it is small enough to be rewritten
// before the service answers, and both its disk and that of SQLite's temporary files have room for it. Nothing else may
// write meanwhile.
func (d *DB) Shrinkable(ctx context.Context) error {
	if rigid, err := d.Rigid(ctx); err != nil || !rigid {
		return err
	}
	size, err := d.fileSize()
	if err != nil || size > rewriteMax || disk.Room(filepath.Dir(d.file()), 2*size) != nil || disk.Room(temporaryDir(), size) != nil {
		return err
	}
	_, err = d.Compact(ctx)
	return err
}

// temporaryDir returns the directory in which SQLite makes its temporary files.
func temporaryDir() string {
	for _, dir := range []string{os.Getenv("SQLITE_TMPDIR"), os.Getenv("TMPDIR"), "/var/tmp", "/usr/tmp", "/tmp"} {
		if info, err := os.Stat(dir); err == nil && info.IsDir() && unix.Access(dir, unix.W_OK|unix.X_OK) == nil {
			return dir
		}
	}
	return "."
}

// Compact rewrites the file of SQLite without what is free in it, and returns how many bytes smaller it is. It needs as
// much room as the file has, twice, and nothing else may write meanwhile.
func (d *DB) Compact(ctx context.Context) (freed int64, err error) {
	if !d.single {
		return 0, nil
	}
	before, err := d.fileSize()
	if err != nil {
		return 0, err
	}
	if err := d.temporary(ctx, "FILE"); err != nil { // it may be larger than memory
		return 0, err
	}
	defer func() { _ = d.temporary(context.WithoutCancel(ctx), "MEMORY") }()
	for _, q := range []string{"VACUUM", "PRAGMA wal_checkpoint(TRUNCATE)"} {
		if _, err := d.write.ExecContext(ctx, q); err != nil {
			return 0, fmt.Errorf("rewrite database: %w", err)
		}
	}
	after, err := d.fileSize()
	if err == nil {
		d.log.InfoContext(ctx, "the database was rewritten, so that it can return free space", "before", before, "bytes", after)
	}
	return before - after, err
}

// Shrink returns the free pages of SQLite's file to the file system, and how many bytes that are. Others write between
// its steps.
func (d *DB) Shrink(ctx context.Context) (freed int64, err error) {
	if rigid, err := d.Rigid(ctx); err != nil || rigid || !d.single {
		return 0, err
	}
	before, err := d.fileSize()
	if err != nil {
		return 0, err
	}
	for last := int64(-1); ; {
		var free int64
		if err := d.QueryRow(ctx, "PRAGMA freelist_count").Scan(&free); err != nil {
			return 0, fmt.Errorf("shrink database: %w", err)
		}
		if free <= shrinkFrom || free == last {
			break
		}
		last = free
		if err := d.Write(ctx, func(tx *Tx) error {
			rows, err := tx.Query(ctx, fmt.Sprintf("PRAGMA incremental_vacuum(%d)", min(shrinkStep, free-shrinkFrom)))
			if err != nil {
				return err
			}
			defer rows.Close()
			for rows.Next() { // each step returns a page
			}
			return rows.Err()
		}); err != nil {
			return 0, fmt.Errorf("shrink database: %w", err)
		}
	}
	// The file itself gets smaller when the log is folded back.
	if _, err := d.write.ExecContext(ctx, "PRAGMA wal_checkpoint(PASSIVE)"); err != nil {
		return 0, fmt.Errorf("shrink database: %w", err)
	}
	after, err := d.fileSize()
	return max(0, before-after), err
}

// Rigid reports whether SQLite's file can't return free pages before it is rewritten. PostgreSQL looks after itself.
func (d *DB) Rigid(ctx context.Context) (bool, error) {
	if !d.single {
		return false, nil
	}
	var mode int
	// A reader would say what was so when it opened the file.
	if err := d.write.QueryRowContext(ctx, "PRAGMA auto_vacuum").Scan(&mode); err != nil {
		return false, fmt.Errorf("read how the database returns space: %w", err)
	}
	return mode != 2, nil
}

func (d *DB) file() string { return strings.TrimPrefix(d.url, "sqlite:") }

func (d *DB) fileSize() (int64, error) {
	info, err := os.Stat(d.file())
	if err != nil {
		return 0, fmt.Errorf("size of the database: %w", err)
	}
	return info.Size(), nil
}
