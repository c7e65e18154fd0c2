package node

import (
	"cmp"
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

// kind is what an installation has one place for.
type kind struct {
	id           int // in storage_marks
	file         string
	flag, accept string // as operators write them
	what         string // for errors
}

var (
	storageKind = kind{1, MarkFile, "--storage", "accept-storage", "storage"}
	filesKind   = kind{2, ".slipway-files", "--blobs", "accept-files", "place for files"}
)

// remoteFiles begins the marks of files that are not in a directory.
const remoteFiles = "s3://"

// Place is where an installation has something, by a mark that stands in the database and, if it is a directory, there too. Storage and
// Files only look: a start that is refused changes nothing. Join writes the marks that are missing.
type Place struct {
	of   kind
	dir  string // empty: not a directory
	mark string // empty: the installation has none
	over string // the mark of an earlier place, which mark replaces

	proposed string // file that propose made
}

// Mark returns the mark. It may change until the node has joined, if another node marks the same directory at the same time.
func (p *Place) Mark() string {
	if p == nil {
		return ""
	}
	return p.mark
}

// ReadMark returns the mark of a directory of storage; empty: it has none.
func ReadMark(dir string) (string, error) { return storageKind.read(dir) }

func (k kind) read(dir string) (string, error) {
	text, err := os.ReadFile(filepath.Join(dir, k.file))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read mark of %s: %w", k.what, err)
	}
	return strings.TrimSpace(string(text)), nil
}

// proposal is the file that becomes the mark's file once a node has joined with it. A crash in between leaves it for the next start.
func (k kind) proposal(dir, mark string) string { return filepath.Join(dir, k.file+"."+mark) }

// has reports whether a directory has a mark, or the proposal of it.
func (k kind) has(dir, mark string) (bool, error) {
	if _, err := os.Stat(k.proposal(dir, mark)); err == nil { // looked for first: it turns into the other
		return true, nil
	}
	is, err := k.read(dir)
	return is == mark, err
}

// Storage finds the installation's shared storage, which is mounted at dir. An empty dir says that this node has storage of its own. It is
// an error where either is not what the installation has: what was stored elsewhere would seem to be lost.
func Storage(ctx context.Context, d *db.DB, dir string) (*Place, error) {
	k := storageKind
	var is string
	if dir != "" {
		info, err := os.Stat(dir)
		if err != nil || !info.IsDir() {
			return nil, fmt.Errorf("--storage: %s is not a directory", dir)
		}
		if is, err = k.read(dir); err != nil { // before the database, which is marked first
			return nil, fmt.Errorf("--storage: %w", err)
		}
	}
	mark, placed, err := markOf(ctx, d, k)
	switch {
	case err != nil:
		return nil, err
	case dir == "" && mark == "":
		return &Place{of: k}, nil
	case dir == "":
		return nil, errUnmounted
	case is == "" && placed:
		if ok, err := k.has(dir, mark); !ok {
			return nil, errors.Join(k.unmounted(dir), err)
		}
	case is != "" && is != mark:
		return nil, k.others(dir)
	}
	return &Place{of: k, dir: dir, mark: cmp.Or(mark, db.NewID("storage"))}, nil
}

// errUnmounted is also the error of a node that starts while another one has the installation's storage marked.
var errUnmounted = errors.New("--storage is missing: the storage of this installation's sites is in a directory that all nodes " +
	"mount (slipway node accept-storage says that it no longer is)")

func (k kind) unmounted(dir string) error {
	return fmt.Errorf("%s: %s has no %s, so it isn't this installation's %s: is it mounted? (slipway node %s says that it is)",
		k.flag, dir, k.file, k.what, k.accept)
}

func (k kind) others(dir string) error {
	return fmt.Errorf("%s: %s belongs to another installation (slipway node %s says that it is this one's)", k.flag, dir, k.accept)
}

// Files finds the installation's files: in the directory dir, or remote at an address without credentials. If the marks don't say that
// they are this installation's, such as after an upgrade from a version without marks, or a move to a bucket, there asks whether the
// place has files that the database names: named says that the database names any.
func Files(ctx context.Context, d *db.DB, dir, remote string, there func() (named, found bool, err error)) (*Place, error) {
	k := filesKind
	is := remote
	if dir != "" {
		var err error
		if is, err = k.read(dir); err != nil { // as in Storage
			return nil, fmt.Errorf("--blobs: %w", err)
		}
	}
	mark, _, err := markOf(ctx, d, k)
	if err != nil {
		return nil, err
	}
	if dir != "" && is == "" && mark != "" && !strings.HasPrefix(mark, remoteFiles) {
		if ok, err := k.has(dir, mark); !ok {
			return nil, errors.Join(k.unmounted(dir), err)
		}
		is = mark
	}
	if is != "" && is == mark {
		return &Place{of: k, dir: dir, mark: mark}, nil
	}
	if dir != "" && is != "" && mark != "" {
		return nil, k.others(dir)
	}
	named, found, err := there()
	switch {
	case err != nil && mark == "": // a bucket that doesn't answer
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("--blobs: %w", err)
	case dir != "" && is != "" && !found:
		return nil, k.others(dir)
	case named && !found:
		return nil, fmt.Errorf("--blobs: %s has none of the files of this installation's sites: is it the right one, and mounted? (slipway "+
			"node %s says that it is)", cmp.Or(dir, remote), k.accept)
	}
	return &Place{of: k, dir: dir, mark: cmp.Or(is, db.NewID("files")), over: mark}, nil
}

