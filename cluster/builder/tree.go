package builder

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// maxDepth caps nested folders, as in sandboxes.
const maxDepth = 256

// pack writes the files, folders and links below root as a tar, except those for which skip returns true. A nil skip
// includes all. It reports other kinds of files to odd.
func pack(root *os.Root, to io.Writer, skip func(name string) bool, odd func(name string)) error {
	w := tar.NewWriter(to)
	if err := packDir(root, w, ".", 0, skip, odd); err != nil {
		return err
	}
	return w.Close()
}

func packDir(root *os.Root, w *tar.Writer, dir string, depth int, skip func(name string) bool, odd func(name string)) error {
	if depth > maxDepth {
		return fmt.Errorf("folders are more than %d deep", maxDepth)
	}
	d, err := open(root, dir, unix.O_DIRECTORY, 0o700)
	if err != nil {
		return err
	}
	names, err := d.Readdirnames(-1)
	d.Close()
	if err != nil {
		return err
	}
	slices.Sort(names)
	for _, base := range names {
		name := path.Join(dir, base)
		if skip != nil && skip(name) {
			continue
		}
		info, err := root.Lstat(name)
		if err != nil {
			return err
		}
		h := &tar.Header{Name: name, Format: tar.FormatPAX, Mode: 0o644}
		switch {
		case info.IsDir():
			h.Name, h.Typeflag, h.Mode = name+"/", tar.TypeDir, 0o755
			if err := w.WriteHeader(h); err != nil {
				return err
			}
			if err := packDir(root, w, name, depth+1, skip, odd); err != nil {
				return err
			}
		case info.Mode()&fs.ModeSymlink != 0:
			h.Typeflag = tar.TypeSymlink
			if h.Linkname, err = root.Readlink(name); err == nil {
				err = w.WriteHeader(h)
			}
			if err != nil {
				return err
			}
		case info.Mode().IsRegular():
			if err := packFile(root, w, name, h); err != nil {
				return err
			}
		case odd != nil:
			odd(name)
		}
	}
	return nil
}

func packFile(root *os.Root, w *tar.Writer, name string, h *tar.Header) error {
	f, err := open(root, name, unix.O_NONBLOCK|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if info.Mode()&0o111 != 0 {
		h.Mode = 0o755
	}
	h.Typeflag, h.Size, h.ModTime = tar.TypeReg, info.Size(), info.ModTime()
	if err := w.WriteHeader(h); err != nil {
		return err
	}
	_, err = io.Copy(w, f)
	return err
}

// open opens a file even if its mode denies its owner access.
func open(root *os.Root, name string, flags int, mode os.FileMode) (*os.File, error) {
	f, err := root.OpenFile(name, os.O_RDONLY|flags, 0)
	if errors.Is(err, fs.ErrPermission) && root.Chmod(name, mode) == nil {
		f, err = root.OpenFile(name, os.O_RDONLY|flags, 0)
	}
	return f, err
}

// errTooLarge says which limit a tree exceeds.
type errTooLarge struct{ why string }

func (e errTooLarge) Error() string { return e.why }

// unpack extracts a tar below root, with at most maxBytes and maxEntries. It doesn't trust the tar: entries outside
// root are errors, and links are created last.
func unpack(from io.Reader, root *os.Root, maxBytes, maxEntries int64) error {
	r := tar.NewReader(from)
	type link struct{ name, to string }
	var links []link
	var bytes, entries int64
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return noEOF(err)
		}
		entries++
		if entries > maxEntries {
			return errTooLarge{fmt.Sprintf("more than %d files", maxEntries)}
		}
		bytes += h.Size + int64(len(h.Name)+len(h.Linkname))
		if h.Size < 0 || bytes > maxBytes {
			return errTooLarge{fmt.Sprintf("more than %d MiB", maxBytes>>20)}
		}
		name := path.Clean(h.Name)
		if !filepath.IsLocal(name) || name == "." {
			return fmt.Errorf("a file is named %q", h.Name)
		}
		switch h.Typeflag {
		case tar.TypeDir:
			err = root.MkdirAll(name, 0o755)
		case tar.TypeSymlink:
			links = append(links, link{name, h.Linkname})
		case tar.TypeReg:
			err = unpackFile(r, root, name, h)
		default:
			err = fmt.Errorf("%q is no file", h.Name)
		}
		if err != nil {
			return err
		}
	}
	for _, l := range links {
		if err := root.MkdirAll(path.Dir(l.name), 0o755); err != nil {
			return err
		}
		if err := root.Symlink(l.to, l.name); err != nil {
			return err
		}
	}
	_, err := io.Copy(io.Discard, from) // the tar's padding
	return err
}

func unpackFile(r io.Reader, root *os.Root, name string, h *tar.Header) error {
	if err := root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return err
	}
	mode := os.FileMode(0o644)
	if h.Mode&0o111 != 0 {
		mode = 0o755
	}
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	if _, err := io.Copy(f, r); err != nil {
		f.Close()
		return noEOF(err)
	}
	if err := f.Close(); err != nil || h.ModTime.IsZero() {
		return err
	}
	return root.Chtimes(name, h.ModTime, h.ModTime) // tools compare times with their caches'
}
