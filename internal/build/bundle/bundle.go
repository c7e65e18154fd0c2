// Package bundle owns the files that programs run from: the files of a build with their modes and links, stored as
// blobs under one manifest, whose digest is the bundle's name.
//
// Store reads a directory that an untrusted build wrote. It is durable when Store returns; what is already stored isn't
// written again. Open writes a bundle to the local disk, read-only, once per owner, and the owner's programs share that
// tree: files that several trees of an owner contain are hard links. Owners share no files, because link counts, times
// and locks would tell one what another has. The exceptions are files of the installation itself, such as WordPress's;
// they are hard links to the blobs if these are on the same file system. The package never runs anything and knows
// neither sites nor SQL.
package bundle

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"slipway/internal/platform/disk"
	"slipway/internal/platform/id"

	"slipway/internal/platform/blob"
)

// ID identifies a bundle: the digest of its manifest, 64 hexadecimal digits.
type ID = id.Bundle

// Config says where bundles are stored.
type Config struct {
	Blobs *blob.Store
	Dir   string       // private: trees on the local disk
	Log   *slog.Logger // Optional.

	MaxFiles int   // files and links of one bundle. Optional: 0 means 200,000.
	MaxBytes int64 // bytes of one bundle. Optional: 0 means 4 GiB.
}

// Bundles stores and opens bundles. It is safe for concurrent use.
type Bundles struct {
	c Config

	mu sync.Mutex // guards trees
	// share: total the bundles whose programs ran in the last day, on disk; owner those of its deployments; edge they go a day after their last use
	trees map[place]*tree
}

// place identifies the tree of a bundle for an owner.
type place struct {
	owner id.Owner
	id    ID
}

// commonFiles is the owner of files that all owners share.
const commonFiles = "common"

// tree is a bundle on the local disk.
type tree struct {
	made  sync.Mutex // held while the tree is written
	ready bool
	users int
	used  time.Time
}

// New returns Bundles and creates their directory. It deletes what an earlier process left incomplete.
func New(c Config) (*Bundles, error) {
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	c.MaxFiles = cmp.Or(c.MaxFiles, 200_000)
	c.MaxBytes = cmp.Or(c.MaxBytes, 4<<30)
	b := &Bundles{c: c, trees: map[place]*tree{}}
	if err := errors.Join(removeAll(b.path("tmp")), removeAll(b.path("trees")), b.distrust()); err != nil {
		return nil, fmt.Errorf("clear bundles: %w", err)
	}
	for _, dir := range []string{"tmp", treesDir, "files"} {
		if err := os.MkdirAll(b.path(dir), 0o711); err != nil {
			return nil, fmt.Errorf("make bundles: %w", err)
		}
	}
	return b, nil
}

// distrust deletes trees from before the machine's last boot: they weren't synced, so a power failure may have damaged
// them.
func (b *Bundles) distrust() error {
	return disk.AfterBoot(b.path("boot"), "by owner", func() error {
		return errors.Join(removeAll(b.path(treesDir)), removeAll(b.path("files")), os.MkdirAll(b.c.Dir, 0o711))
	})
}

func (b *Bundles) path(elem ...string) string {
	return filepath.Join(append([]string{b.c.Dir}, elem...)...)
}

// Open returns the directory of the bundle's tree for the programs of an owner. It is read-only and stays until done is
// called. The first call per bundle and owner writes it. owner consists of letters, digits, "-" and "_".
func (b *Bundles) Open(ctx context.Context, owner id.Owner, id ID) (dir string, done func(), err error) {
	if _, err := blob.ParseDigest(string(id)); err != nil {
		return "", nil, fmt.Errorf("open bundle: %w", err)
	}
	if !ownerName(owner) {
		return "", nil, fmt.Errorf("open bundle %.12s: %q is no owner", id, owner)
	}
	at := place{owner, id}
	t := b.take(at)
	t.made.Lock()
	defer t.made.Unlock()
	dir = b.treeOf(at)
	if !t.ready {
		if _, err := os.Lstat(dir); errors.Is(err, os.ErrNotExist) {
			if err := b.make(ctx, at, dir); err != nil {
				b.give(t)
				return "", nil, fmt.Errorf("open bundle %.12s: %w", id, err)
			}
		} else if err != nil {
			b.give(t)
			return "", nil, fmt.Errorf("open bundle %.12s: %w", id, err)
		}
		t.ready = true
	}
	return dir, sync.OnceFunc(func() { b.give(t) }), nil
}

func ownerName(owner id.Owner) bool {
	return owner != "" && owner != commonFiles && len(owner) <= 100 &&
		strings.Trim(string(owner), "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") == ""
}

// treesDir is the folder of trees. Versions of before have "trees", whose files no program may write to in a layer.
const treesDir = "trees2"

func (b *Bundles) treeOf(at place) string { return b.path(treesDir, string(at.owner), string(at.id)) }

func (b *Bundles) take(at place) *tree {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := b.trees[at]
	if t == nil {
		t = &tree{}
		b.trees[at] = t
	}
	t.users++
	return t
}

func (b *Bundles) give(t *tree) {
	b.mu.Lock()
	defer b.mu.Unlock()
	t.users--
	t.used = time.Now()
}

// How often unused trees are deleted, and how long they stay.
const (
	tidyEvery = time.Hour
	treeAge   = 24 * time.Hour
)

// Run deletes unused trees until ctx ends.
func (b *Bundles) Run(ctx context.Context) error {
	tick := time.NewTicker(tidyEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if err := b.Tidy(treeAge); err != nil {
			b.c.Log.WarnContext(ctx, "program files not tidied, will be retried", "err", err)
		}
	}
}

// Tidy deletes trees that were unused for longer than idle, and files that no tree contains any more. Open writes them
// again.
func (b *Bundles) Tidy(idle time.Duration) error {
	owners, err := os.ReadDir(b.path(treesDir))
	if err != nil {
		return fmt.Errorf("tidy bundles: %w", err)
	}
	for _, o := range owners {
		entries, err := os.ReadDir(b.path(treesDir, o.Name()))
		if err != nil {
			return fmt.Errorf("tidy bundles: %w", err)
		}
		for _, e := range entries {
			b.tidyTree(place{id.Owner(o.Name()), ID(e.Name())}, e, idle)
		}
	}
	return b.tidyFiles(idle)
}

func (b *Bundles) tidyTree(at place, e os.DirEntry, idle time.Duration) {
	t := b.take(at)
	t.made.Lock()
	b.mu.Lock()
	last := t.used
	if info, err := e.Info(); err == nil && last.IsZero() {
		last = info.ModTime() // written by an earlier process
	}
	unused := t.users == 1 && time.Since(last) > idle
	b.mu.Unlock()
	if unused {
		t.ready = false
		if err := removeAll(b.treeOf(at)); err != nil {
			b.c.Log.Warn("unused program files not removed", "bundle", at.id, "owner", at.owner, "err", err)
		}
	}
	t.made.Unlock()
	b.mu.Lock()
	defer b.mu.Unlock()
	t.users--
	if unused && t.users == 0 {
		delete(b.trees, at)
	}
}