// AcceptStorage makes a directory the installation's shared storage, whatever was before; an empty one says that each node has storage
// of its own. Nothing is moved.
func AcceptStorage(ctx context.Context, d *db.DB, dir string) error {
	return accept(ctx, d, storageKind, dir, "")
}

// AcceptFiles makes a directory, or what is at a remote address, the installation's files, whatever was before. Nothing is moved.
func AcceptFiles(ctx context.Context, d *db.DB, dir, remote string) error {
	return accept(ctx, d, filesKind, dir, remote)
}

func accept(ctx context.Context, d *db.DB, k kind, dir, mark string) error {
	if dir != "" {
		mark = db.NewID(strings.TrimPrefix(k.file, ".slipway-"))
		if err := disk.Write(filepath.Join(dir, k.file), []byte(mark+"\n"), 0o600); err != nil {
			return fmt.Errorf("mark %s: %w", k.what, err)
		}
	}
	err := d.Write(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, `DELETE FROM storage_marks WHERE id = $1`, k.id)
		if err == nil && mark != "" {
			_, err = tx.Exec(ctx, `INSERT INTO storage_marks (id, mark, placed) VALUES ($1, $2, TRUE)`, k.id, mark)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("note mark of %s: %w", k.what, err)
	}
	return nil
}

// Unmark forgets the marks of an installation that was restored, for its next start to mark its places.
func Unmark(ctx context.Context, d *db.DB) error {
	return errors.Join(AcceptStorage(ctx, d, ""), AcceptFiles(ctx, d, "", ""))
}

// SharedMark returns the mark of the storage that all nodes mount; empty: each has its own.
func SharedMark(ctx context.Context, r db.Reader) (string, error) {
	mark, _, err := markOf(ctx, r, storageKind)
	return mark, err
}

// RemoteFiles returns where the installation's files are, if that is not a directory.
func RemoteFiles(ctx context.Context, r db.Reader) (string, error) {
	mark, _, err := markOf(ctx, r, filesKind)
	if !strings.HasPrefix(mark, remoteFiles) {
		mark = ""
	}
	return mark, err
}

func markOf(ctx context.Context, r db.Reader, k kind) (mark string, placed bool, err error) {
	err = r.QueryRow(ctx, `
		SELECT COALESCE(MAX(mark), ''), COUNT(*) FILTER (WHERE placed) > 0 FROM storage_marks WHERE id = $1`, k.id).Scan(&mark, &placed)
	if err != nil {
		return "", false, fmt.Errorf("read mark of %s: %w", k.what, err)
	}
	return mark, placed, nil
}

// propose leaves the mark in a directory that has none, where it counts once the node has joined.
func (p *Place) propose() error {
	if p.dir == "" {
		return nil
	}
	if ok, err := p.of.has(p.dir, p.mark); ok || err != nil {
		return err
	}
	p.proposed = p.of.proposal(p.dir, p.mark)
	if err := disk.Write(p.proposed, []byte(p.mark+"\n"), 0o600); err != nil {
		return fmt.Errorf("%s: %w", p.of.flag, err)
	}
	return nil
}

// errMarked says that the installation has another mark than was read.
var errMarked = errors.New("the installation's mark has changed")

// claimTx writes the mark, or returns errMarked and the one that is there.
func (p *Place) claimTx(ctx context.Context, tx *db.Tx) (is string, err error) {
	if p.mark == "" {
		if is, _, err = markOf(ctx, tx, p.of); err == nil && is != "" {
			err = errUnmounted
		}
		return is, err
	}
	err = tx.QueryRow(ctx, `
		INSERT INTO storage_marks (id, mark, placed) VALUES ($1, $2, TRUE)
		ON CONFLICT (id) DO UPDATE SET placed = TRUE, mark = CASE WHEN storage_marks.mark = $3 THEN excluded.mark ELSE storage_marks.mark END
		RETURNING mark`, p.of.id, p.mark, p.over).Scan(&is)
	if err == nil && is != p.mark {
		err = errMarked
	}
	return is, err
}

// adopt takes over the mark that another node has written meanwhile, if it is in this directory.
func (p *Place) adopt(is string) error {
	if p.dir == "" {
		return fmt.Errorf("%s: another node that has just started has %s", p.of.flag, is)
	}
	ok, err := p.of.has(p.dir, is)
	if !ok {
		return errors.Join(p.of.unmounted(p.dir), err)
	}
	p.drop()
	p.mark, p.over = is, ""
	return nil
}

// drop takes back a proposal.
func (p *Place) drop() {
	if p.proposed != "" {
		os.Remove(p.proposed)
	}
}

// settle makes the proposal the mark.
func (p *Place) settle() error {
	if p.dir == "" {
		return nil
	}
	err := disk.Rename(p.of.proposal(p.dir, p.mark), filepath.Join(p.dir, p.of.file))
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // it is already, or another node has just done so
		return fmt.Errorf("%s: %w", p.of.flag, err)
	}
	return nil
}
