package bundle

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"slipway/internal/platform/blob"
	"slipway/internal/platform/fault"
)

// Limits of one path, in bytes and folders, and of all paths together.
const (
	maxPath  = 1024
	maxDepth = 64
	maxPaths = 64 << 20
)

// Stored describes a stored bundle.
type Stored struct {
	ID    ID
	Files int
	Bytes int64
	Left  []string // the first 20 links and special files that were skipped
}

// Store stores the tree below root, without .git and without the files, folders and links to them for which skip
// returns true. It stores regular files and links that stay inside; it skips everything else and lists it in
// [Stored.Left]. A tree over the limits is a fault.
func (b *Bundles) Store(ctx context.Context, root *os.Root, skip func(name string) bool) (Stored, error) {
	return (&walk{b: b, root: root, skip: skip}).store(ctx)
}

// StoreCommon is Store for files of the installation itself, such as WordPress's, which the trees of all owners share.
func (b *Bundles) StoreCommon(ctx context.Context, root *os.Root) (Stored, error) {
	return (&walk{b: b, root: root, common: true}).store(ctx)
}

func (w *walk) store(ctx context.Context) (Stored, error) {
	w.batch = w.b.c.Blobs.Batch(ctx)
	if err := w.dir(ctx, ".", 0); err != nil {
		_ = w.batch.Flush() // ends the open batch
		return Stored{}, err
	}
	slices.SortFunc(w.m.Entries, func(a, b entry) int { return strings.Compare(a.Path, b.Path) })
	text, err := w.m.encode()
	if err != nil {
		return Stored{}, fmt.Errorf("store bundle: %w", err)
	}
	id, err := w.batch.PutBytes(text)
	if err != nil {
		return Stored{}, fmt.Errorf("store bundle: %w", err)
	}
	if err := w.batch.Flush(); err != nil {
		return Stored{}, fmt.Errorf("store bundle: %w", err)
	}
	w.stored.ID = ID(id.String())
	return w.stored, nil
}

type walk struct {
	b      *Bundles
	root   *os.Root
	skip   func(string) bool
	common bool
	batch  *blob.Batch
	m      manifest
	stored Stored
	paths  int // bytes of all paths
}

func (w *walk) dir(ctx context.Context, dir string, depth int) error {
	if depth > maxDepth {
		return tooLarge("folders are nested too deep", fmt.Sprintf("at most %d folders", maxDepth))
	}
	f, err := w.root.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return fmt.Errorf("store bundle: %w", err)
	}
	var entries []fs.DirEntry
	for {
		some, err := f.ReadDir(1024)
		entries = append(entries, some...)
		if len(entries) > w.b.c.MaxFiles {
			_ = f.Close()
			return w.tooMany()
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			_ = f.Close()
			return fmt.Errorf("store bundle: %w", err)
		}
	}
	_ = f.Close()
	for _, e := range entries {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		name := path.Join(dir, e.Name())
		if name == ".git" || w.skip != nil && w.skip(name) {
			continue
		}
		w.paths += len(name)
		if len(name) > maxPath || w.paths > maxPaths {
			return tooLarge("paths are too long", fmt.Sprintf("a path has at most %d bytes, and all of them together 64 MiB", maxPath))
		}
		switch {
		case e.IsDir():
			err = w.dir(ctx, name, depth+1)
		case e.Type().IsRegular():
			err = w.file(name)
		case e.Type()&fs.ModeSymlink != 0:
			err = w.link(name)
		default:
			w.leave(name)
		}
		if err != nil {
			return err
		}
		if len(w.m.Entries) > w.b.c.MaxFiles {
			return w.tooMany()
		}
	}
	return nil
}

func (w *walk) file(name string) error {
	f, err := w.root.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("store %s: %w", name, err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("store %s: %w", name, err)
	}
	if !info.Mode().IsRegular() {
		w.leave(name)
		return nil
	}
	left := w.b.c.MaxBytes - w.stored.Bytes
	d, size, err := w.batch.Put(io.LimitReader(f, left+1))
	if err != nil {
		return fmt.Errorf("store %s: %w", name, err)
	}
	if size > left {
		return tooLarge("the project with its dependencies is too large", fmt.Sprintf("at most %d MiB", w.b.c.MaxBytes>>20))
	}
	w.stored.Files++
	w.stored.Bytes += size
	w.m.Entries = append(w.m.Entries, entry{Path: name, Digest: d.String(), Size: size, Exec: info.Mode()&0o111 != 0, Common: w.common})
	return nil
}

func (w *walk) link(name string) error {
	to, err := w.root.Readlink(name)
	if err != nil {
		return fmt.Errorf("store %s: %w", name, err)
	}
	if !linkInside(name, to) {
		w.leave(name)
		return nil
	}
	if w.skipped(path.Join(path.Dir(name), to)) {
		return nil
	}
	w.m.Entries = append(w.m.Entries, entry{Path: name, Link: to})
	return nil
}

// skipped reports whether a path or one of its parents isn't stored.
func (w *walk) skipped(name string) bool {
	for ; w.skip != nil && name != "." && name != ""; name = path.Dir(name) {
		if w.skip(name) {
			return true
		}
	}
	return false
}

func (w *walk) leave(name string) {
	if len(w.stored.Left) < 20 {
		w.stored.Left = append(w.stored.Left, name)
	}
}

func (w *walk) tooMany() error {
	return tooLarge("there are too many files", fmt.Sprintf("at most %d, dependencies included", w.b.c.MaxFiles))
}

func tooLarge(why, details string) error {
	return fault.New(fault.Invalid, "application_too_large", "The application can't be stored: "+why, details)
}

// Join stores a bundle with the entries of base and, in the folder at, those of over. It reads no file contents. base
// must not have entries in that folder.
func (b *Bundles) Join(ctx context.Context, base, over ID, at string) (Stored, error) {
	m, err := b.load(ctx, base)
	if err != nil {
		return Stored{}, fmt.Errorf("join bundles: %w", err)
	}
	more, err := b.load(ctx, over)
	if err != nil {
		return Stored{}, fmt.Errorf("join bundles: %w", err)
	}
	for _, e := range m.Entries {
		if e.Path == at || strings.HasPrefix(e.Path, at+"/") {
			return Stored{}, fmt.Errorf("join bundles: %s is there already", at)
		}
	}
	for _, e := range more.Entries {
		e.Path = path.Join(at, e.Path)
		m.Entries = append(m.Entries, e)
	}
	if len(m.Entries) > b.c.MaxFiles {
		return Stored{}, tooLarge("there are too many files", fmt.Sprintf("at most %d", b.c.MaxFiles))
	}
	slices.SortFunc(m.Entries, func(a, b entry) int { return strings.Compare(a.Path, b.Path) })
	var stored Stored
	batch := b.c.Blobs.Batch(ctx)
	for _, e := range m.Entries {
		if e.Link == "" {
			stored.Files++
			stored.Bytes += e.Size
		}
	}
	text, err := m.encode()
	if err != nil {
		return Stored{}, fmt.Errorf("join bundles: %w", err)
	}
	id, err := batch.PutBytes(text)
	if err = errors.Join(err, batch.Flush()); err != nil {
		return Stored{}, fmt.Errorf("join bundles: %w", err)
	}
	stored.ID = ID(id.String())
	return stored, nil
}
