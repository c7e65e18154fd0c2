package gc_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"slipway/internal/platform/blob"
	"slipway/internal/platform/blob/s3test"
	"slipway/internal/platform/db"
	"slipway/internal/platform/dbtest"
	"slipway/internal/platform/gc"
	"slipway/internal/platform/job"
	"slipway/internal/platform/wait"
)

// node is one process of an installation: its database handle, store and collector.
type node struct {
	*gc.Collector
	db    *db.DB
	blobs *blob.Store
}

// world is an installation whose nodes share a directory or bucket.
type world struct {
	t    *testing.T
	url  string
	at   string // URL of the store
	path string // where the store's objects are

	mu    sync.Mutex // guards roots
	roots map[blob.Digest]bool
	fails error
}

func (w *world) node() *node {
	w.t.Helper()
	d := dbtest.Open(w.t, w.url)
	s, err := blob.Open(w.at, blob.Options{Cache: w.t.TempDir(), Deletions: gc.NewRecord(d)})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(s.Close)
	n := &node{gc.New(gc.Config{DB: d, Blobs: s, Log: slog.New(slog.DiscardHandler), Grace: time.Hour, Every: time.Hour}), d, s}
	n.Register("test", func(_ context.Context, mark func(blob.Digest)) error {
		w.mu.Lock()
		defer w.mu.Unlock()
		for d := range w.roots {
			mark(d)
		}
		return w.fails
	})
	return n
}

func (w *world) put(n *node, text string) blob.Digest {
	w.t.Helper()
	d, _, err := n.blobs.Put(w.t.Context(), strings.NewReader(text))
	if err != nil {
		w.t.Fatal(err)
	}
	return d
}

// age makes all stored objects a day old.
func (w *world) age() {
	w.t.Helper()
	yesterday := time.Now().Add(-24 * time.Hour)
	filepath.Walk(w.path, func(p string, info fs.FileInfo, err error) error {
		if err == nil && info.Mode().IsRegular() {
			os.Chtimes(p, yesterday, yesterday) // may fail for objects that a sweep deletes at the same time
		}
		return nil
	})
}

// there reports whether the original exists, regardless of cached copies.
func (w *world) there(d blob.Digest) bool {
	w.t.Helper()
	name := d.String()
	if w.path == w.at {
		name = filepath.Join(name[:2], name)
	}
	_, err := os.Stat(filepath.Join(w.path, name))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		w.t.Error(err)
	}
	return err == nil
}

func everywhere(t *testing.T, test func(t *testing.T, w *world)) {
	server := s3test.New(t)
	for _, where := range []string{"directory", "s3"} {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			w := &world{t: t, url: dbtest.URL(t), at: filepath.Join(t.TempDir(), "blobs"), roots: map[blob.Digest]bool{}}
			w.path = w.at
			if where == "s3" {
				w.at = server.Bucket(t)
				w.path = server.Path(w.at)
			}
			test(t, w)
		})
	}
}

// Marked and new blobs stay, others are deleted, and if roots can't be read, everything stays.
func TestCollect(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, w *world) {
		n := w.node()
		marked, garbage := w.put(n, "marked"), w.put(n, "garbage")
		w.roots[marked] = true
		w.age()
		young := w.put(n, "young")
		w.fails = errors.New("unreadable")
		if done, err := n.Collect(t.Context()); err == nil || done.Files != 0 || !w.there(garbage) ||
			!strings.Contains(err.Error(), "roots of test") {
			t.Errorf("with an unreadable root: %+v, %v", done, err)
		}
		w.fails = nil
		if done, err := n.Collect(t.Context()); done.Swept != (blob.Swept{Files: 1, Bytes: 7, Young: 1, YoungBytes: 5}) || err != nil {
			t.Errorf("collected %+v, %v; want 1 of 7 bytes, and a young one of 5", done, err)
		}
		if !w.there(marked) || !w.there(young) || w.there(garbage) {
			t.Errorf("marked %v, young %v, garbage %v", w.there(marked), w.there(young), w.there(garbage))
		}
		if _, err := gc.New(gc.Config{DB: n.db, Blobs: n.blobs, Log: slog.New(slog.DiscardHandler)}).Collect(t.Context()); err == nil {
			t.Error("Collect succeeded without any root")
		}
	})
}

