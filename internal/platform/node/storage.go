package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"slipway/internal/platform/db"
	"slipway/internal/platform/disk"
)

// MarkFile is the file by which a directory of storage is known on every node that mounts it.
const MarkFile = ".slipway-storage"

// ReadMark returns the mark of a directory; empty: it has none.
func ReadMark(dir string) (string, error) {
	text, err := os.ReadFile(filepath.Join(dir, MarkFile))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read mark of storage: %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}

// SharedStorage returns the mark of the installation's shared storage, which is mounted at dir, and marks a directory for an
// installation that has none. An empty dir says that this node has storage of its own. It is an error where either is not what
// the installation has: what was stored elsewhere would seem to be lost.
func SharedStorage(ctx context.Context, d *db.DB, dir string) (mark string, err error) {
	mark, placed, err := markOf(ctx, d)
	switch {
	case err != nil:
		return "", err
	case dir == "" && mark == "":
		return "", nil
	case dir == "":
		return "", errors.New("--storage is missing: the storage of this installation's sites is in a directory that all nodes " +
			"mount (slipway node accept-storage says that it no longer is)")
	}
	info, err := os.Stat(dir)
	if err != nil || !info.IsDir() {
		return "", fmt.Errorf("--storage: %s is not a directory", dir)
	}
	has, err := ReadMark(dir)
	switch {
	case err != nil:
		return "", fmt.Errorf("--storage: %w", err)
	case has == "" && placed:
		return "", fmt.Errorf("--storage: %s has no %s, so it isn't this installation's storage: is it mounted? (slipway node accept-storage "+
			"says that it is)", dir, MarkFile)
	case mark != "" && has != "" && has != mark, mark == "" && has != "":
		return "", fmt.Errorf("--storage: %s belongs to another installation (slipway node accept-storage says that it is this one's)", dir)
	case has != "" && placed:
		return mark, nil
	}
	return place(ctx, d, dir, db.NewID("storage"), false)
}

// AcceptStorage makes a directory the installation's shared storage, whatever was before; an empty one says that each node has storage
// of its own. Nothing is moved.
func AcceptStorage(ctx context.Context, d *db.DB, dir string) error {
	if dir == "" {
		return d.Write(ctx, func(tx *db.Tx) error {
			_, err := tx.Exec(ctx, `DELETE FROM storage_marks`)
			return err
		})
	}
	_, err := place(ctx, d, dir, db.NewID("storage"), true)
	return err
}

// SharedMark returns the mark of the storage that all nodes mount; empty: each has its own.
func SharedMark(ctx context.Context, r db.Reader) (string, error) {
	mark, _, err := markOf(ctx, r)
	return mark, err
}

func markOf(ctx context.Context, r db.Reader) (mark string, placed bool, err error) {
	err = r.QueryRow(ctx, `
		SELECT COALESCE(MAX(mark), ''), COUNT(*) FILTER (WHERE placed) > 0 FROM storage_marks WHERE id = 1`).Scan(&mark, &placed)
	if err != nil {
		return "", false, fmt.Errorf("read mark of storage: %w", err)
	}
	return mark, placed, nil
}

// place writes the mark into the database, then into the directory, and then that it is there: nodes that start at once write the
// same, and a crash in between leaves what the next start completes.
func place(ctx context.Context, d *db.DB, dir, mark string, over bool) (string, error) {
	err := d.Write(ctx, func(tx *db.Tx) error {
		return tx.QueryRow(ctx, `
			INSERT INTO storage_marks (id, mark, placed) VALUES (1, $1, FALSE)
			ON CONFLICT (id) DO UPDATE SET mark = CASE WHEN $2 THEN excluded.mark ELSE storage_marks.mark END,
				placed = CASE WHEN $2 THEN FALSE ELSE storage_marks.placed END
			RETURNING mark`, mark, over).Scan(&mark)
	})
	if err != nil {
		return "", fmt.Errorf("note mark of storage: %w", err)
	}
	if err := disk.Write(filepath.Join(dir, MarkFile), []byte(mark+"\n"), 0o600); err != nil {
		return "", fmt.Errorf("mark storage: %w", err)
	}
	err = d.Write(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, `UPDATE storage_marks SET placed = TRUE WHERE id = 1 AND mark = $1`, mark)
		return err
	})
	if err != nil {
		return "", fmt.Errorf("note mark of storage: %w", err)
	}
	return mark, nil
}
