package build

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"slipway/internal/platform/id"

	"slipway/internal/platform/db"
	"slipway/internal/platform/sandbox"
)

// Limits: bytes of the caches of a site and branch, how long an unused cache is kept, and bytes of all downloaded
// Node.js versions and package managers.
const (
	maxTools = 8 << 30
	maxCache = 4 << 30
	cacheAge = 14 * 24 * time.Hour
	// A cache without a row in the database belongs to a site that another node deleted or whose cache it dropped, or
	// is just being created.
	unknownAge = 24 * time.Hour
)

// touch marks a cache as used now.
func (c cache) touch() error {
	now := time.Now()
	err := os.Chtimes(c.dir, now, now)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// size returns the bytes of a cache: the disk blocks of its files, but at least [sandbox.PerFile] per entry. Files that
// vanish meanwhile don't count. A folder that can't be read could hold anything, so the cache counts as too large.
func (c cache) size(ctx context.Context) (size int64, err error) {
	const block = 4096
	entries := int64(0)
	err = filepath.WalkDir(c.dir, func(_ string, e fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		size += block
		entries++
		if err == nil && e.Type().IsRegular() {
			var info fs.FileInfo
			if info, err = e.Info(); err == nil {
				size += info.Size() / block * block
			}
		}
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case errors.Is(err, fs.ErrPermission):
			size = math.MaxInt64
			return fs.SkipAll
		}
		return err
	})
	return max(size, entries*sandbox.PerFile), err
}

// busy tracks the caches that are in use.
type busy struct {
	mu   sync.Mutex // guards dirs
	free *sync.Cond
	// share: total the build caches in use; owner those of its builds that run; edge gone with the build
	dirs map[string]bool
}

func newBusy() *busy {
	b := &busy{dirs: map[string]bool{}}
	b.free = sync.NewCond(&b.mu)
	return b
}

// take reserves a cache if it isn't in use.
func (b *busy) take(dir string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.dirs[dir] {
		return false
	}
	b.dirs[dir] = true
	return true
}

// await waits until a cache isn't in use, and reserves it.
func (b *busy) await(ctx context.Context, dir string) error {
	return b.until(ctx, func() bool { return !b.dirs[dir] }, func() { b.dirs[dir] = true })
}

// quiet waits until no cache of a site is in use.
func (b *busy) quiet(ctx context.Context, dir string) error {
	return b.until(ctx, func() bool {
		for used := range b.dirs {
			if filepath.Dir(used) == dir {
				return false
			}
		}
		return true
	}, func() {})
}

// until waits until good returns true, then calls do. Both are called with mu held.
func (b *busy) until(ctx context.Context, good func() bool, do func()) error {
	defer context.AfterFunc(ctx, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.free.Broadcast()
	})()
	b.mu.Lock()
	defer b.mu.Unlock()
	for !good() {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		b.free.Wait()
	}
	do()
	return nil
}

func (b *busy) give(dir string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.dirs, dir)
	b.free.Broadcast()
}

// measure calls account after the build, whose context may have ended.
func (b *build) measure(ctx context.Context) {
	ctx, done := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer done()
	if err := errors.Join(b.account(ctx), b.makeRoom(ctx)); err != nil {
		b.c.Log.WarnContext(ctx, "build cache not measured", "site", b.Site, "err", err)
	}
}

// account records the size of the build's cache, and deletes the owner's oldest caches until all of them are within the
// owner's limit.
func (b *build) account(ctx context.Context) error {
	size, err := b.cache.size(ctx)
	if err != nil {
		return fmt.Errorf("measure cache: %w", err)
	}
	name := filepath.Base(b.cache.dir)
	if size > maxCache {
		if _, err := b.drop(ctx, b.Site, name); err != nil {
			return err
		}
	} else if err := b.c.DB.Write(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, `
			INSERT INTO build_caches (site_id, name, owner_id, bytes, used_at) VALUES ($1, $2, $3, $4, $5)
			ON CONFLICT (site_id, name) DO UPDATE SET owner_id = excluded.owner_id, bytes = excluded.bytes, used_at = excluded.used_at`,
			b.Site, name, b.Owner, size, db.Now())
		return err
	}); err != nil {
		return fmt.Errorf("record cache: %w", err)
	}
	if b.MaxCaches == nil {
		return nil
	}
	type kept struct {
		site  id.Site
		name  string
		bytes int64
	}
	rows, err := b.c.DB.Query(ctx,
		`SELECT site_id, name, bytes FROM build_caches WHERE owner_id = $1 ORDER BY used_at DESC, site_id, name`,
		b.Owner)
	all, err := db.Collect(rows, err, func(s db.Scanner) (k kept, err error) { return k, s.Scan(&k.site, &k.name, &k.bytes) })
	if err != nil {
		return fmt.Errorf("list caches: %w", err)
	}
	var sum int64
	for _, k := range all {
		sum += k.bytes
		if sum <= *b.MaxCaches {
			continue
		}
		if _, err := b.drop(ctx, k.site, k.name); err != nil {
			return err
		}
	}
	return nil
}

