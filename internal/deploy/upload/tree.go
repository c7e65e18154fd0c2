package upload

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

	"slipway/internal/git/fetch"
	"slipway/internal/platform/blob"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/text"
)

// Tree is an upload's files, in the form of a commit. A file's OID is its SHA-256.
type Tree struct {
	Upload Upload
	files  []fetch.File
	blobs  *blob.Store
}

// Open returns an upload's files. They stay stored until all deployments of the upload have ended.
func (u *Uploads) Open(ctx context.Context, id ID) (*Tree, error) {
	x, err := scan(u.c.DB.QueryRow(ctx, `SELECT `+columns+` FROM uploads WHERE id = $1`, id))
	if err != nil {
		return nil, fmt.Errorf("open upload %s: %w", id, err)
	}
	list, err := u.files(ctx, x)
	if err != nil {
		return nil, err
	}
	t := &Tree{Upload: x, blobs: u.c.Blobs, files: make([]fetch.File, len(list))}
	for i, e := range list {
		t.files[i] = fetch.File{Path: e.path, Mode: modes[e.mode], OID: e.digest.String(), Size: e.size}
	}
	return t, nil
}

var modes = map[byte]fs.FileMode{'f': fetch.ModeFile, 'x': fetch.ModeExecutable, 'l': fetch.ModeSymlink}

// Files lists the files, sorted by path.
func (t *Tree) Files(context.Context) ([]fetch.File, error) { return slices.Clone(t.files), nil }

// Read passes the contents of files to fn in order. An error of fn stops Read and is returned unchanged.
func (t *Tree) Read(ctx context.Context, files []fetch.File, fn func(fetch.File, io.Reader) error) error {
	for _, f := range files {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := t.read(ctx, f, fn); err != nil {
			return err
		}
	}
	return nil
}

func (t *Tree) read(ctx context.Context, f fetch.File, fn func(fetch.File, io.Reader) error) error {
	d, err := blob.ParseDigest(f.OID)
	if err != nil {
		return fmt.Errorf("read %q: %w", f.Path, err)
	}
	r, _, err := t.blobs.Open(ctx, d)
	if err != nil {
		return fmt.Errorf("read %q: %w", f.Path, err)
	}
	defer r.Close()
	return fn(f, r)
}

// ReadFile returns the content of one file, following symbolic links inside the tree. If the file doesn't exist, the
// error is fs.ErrNotExist. A file over max bytes is returned up to max, with a fault of kind TooLarge.
func (t *Tree) ReadFile(ctx context.Context, name string, max int64) ([]byte, error) {
	for range 10 {
		i, found := slices.BinarySearchFunc(t.files, name, func(f fetch.File, name string) int { return strings.Compare(f.Path, name) })
		if !found {
			break
		}
		f := t.files[i]
		var b []byte
		err := t.read(ctx, f, func(_ fetch.File, r io.Reader) (err error) {
			b, err = io.ReadAll(io.LimitReader(r, max))
			return err
		})
		if err != nil {
			return nil, err
		}
		if f.Mode != fetch.ModeSymlink {
			if f.Size > max {
				return b, fault.New(fault.TooLarge, "file_too_large", show(f.Path)+" is too large",
					"the limit is "+text.Size(max))
			}
			return b, nil
		}
		if path.IsAbs(string(b)) {
			break
		}
		name = path.Join(path.Dir(name), string(b))
	}
	return nil, fmt.Errorf("read %q: %w", name, fs.ErrNotExist)
}

// Checkout writes the files to dir, which must be empty or missing. Links are written last, so that no file is written
// through one. A link that leads out of the folder is refused.
func (t *Tree) Checkout(ctx context.Context, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("check out: %w", err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		return fmt.Errorf("check out: directory is not empty: %w", errors.Join(err, fs.ErrExist))
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("check out: %w", err)
	}
	defer root.Close()
	var files, links []fetch.File
	for _, f := range t.files {
		if f.Mode == fetch.ModeSymlink {
			links = append(links, f)
		} else {
			files = append(files, f)
		}
	}
	made := map[string]bool{".": true}
	folder := func(name string) error {
		at := path.Dir(name)
		if made[at] {
			return nil
		}
		made[at] = true
		return root.MkdirAll(at, 0o755)
	}
	err = t.Read(ctx, files, func(f fetch.File, r io.Reader) error {
		if err := folder(f.Path); err != nil {
			return err
		}
		w, err := root.OpenFile(f.Path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, f.Mode.Perm())
		if err != nil {
			return err
		}
		_, err = io.Copy(w, r)
		if err == nil { // regardless of the umask
			err = w.Chmod(f.Mode.Perm())
		}
		return errors.Join(err, w.Close())
	})
	if err == nil {
		err = t.Read(ctx, links, func(f fetch.File, r io.Reader) error {
			b, err := io.ReadAll(io.LimitReader(r, maxLink))
			if err != nil {
				return err
			}
			if to := string(b); path.IsAbs(to) || !fs.ValidPath(path.Join(path.Dir(f.Path), to)) {
				return fault.New(fault.Invalid, "invalid_link", "A symbolic link points outside of the uploaded folder",
					show(f.Path)+" leads to "+show(to))
			}
			if err := folder(f.Path); err != nil {
				return err
			}
			return root.Symlink(string(b), f.Path)
		})
	}
	if err != nil {
		return fmt.Errorf("check out: %w", err)
	}
	return nil
}

// Close does nothing: the files stay stored.
func (t *Tree) Close() error { return nil }
