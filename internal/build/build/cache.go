package build

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"slipway/internal/platform/disk"
	"slipway/internal/platform/id"
)

// cache holds what one site and branch keep between builds: package stores, framework caches, and the installed modules
// with the key of what they were made from. The site's own builds wrote all of it, and no other site reads it.
type cache struct {
	dir string // directory of this site and branch; empty if caching is off
}

// A cache has the folders home/ (from HOME), tree/ (from the repository) and modules/ (the installed modules), and the
// file key, which says what the modules were made from.
func (b *Builds) cacheOf(site id.Site, branch string) cache {
	sum := sha256.Sum256([]byte(branch))
	return b.cacheAt(site, hex.EncodeToString(sum[:8]))
}

func (b *Builds) cacheAt(site id.Site, name string) cache {
	return cache{filepath.Join(b.c.Dir, "caches", string(site), name)}
}

func (c cache) path(elem ...string) string { return filepath.Join(append([]string{c.dir}, elem...)...) }

// clear deletes the cache.
func (c cache) clear() error { return removeTree(c.dir) }

// restore moves kept folders to where a build expects them, below work/at, as the site's uid. Moving is instant and
// needs no second copy; if the build fails, what it loses is made again. Existing folders are left alone. No process of
// the build runs meanwhile, but earlier ones may have left links anywhere below work.
func (c cache) restore(kind, work, at string, folders []string, uid int) error {
	for _, f := range folders {
		from, to := c.path(kind, slot(f)), filepath.Join(work, at, f)
		if _, err := os.Lstat(from); err != nil {
			continue
		}
		if ok, err := plainParents(work, filepath.Join(at, f), uid); err != nil || !ok {
			if err != nil {
				return fmt.Errorf("restore cache: %w", err)
			}
			continue
		}
		if _, err := os.Lstat(to); err == nil {
			continue
		}
		if err := os.Rename(from, to); err != nil {
			return fmt.Errorf("restore cache: %w", err)
		}
	}
	return nil
}

// save moves folders below work/at from a finished build into the cache.
func (c cache) save(kind, work, at string, folders []string) error {
	if err := os.MkdirAll(c.path(kind), 0o700); err != nil {
		return fmt.Errorf("save cache: %w", err)
	}
	for _, f := range folders {
		// A malicious build may have replaced the folder, or one of its parents, by a link.
		if !plainDir(work, filepath.Join(at, f)) {
			continue
		}
		from, to := filepath.Join(work, at, f), c.path(kind, slot(f))
		if err := removeTree(to); err != nil {
			return fmt.Errorf("save cache: %w", err)
		}
		if err := os.Rename(from, to); err != nil {
			return fmt.Errorf("save cache: %w", err)
		}
	}
	return nil
}

// plainParents creates the missing parents of root/folder, as uid. It returns false if one exists but isn't a
// directory: a repository may contain a link anywhere.
func plainParents(root, folder string, uid int) (bool, error) {
	at := root
	parts := strings.Split(filepath.Clean(folder), "/")
	for _, part := range parts[:len(parts)-1] {
		at = filepath.Join(at, part)
		info, err := os.Lstat(at)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			if err := os.Mkdir(at, 0o755); err != nil {
				return false, err
			}
			if os.Geteuid() == 0 {
				if err := os.Lchown(at, uid, uid); err != nil {
					return false, err
				}
			}
		case err != nil:
			return false, err
		case !info.IsDir():
			return false, nil
		}
	}
	return true, nil
}

// slot returns a folder's name in the cache: its path as a single name.
func slot(folder string) string {
	sum := sha256.Sum256([]byte(folder))
	return hex.EncodeToString(sum[:12])
}

// plainDir reports whether every step from root to the folder is a directory rather than a link.
func plainDir(root, folder string) bool {
	at := root
	for part := range strings.SplitSeq(filepath.Clean(folder), "/") {
		at = filepath.Join(at, part)
		info, err := os.Lstat(at)
		if err != nil || !info.IsDir() {
			return false
		}
	}
	return true
}

// takeKey returns and deletes the key of the kept modules, or "". It is deleted first, because the build that takes the
// modules may crash.
func (c cache) takeKey() (string, error) {
	b, err := os.ReadFile(c.path("key"))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err == nil {
		err = os.Remove(c.path("key"))
	}
	if err != nil {
		return "", fmt.Errorf("take cache key: %w", err)
	}
	return string(b), nil
}

// keep stores the key of the modules that were just saved. It must be called last.
func (c cache) keep(key string) error {
	// unsynced: Clear removes every key after a boot
	return os.WriteFile(c.path("key"), []byte(key), 0o600)
}

// distrust deletes, once after each boot, the keys of kept modules: a power failure may have emptied some files.
func (b *Builds) distrust() error {
	if _, err := os.Stat(b.c.Dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return disk.AfterBoot(filepath.Join(b.c.Dir, "caches.boot"), "", func() error {
		keys, err := filepath.Glob(filepath.Join(b.c.Dir, "caches", "*", "*", "key"))
		for _, key := range keys {
			err = errors.Join(err, os.Remove(key))
		}
		return err
	})
}

// cacheFolders returns the plan's folders to keep: those in HOME, or else those in the repository.
func (b *build) cacheFolders(home bool) []string {
	var out []string
	for _, f := range b.Plan.Cache {
		rest, inHome := strings.CutPrefix(f, "~/")
		switch {
		case inHome && home:
			out = append(out, rest)
		case !inHome && !home:
			out = append(out, path.Join(b.Plan.Root, f))
		}
	}
	return out
}

// saveCaches keeps what the next build can use. If saving fails, the next build is slower, but the deployment succeeds.
// Of a failed or canceled build, it keeps only package stores, because tools verify their entries; the other files may
// be the cause of the failure.
func (b *build) saveCaches(ctx context.Context, good bool) {
	err := b.cache.save("home", b.work, homeDir, b.cacheFolders(true))
	var key string
	if err == nil && good {
		if err = b.cache.save("tree", b.work, RepoDir, b.cacheFolders(false)); err == nil {
			key, err = b.modulesKey()
		}
	}
	if err == nil && key != "" {
		if err = b.cache.save("modules", b.work, RepoDir, b.Plan.Modules); err == nil {
			err = b.cache.keep(key)
		}
	}
	if err == nil {
		err = errors.Join(b.cache.keepNode(b.line), b.cache.touch())
	}
	if err != nil {
		b.c.Log.WarnContext(ctx, "build cache not saved", "site", b.Site, "err", err)
	}
	b.saved = true
}