// makeRoom deletes unused caches of all owners, least recently used first, until the disk has enough room, and then
// unused tools.
func (b *Builds) makeRoom(ctx context.Context) error {
	if b.c.Disk == nil || b.c.Disk.Lacks() <= 0 {
		return nil
	}
	b.sweeping.Lock() // one goroutine may free what the next one needs
	defer b.sweeping.Unlock()
	dirs, err := filepath.Glob(filepath.Join(b.c.Dir, "caches", "*", "*"))
	if err != nil {
		return err
	}
	used := map[string]time.Time{}
	for _, dir := range dirs {
		if info, err := os.Stat(dir); err == nil {
			used[dir] = info.ModTime()
		}
	}
	for _, dir := range slices.SortedFunc(maps.Keys(used), func(x, y string) int { return used[x].Compare(used[y]) }) {
		if ctx.Err() != nil || b.c.Disk.Lacks() <= 0 {
			return ctx.Err()
		}
		site, name := id.Site(filepath.Base(filepath.Dir(dir))), filepath.Base(dir)
		gone, err := b.drop(ctx, site, name)
		if err != nil {
			return err
		}
		if gone {
			b.c.Log.InfoContext(ctx, "build cache removed: disk space is low", "site", site, "used", used[dir])
		}
	}
	if b.c.Toolchain == nil || b.c.Disk.Lacks() <= 0 {
		return ctx.Err()
	}
	if err := b.c.Toolchain.Sweep(ctx, 0); err != nil {
		return fmt.Errorf("make room: %w", err)
	}
	return nil
}

// drop deletes a cache unless a build is using it.
func (b *Builds) drop(ctx context.Context, site id.Site, name string) (gone bool, err error) {
	c := b.cacheAt(site, name)
	if !b.busy.take(c.dir) {
		return false, nil // it is measured again after that build
	}
	// Rename it first: deleting thousands of files takes time, and a build may want the place. Sweep deletes what a
	// crash leaves.
	aside := filepath.Join(filepath.Dir(c.dir), "gone-"+rand.Text())
	err = os.Rename(c.dir, aside)
	b.busy.give(c.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("drop cache: %w", err)
	}
	if err := removeTree(aside); err != nil {
		return false, fmt.Errorf("drop cache: %w", err)
	}
	return true, b.c.DB.Write(ctx, func(tx *db.Tx) error {
		if _, err := tx.Exec(ctx, `DELETE FROM build_caches WHERE site_id = $1 AND name = $2`, site, name); err != nil {
			return fmt.Errorf("drop cache: %w", err)
		}
		return nil
	})
}

// CacheUse returns the bytes of all caches of an owner's builds.
func (b *Builds) CacheUse(ctx context.Context, r db.Reader, owner id.Owner) (n int64, err error) {
	return n, r.QueryRow(ctx, `SELECT COALESCE(CAST(SUM(bytes) AS BIGINT), 0) FROM build_caches WHERE owner_id = $1`, owner).Scan(&n)
}

// Forget deletes all caches of a site without builds.
func (b *Builds) Forget(ctx context.Context, site id.Site) error {
	if b.c.Dir == "" {
		return nil
	}
	dir := filepath.Dir(b.cacheAt(site, "any").dir)
	if err := b.busy.quiet(ctx, dir); err != nil { // a build that has just ended may still be saving a cache
		return err
	}
	if err := removeTree(dir); err != nil {
		return err
	}
	return b.c.DB.Write(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, `DELETE FROM build_caches WHERE site_id = $1`, site)
		return err
	})
}

// Sweep deletes caches that are older than cacheAge or unknown to the database, then what the disk has no room for, and
// tools beyond their limit.
func (b *Builds) Sweep(ctx context.Context) error {
	if b.c.Dir == "" {
		return nil
	}
	if err := b.makeRoom(ctx); err != nil {
		return fmt.Errorf("sweep caches: %w", err)
	}
	dirs, err := filepath.Glob(filepath.Join(b.c.Dir, "caches", "*", "*"))
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		if err := ctx.Err(); err != nil {
			return err
		}
		info, err := os.Stat(dir)
		if err != nil || time.Since(info.ModTime()) < unknownAge {
			continue
		}
		site, name := id.Site(filepath.Base(filepath.Dir(dir))), filepath.Base(dir)
		var known bool
		if err := b.c.DB.QueryRow(ctx, `SELECT count(*) > 0 FROM build_caches WHERE site_id = $1 AND name = $2`, site,
			name).Scan(&known); err != nil {
			return fmt.Errorf("sweep caches: %w", err)
		}
		if known && time.Since(info.ModTime()) < cacheAge {
			continue
		}
		if _, err := b.drop(ctx, site, name); err != nil {
			return fmt.Errorf("sweep caches: %w", err)
		}
	}
	// Rows of nodes that no longer exist.
	if err := b.c.DB.Write(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, `DELETE FROM build_caches WHERE used_at < $1`, db.Now().Add(-cacheAge-unknownAge))
		return err
	}); err != nil {
		return fmt.Errorf("sweep caches: %w", err)
	}
	if b.c.Toolchain != nil {
		if err := b.c.Toolchain.Sweep(ctx, maxTools); err != nil {
			return fmt.Errorf("sweep tools: %w", err)
		}
	}
	return nil
}