// One node sweeps continuously while another publishes blobs that are old garbage. All acknowledged, referenced blobs
// exist.
func TestCollectWhileAnotherNodePublishes(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, w *world) {
		publisher := w.node()
		sweeper := publisher // SQLite has a single process
		if !publisher.db.Single() {
			sweeper = w.node()
		}
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		swept := 0
		wg.Go(func() {
			for ctx.Err() == nil {
				w.age()
				done, err := sweeper.Collect(ctx)
				if err != nil && ctx.Err() == nil {
					t.Error(err)
				}
				swept += done.Files
			}
		})
		for i := range 40 {
			var mine []blob.Digest
			for try := 0; ; try++ {
				mine = nil
				b := publisher.blobs.Batch(t.Context())
				for j := range 5 {
					d, err := b.PutBytes([]byte(fmt.Sprint("file ", (i+j)%9)))
					if err != nil {
						t.Fatal(err)
					}
					mine = append(mine, d)
				}
				// Mark them before the acknowledgment, like a hold, because this test makes everything old.
				w.mu.Lock()
				for _, d := range mine {
					w.roots[d] = true
				}
				w.mu.Unlock()
				err := b.Flush()
				if err == nil {
					break
				}
				if !errors.Is(err, blob.ErrSwept) || try == 50 {
					t.Fatal(err)
				}
			}
			for _, d := range mine {
				if !w.there(d) {
					t.Errorf("round %d: %s was acknowledged, and is gone", i, d)
				}
			}
			w.mu.Lock()
			clear(w.roots)
			w.mu.Unlock()
		}
		cancel()
		wg.Wait()
		t.Logf("%d blobs were swept meanwhile", swept)
	})
}

// The recorded deletions of a sweeper that died don't delay puts for longer than blob.SweepTime.
func TestSweeperDies(t *testing.T) {
	t.Parallel()
	w := &world{t: t, url: dbtest.URL(t), at: t.TempDir(), roots: map[blob.Digest]bool{}}
	n := w.node()
	d := blob.Sum([]byte("x"))
	dead := gc.NewRecord(n.db)
	if err := dead.Begin(t.Context(), []blob.Digest{d}); err != nil {
		t.Fatal(err)
	}
	if got, err := gc.NewRecord(n.db).Since(t.Context(),
		time.Now().Add(-time.Hour)); err != nil || !maps.Equal(got, map[blob.Digest]bool{d: true}) {
		t.Errorf("under way: %v, %v", got, err)
	}
	if err := n.db.Write(t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), `UPDATE blob_deletions SET at = at - $1`, 2*blob.SweepTime.Milliseconds())
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if got, err := dead.Since(t.Context(), time.Now().Add(-time.Hour)); err != nil || !maps.Equal(got, map[blob.Digest]bool{d: false}) {
		t.Errorf("after its time: %v, %v", got, err)
	}
	// Another sweep's record of the same blob remains when the first one ends.
	if err := gc.NewRecord(n.db).Begin(t.Context(), []blob.Digest{d}); err != nil {
		t.Fatal(err)
	}
	if err := dead.End(t.Context(), []blob.Digest{d}); err != nil {
		t.Fatal(err)
	}
	if got, err := dead.Since(t.Context(), time.Now().Add(-time.Hour)); err != nil || !got[d] {
		t.Errorf("two sweeps, one of them over: %v, %v; want under way", got, err)
	}
	if got, err := dead.Since(t.Context(), time.Now().Add(time.Hour)); err != nil || len(got) > 0 {
		t.Errorf("later: %v, %v", got, err)
	}
}

// The collection is a job that repeats.
func TestJob(t *testing.T) {
	t.Parallel()
	w := &world{t: t, url: dbtest.URL(t), at: t.TempDir(), roots: map[blob.Digest]bool{}}
	w.path = w.at
	n := w.node()
	n.Collector = gc.New(gc.Config{DB: n.db, Blobs: n.blobs, Log: slog.New(slog.DiscardHandler), Grace: time.Hour, Every: time.Millisecond})
	n.Register("none", func(context.Context, func(blob.Digest)) error { return nil })
	var garbage []blob.Digest
	for i := range 3 {
		garbage = append(garbage, w.put(n, fmt.Sprint(i)))
	}
	w.age()
	for range 2 {
		if err := n.Schedule(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	var jobs int
	if err := n.db.QueryRow(t.Context(), `SELECT count(*) FROM jobs`).Scan(&jobs); err != nil || jobs != 1 {
		t.Errorf("%d jobs, %v", jobs, err)
	}
	j := job.New(job.Config{
		DB:     n.db,
		Log:    slog.New(slog.DiscardHandler),
		Queues: map[string]int{"default": 1},
		Poll:   10 * time.Millisecond,
	})
	n.Work(j)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- j.Run(ctx) }()
	wait.Until(t, "the job has collected", func() bool {
		return !slices.ContainsFunc(garbage, func(d blob.Digest) bool { return w.there(d) })
	})
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
