package runtime

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"slipway/internal/fault"
	"slipway/internal/sandbox"
)

// mount shows a program its storage. A folder that is new begins as what the bundle has at
// that place; later ones get the folders that a release adds, and no file.
func (p *Processes) mount(ctx context.Context, s *Spec, x *process, cmd *sandbox.Command, tree string) error {
	root, err := os.OpenRoot(tree)
	if err != nil {
		return fmt.Errorf("open program: %w", err)
	}
	x.files.tree = root
	for _, st := range s.Storage {
		name, err := cleanStorage(st.Path)
		if err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		own := st.Name
		if own == "" {
			own = name
		}
		if own, err = cleanStorage(own); err != nil {
			return err
		}
		dir, err := p.storage(s.Site, own, root, name, cmd.UID)
		if err != nil {
			return err
		}
		if err := mountPoint(root, name); err != nil {
			return &fault.Error{Kind: fault.Invalid, Message: fmt.Sprintf("The folder %s can't be storage", name), Code: "invalid_storage", Details: "the release has a file or a link at that place"}
		}
		opened, err := os.OpenRoot(dir)
		if err != nil {
			return fmt.Errorf("open storage: %w", err)
		}
		x.files.mounts = append(x.files.mounts, mounted{name, opened})
		cmd.Binds = append(cmd.Binds, sandbox.Bind{Source: dir, Target: path.Join(AppDir, name), Write: true})
	}
	slices.SortFunc(x.files.mounts, func(a, b mounted) int { return len(b.at) - len(a.at) })
	return nil
}

// cleanStorage returns a storage folder's path in its canonical form.
func cleanStorage(name string) (string, error) {
	clean := strings.TrimPrefix(path.Clean("/"+name), "/")
	if clean == "" || len(clean) > 200 || strings.ContainsFunc(clean, func(r rune) bool { return r < ' ' || r == '\\' || r == 0x7f }) {
		return "", &fault.Error{Kind: fault.Invalid, Message: "Invalid storage folder", Details: "a folder of the project, such as storage or public/uploads", Received: name, Code: "invalid_storage"}
	}
	return clean, nil
}

// mountPoint makes sure that a bundle's tree has a folder at a place. An empty folder more
// changes nothing for others that share the tree.
func mountPoint(root *os.Root, name string) error {
	if err := root.MkdirAll(name, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	at := ""
	for part := range strings.SplitSeq(name, "/") {
		at = path.Join(at, part)
		if info, err := root.Lstat(at); err != nil || !info.IsDir() {
			return errors.New("not a folder")
		}
	}
	return nil
}

// siteStorage is the directory that holds a site's storage: one directory for each of its
// folders, named so that none lies in another.
func (p *Processes) siteStorage(site string) string {
	return filepath.Join(p.c.Storage, site)
}

func storageName(name string) string {
	return strings.ReplaceAll(strings.ReplaceAll(name, "%", "%25"), "/", "%2F")
}

// storage returns the host's directory of a site's folder, making it where it is new.
func (p *Processes) storage(site, own string, tree *os.Root, name string, uid int) (string, error) {
	if p.c.Storage == "" || site == "" || strings.ContainsAny(site, "/.") {
		return "", &fault.Error{Kind: fault.Unavailable, Message: "This server has no storage for applications", Code: "no_storage"}
	}
	parent := p.siteStorage(site)
	if err := os.MkdirAll(parent, 0o711); err != nil {
		return "", fmt.Errorf("make storage: %w", err)
	}
	dir := filepath.Join(parent, storageName(own))
	fresh := false
	info, err := os.Lstat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		fresh = true
		tmp, err := os.MkdirTemp(parent, ".new-")
		if err != nil {
			return "", fmt.Errorf("make storage: %w", err)
		}
		defer os.RemoveAll(tmp)
		if err := fill(tree, name, tmp, true); err != nil {
			return "", fmt.Errorf("fill storage: %w", err)
		}
		if err := sandbox.Own(tmp, uid); err != nil {
			return "", err
		}
		if err := os.Chmod(tmp, 0o755); err != nil {
			return "", fmt.Errorf("make storage: %w", err)
		}
		if err := unix.Renameat2(unix.AT_FDCWD, tmp, unix.AT_FDCWD, dir, unix.RENAME_NOREPLACE); err != nil && !errors.Is(err, unix.EEXIST) {
			return "", fmt.Errorf("make storage: %w", err)
		}
		info, err = os.Lstat(dir)
		if err != nil {
			return "", fmt.Errorf("make storage: %w", err)
		}
	} else if err != nil {
		return "", fmt.Errorf("open storage: %w", err)
	}
	if owner(info) != uid && os.Geteuid() == 0 { // the site has got another identity since
		if err := sandbox.Own(dir, uid); err != nil {
			return "", err
		}
	}
	if !fresh {
		if err := folders(tree, name, dir, uid); err != nil {
			return "", fmt.Errorf("fill storage: %w", err)
		}
	}
	return dir, nil
}

// The most that is copied from a bundle into a new folder.
const (
	maxFill      = 20_000
	maxFillBytes = 1 << 30
)

// fill copies what a tree has below name into dir.
func fill(tree *os.Root, name, dir string, files bool) error {
	into, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer into.Close()
	n, bytes := 0, int64(0)
	return fs.WalkDir(tree.FS(), name, func(at string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) && at == name {
			return nil
		}
		if err != nil {
			return err
		}
		rel, ok := strings.CutPrefix(at, name)
		rel = strings.TrimPrefix(rel, "/")
		if !ok || rel == "" {
			return nil
		}
		if n++; n > maxFill {
			return &fault.Error{Kind: fault.Invalid, Message: fmt.Sprintf("The folder %s has too many files to begin as storage", name), Details: fmt.Sprintf("at most %d", maxFill), Code: "invalid_storage"}
		}
		switch {
		case e.IsDir():
			return into.Mkdir(rel, 0o755)
		case e.Type().IsRegular() && files:
			src, err := tree.Open(at)
			if err != nil {
				return err
			}
			defer src.Close()
			dst, err := into.OpenFile(rel, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
			if err != nil {
				return err
			}
			m, err := io.Copy(dst, src)
			if bytes += m; err == nil && bytes > maxFillBytes {
				err = &fault.Error{Kind: fault.Invalid, Message: fmt.Sprintf("The folder %s has too much in it to begin as storage", name), Details: "at most 1 GiB", Code: "invalid_storage"}
			}
			return errors.Join(err, dst.Close())
		}
		return nil
	})
}

// folders makes those folders of the bundle that storage lacks.
func folders(tree *os.Root, name, dir string, uid int) error {
	into, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer into.Close()
	n := 0
	return fs.WalkDir(tree.FS(), name, func(at string, e fs.DirEntry, err error) error {
		if err != nil {
			if errors.Is(err, fs.ErrNotExist) && at == name {
				return nil
			}
			return err
		}
		rel := strings.TrimPrefix(strings.TrimPrefix(at, name), "/")
		if !e.IsDir() || rel == "" {
			return nil
		}
		if n++; n > maxFill {
			return fs.SkipAll
		}
		if err := into.Mkdir(rel, 0o755); err != nil {
			if errors.Is(err, fs.ErrExist) {
				return nil
			}
			return fs.SkipDir // the site has something else there
		}
		if os.Geteuid() == 0 {
			return into.Lchown(rel, uid, uid)
		}
		return nil
	})
}
