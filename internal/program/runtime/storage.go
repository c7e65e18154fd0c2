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

	"slipway/internal/platform/id"

	"golang.org/x/sys/unix"

	"slipway/internal/platform/fault"
	"slipway/internal/platform/sandbox"
)

// store names the storage of a program: its site's, or that of one of the site's previews.
func (s Spec) store() id.Site {
	if s.Preview != "" {
		return storeOf(s.Site, s.Preview)
	}
	return s.Site
}

const previewStore = "-preview"

// StorageDir returns the directory of this host that holds a site's storage, and whether
// there is one: a directory for each of the site's folders, under the name that
// StorageName gives it. A backup reads it while programs may write to it.
func (p *Processes) StorageDir(site id.Site) (dir string, ok bool) {
	if p.c.Storage == "" || !siteName(site) {
		return "", false
	}
	dir = filepath.Join(p.c.Storage, string(site))
	info, err := os.Lstat(dir)
	return dir, err == nil && info.IsDir()
}

// FetchStorage does nothing: storage is on this host.
func (p *Processes) FetchStorage(context.Context, id.Site) (io.Closer, error) {
	return io.NopCloser(nil), nil
}

// KeepStorage does nothing.
func (p *Processes) KeepStorage(context.Context, id.Site) error { return nil }

// StorageFolders lists the folders of a site's storage by their paths in the project, each
// with the directory of this host that holds it; "@sessions" has PHP's sessions.
func (p *Processes) StorageFolders(site id.Site) (map[string]string, error) {
	if err := p.c.Volume.Verify(); err != nil { // what is not mounted seems to be empty
		return nil, err
	}
	dir, ok := p.StorageDir(site)
	if !ok {
		return nil, nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("list storage: %w", err)
	}
	list := map[string]string{}
	for _, e := range entries {
		if name, ok := folderName(e.Name()); ok && e.IsDir() {
			list[name] = filepath.Join(dir, e.Name())
		}
	}
	return list, nil
}

// StorageSites lists the sites that have storage here.
func (p *Processes) StorageSites() (sites []id.Site, err error) {
	if p.c.Storage == "" {
		return nil, nil
	}
	if err := p.c.Volume.Verify(); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(p.c.Storage)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list storage: %w", err)
	}
	for _, e := range entries {
		if name, _, _ := strings.Cut(e.Name(), previewStore); siteName(id.Site(name)) && e.IsDir() && !slices.Contains(sites, id.Site(name)) {
			sites = append(sites, id.Site(name))
		}
	}
	return sites, nil
}

// StorageSize returns the bytes on disk of a site's storage, that of its previews included.
func (p *Processes) StorageSize(_ context.Context, site id.Site) (n int64, err error) {
	stores, err := p.stores(site)
	for _, store := range stores {
		if dir, ok := p.StorageDir(store); ok {
			n += sandbox.Size(dir, maxMeasured)
		}
	}
	return n, err
}

// stores lists the storage of a site and of its previews.
func (p *Processes) stores(site id.Site) ([]id.Site, error) {
	previews, err := p.PreviewStores()
	list := []id.Site{site}
	for _, name := range previews[site] {
		list = append(list, storeOf(site, name))
	}
	return list, err
}

func storeOf(site id.Site, preview string) id.Site {
	return id.Site(strings.TrimSuffix(string(site)+previewStore+"-"+preview, "-"))
}

// PreviewStores lists the previews that have storage here, by their sites. An empty name is
// what all previews of a site shared once.
func (p *Processes) PreviewStores() (map[id.Site][]string, error) {
	if p.c.Storage == "" {
		return nil, nil
	}
	if err := p.c.Volume.Verify(); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(p.c.Storage)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list storage: %w", err)
	}
	list := map[id.Site][]string{}
	for _, e := range entries {
		if site, name, ok := strings.Cut(e.Name(), previewStore); ok && siteName(id.Site(site)) && e.IsDir() {
			list[id.Site(site)] = append(list[id.Site(site)], strings.TrimPrefix(name, "-"))
		}
	}
	return list, nil
}

// ForgetPreview deletes the storage of a preview.
func (p *Processes) ForgetPreview(site id.Site, preview string) error {
	if dir, ok := p.StorageDir(storeOf(site, preview)); ok {
		if err := os.RemoveAll(dir); err != nil {
			return fmt.Errorf("delete storage of preview: %w", err)
		}
	}
	return nil
}

// maxMeasured is far beyond what storage can hold.
const maxMeasured = 1 << 50

