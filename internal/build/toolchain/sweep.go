package toolchain

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"slipway/internal/platform/lease"
)

// Sweep removes tools until at most maxBytes are kept, the least recently used first,
// and what crashed installations left behind. One that a build uses, in whatever
// process, stays and counts.
func (t *Toolchain) Sweep(ctx context.Context, maxBytes int64) error {
	for _, place := range []string{"new", "work"} {
		list, err := os.ReadDir(filepath.Join(t.c.Dir, place))
		if err != nil {
			return fmt.Errorf("sweep tools: %w", err)
		}
		for _, e := range list {
			// Whoever works there holds the lock; without a holder it is a crash's.
			if _, err := t.removeUnused(e.Name(), filepath.Join(t.c.Dir, place, e.Name())); err != nil {
				return err
			}
		}
	}
	type tool struct {
		key  string
		size int64
		used time.Time
	}
	list, err := os.ReadDir(filepath.Join(t.c.Dir, "kept"))
	if err != nil {
		return fmt.Errorf("sweep tools: %w", err)
	}
	var tools []tool
	var total int64
	for _, e := range list {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		one := tool{key: e.Name()}
		if one.size, err = size(filepath.Join(t.c.Dir, "kept", e.Name())); err != nil {
			return fmt.Errorf("sweep tools: %w", err)
		}
		if st, err := os.Stat(t.locks.Path(e.Name())); err == nil {
			one.used = st.ModTime()
		}
		total += one.size
		tools = append(tools, one)
	}
	slices.SortFunc(tools, func(a, b tool) int { return a.used.Compare(b.used) })
	for _, one := range tools {
		if total <= maxBytes {
			break
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		gone, err := t.removeUnused(one.key, filepath.Join(t.c.Dir, "kept", one.key))
		if err != nil {
			return err
		}
		if gone {
			total -= one.size
			t.c.Log.InfoContext(ctx, "tool removed", "tool", one.key, "bytes", one.size, "used", one.used)
		}
	}
	return nil
}

// removeUnused removes path if nobody holds the lock of key.
func (t *Toolchain) removeUnused(key, path string) (bool, error) {
	l, err := t.locks.Try(key, true)
	if l == nil || err != nil {
		return false, err
	}
	defer lease.Unlock(l)
	// Under another name first: half a tool must not look like one.
	if gone := filepath.Join(t.c.Dir, "new", key); path != gone {
		if err := os.RemoveAll(gone); err != nil {
			return false, fmt.Errorf("sweep %s: %w", key, err)
		}
		if err := os.Rename(path, gone); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return false, fmt.Errorf("sweep %s: %w", key, err)
		}
		path = gone
	}
	if err := os.RemoveAll(path); err != nil {
		return false, fmt.Errorf("sweep %s: %w", key, err)
	}
	return true, nil
}

// size returns what a tree takes on disk, a file with several names once. A tree that goes
// away meanwhile has no size.
func size(dir string) (int64, error) {
	var sum int64
	seen := map[uint64]bool{}
	err := filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		st := info.Sys().(*syscall.Stat_t)
		if st.Nlink > 1 && !e.IsDir() {
			if seen[st.Ino] {
				return nil
			}
			seen[st.Ino] = true
		}
		sum += st.Blocks * 512
		return nil
	})
	return sum, err
}
