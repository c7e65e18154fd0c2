// Package gc owns garbage collection: deleting stored blobs that nothing refers to, and returning free pages of the
// database to the disk.
//
// Every package that refers to blobs registers its roots. A collection is a job that runs on
// one node at a time: it asks all roots, and deletes blobs that none of them marks and that
// have not been put for longer than the grace period. If a root can't be read, nothing is
// deleted. Blobs that other nodes put meanwhile are safe: a put renews the blob's age, and
// running deletions are recorded in the database (Record), which a put checks afterwards.
//
// The package doesn't know what blobs are for.
package gc

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"time"

	"slipway/internal/platform/blob"
	"slipway/internal/platform/db"
	"slipway/internal/platform/job"
)

// Roots marks every blob that must stay; marking one twice is fine. It must mark each blob that is referenced when
// Roots is called and stays referenced.
type Roots func(ctx context.Context, mark func(blob.Digest)) error

// Config holds what a Collector needs.
type Config struct {
	DB    *db.DB
	Blobs *blob.Store
	Log   *slog.Logger
	// Grace is how long unmarked blobs stay. Optional: 0 means the constant of this name.
	Grace time.Duration
	Every time.Duration // Optional: 0 means an hour.
}

// Grace is longer than any time between a put of a blob and its reference.
const Grace = 2 * time.Hour

// Collector collects garbage. Register all roots, then call [Collector.Work].
type Collector struct {
	c     Config
	roots []root
}

type root struct {
	name string
	mark Roots
}

// New returns a Collector without roots, which refuses to collect.
func New(c Config) *Collector {
	c.Grace = cmp.Or(c.Grace, Grace)
	c.Every = cmp.Or(c.Every, time.Hour)
	return &Collector{c: c}
}

// Register adds roots under a name for errors.
func (c *Collector) Register(name string, roots Roots) { c.roots = append(c.roots, root{name, roots}) }

// Job is the collection job. Only one exists, and it repeats.
type Job struct{}

// Kind names the job.
func (Job) Kind() string { return "gc.collect" }

// Work registers the job.
func (c *Collector) Work(j *job.Jobs) {
	job.Handle(j, job.Policy{Timeout: 6 * time.Hour, Attempts: 1 << 30}, func(ctx context.Context, _ Job, _ int64) error {
		if _, err := c.Collect(ctx); err != nil {
			return err
		}
		return job.Later(c.c.Every)
	})
}

// Schedule makes sure that the job exists.
func (c *Collector) Schedule(ctx context.Context) error {
	return c.c.DB.Write(ctx, func(tx *db.Tx) error {
		_, err := job.Enqueue(ctx, tx, Job{}, job.Options{Unique: Job{}.Kind(), At: db.Now().Add(min(time.Minute, c.c.Every))})
		return err
	})
}

// Freed says what a collection freed.
type Freed struct {
	blob.Swept
	Database int64 // bytes that the database's file is smaller
	Rewrite  bool  // the database's file can't get smaller before it is rewritten
}

// Collect deletes unreferenced blobs and shrinks the database's file.
func (c *Collector) Collect(ctx context.Context) (done Freed, err error) {
	if len(c.roots) == 0 {
		return done, fmt.Errorf("collect garbage: no roots are registered")
	}
	// Eight bytes of a digest suffice: a collision only keeps some garbage.
	keep := map[uint64]struct{}{}
	for _, r := range c.roots {
		err := r.mark(ctx, func(d blob.Digest) { keep[binary.LittleEndian.Uint64(d[:])] = struct{}{} })
		if err != nil {
			return done, fmt.Errorf("collect garbage: roots of %s: %w", r.name, err)
		}
	}
	done.Swept, err = c.c.Blobs.Sweep(ctx, func(d blob.Digest) bool {
		_, ok := keep[binary.LittleEndian.Uint64(d[:])]
		return ok
	}, c.c.Grace)
	if done.Files > 0 {
		c.c.Log.InfoContext(ctx, "unreferenced files deleted", "files", done.Files, "bytes", done.Bytes)
	}
	if err != nil {
		return done, fmt.Errorf("collect garbage: %w", err)
	}
	if done.Database, err = c.c.DB.Shrink(ctx); done.Database > 0 {
		c.c.Log.InfoContext(ctx, "free space of the database returned", "bytes", done.Database)
	}
	if err == nil {
		done.Rewrite, err = c.c.DB.Rigid(ctx)
	}
	return done, err
}