// ForgetStorage deletes a site's storage, that of its previews included.
func (p *Processes) ForgetStorage(site id.Site) error {
	stores, err := p.stores(site)
	if err != nil {
		return err
	}
	for _, store := range stores {
		if dir, ok := p.StorageDir(store); ok {
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}
	if err != nil {
		return fmt.Errorf("delete storage: %w", err)
	}
	return nil
}

// MakeStorage makes a folder of a site's storage, for a path in the project, and returns the
// directory of this host that holds it.
func (p *Processes) MakeStorage(ctx context.Context, site id.Site, name string) (dir string, err error) {
	if name != sessions && (name == "" || path.Clean("/"+name) != "/"+name || strings.ContainsRune(name, 0)) {
		return "", &fault.Error{Kind: fault.Invalid, Message: "Invalid storage folder", Received: name, Code: "invalid_storage"}
	}
	if have, err := p.StorageFolders(site); err != nil || have[name] != "" {
		return have[name], err
	}
	uid, err := p.c.Users.UID(ctx, site)
	if err != nil {
		return "", err
	}
	return p.storage(site, name, nil, name, uid)
}

// StorageShared reports whether other nodes have the storage of sites too.
func (p *Processes) StorageShared() bool { return p.c.Volume.Shared() }

// StorageFault returns a fault while the storage of sites can't be used, as far as is known. It waits for nothing.
func (p *Processes) StorageFault() error { return p.c.Volume.Check() }

// siteName reports whether a site's id may name a directory.
func siteName(site id.Site) bool {
	return site != "" && len(site) < 100 && !strings.ContainsAny(string(site), "/.\x00")
}

// FolderOf returns the folder that a directory of storage is for, by the name that StorageName gave it.
func FolderOf(dir string) string {
	return strings.ReplaceAll(strings.ReplaceAll(dir, "%2F", "/"), "%25", "%")
}

// folderName is the folder that a directory of storage is for.
func folderName(dir string) (string, bool) {
	if strings.HasPrefix(dir, ".") {
		return "", false // half made
	}
	return FolderOf(dir), true
}

// StorageName names the directory of a folder, so that none lies in another.
func StorageName(name string) string {
	return strings.ReplaceAll(strings.ReplaceAll(name, "%", "%25"), "/", "%2F")
}

// storage returns the host's directory of a site's folder, making it where it is new.
func (p *Processes) storage(site id.Site, own string, tree *os.Root, name string, uid int) (string, error) {
	if p.c.Storage == "" || !siteName(site) {
		return "", &fault.Error{Kind: fault.Unavailable, Message: "This server has no storage for applications", Code: "no_storage"}
	}
	if err := p.c.Volume.Verify(); err != nil {
		return "", err
	}
	return MakeFolder(filepath.Join(p.c.Storage, string(site)), own, tree, name, uid)
}

// MakeFolder returns the directory of a folder of storage below parent, making it where it is new. own is the folder's name. It
// begins as what tree has at name; a tree of nil has nothing.
func MakeFolder(parent, own string, tree *os.Root, name string, uid int) (string, error) {
	if err := os.MkdirAll(parent, 0o711); err != nil {
		return "", fmt.Errorf("make storage: %w", err)
	}
	dir := filepath.Join(parent, StorageName(own))
	isNew := false
	info, err := os.Lstat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		isNew = true
		tmp, err := os.MkdirTemp(parent, ".new-")
		if err != nil {
			return "", fmt.Errorf("make storage: %w", err)
		}
		defer os.RemoveAll(tmp)
		if tree != nil {
			if err := fill(tree, name, tmp); err != nil {
				return "", fmt.Errorf("fill storage: %w", err)
			}
		}
		if err := sandbox.Own(tmp, uid); err != nil {
			return "", err
		}
		if err := os.Chmod(tmp, 0o755); err != nil {
			return "", fmt.Errorf("make storage: %w", err)
		}
		if err := unix.Renameat2(
			unix.AT_FDCWD, tmp, unix.AT_FDCWD, dir, unix.RENAME_NOREPLACE,
		); err != nil && !errors.Is(err, unix.EEXIST) {
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
	if !isNew && tree != nil {
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
func fill(tree *os.Root, name, dir string) error {
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
			return fault.New(fault.Invalid, "invalid_storage",
				fmt.Sprintf("The folder %s has too many files to become storage", name),
				fmt.Sprintf("at most %d", maxFill))
		}
		switch {
		case e.IsDir():
			return into.Mkdir(rel, 0o755)
		case e.Type().IsRegular():
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
				err = fault.New(fault.Invalid, "invalid_storage", fmt.Sprintf("The folder %s is too large to become storage", name),
					"at most 1 GiB")
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

// fresh makes a folder that goes with the program: it begins as what the bundle has there.
func fresh(dir string, tree *os.Root, name string, uid int) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make temporary folder: %w", err)
	}
	if err := fill(tree, name, dir); err != nil {
		return fmt.Errorf("fill temporary folder: %w", err)
	}
	return sandbox.Own(dir, uid)
}

// Who starts with full storage has StorageGrace to make room; with storageExcess and a
// quarter of the limit more than it may have, storage is read-only.
const (
	StorageGrace  = 16 << 20
	storageExcess = 64 << 20
)

// StorageMost is how much storage may hold for its site's programs to write to it, beside their limit.
func StorageMost(limit int64) int64 { return limit + limit/4 + storageExcess }

// StorageFull says that a program starts with more than it may store.
func StorageFull(used, limit int64) string {
	return "Storage is full: " + mebibytes(used) + " of " + mebibytes(limit) + "; delete files or raise run.storageMiB"
}

// StorageReadOnly says that it may not even write.
func StorageReadOnly(used, limit int64) string {
	return "Storage is full and read-only: " + mebibytes(used) + " of " + mebibytes(limit) + "; raise run.storageMiB to write to it again"
}

// bound holds a program's storage to its limit.
func (p *Processes) bound(s *Spec, cmd *sandbox.Command) {
	limit := s.Limits.Storage
	if limit <= 0 {
		return
	}
	most := StorageMost(limit)
	used := int64(0)
	for _, b := range cmd.Binds {
		if b.Stored && used <= most {
			used += sandbox.Size(b.Source, most)
		}
	}
	switch {
	case used > most:
		for i := range cmd.Binds {
			if cmd.Binds[i].Stored {
				cmd.Binds[i].Write = false
			}
		}
		p.say(s, StorageReadOnly(used, limit))
	case used > limit:
		limit = used + StorageGrace
		p.say(s, StorageFull(used, s.Limits.Storage))
	}
	cmd.Limits.Stored = limit
}

func (p *Processes) say(s *Spec, line string) {
	if s.Output != nil {
		s.Output("system", line)
	}
}

func mebibytes(n int64) string { return fmt.Sprintf("%d MiB", (n+1<<20-1)>>20) }
