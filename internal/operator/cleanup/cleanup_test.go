package cleanup

import (
	"context"
	"encoding/json"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"slipway/internal/backup/backup"
	"slipway/internal/platform/blob"
	"slipway/internal/platform/db"
	"slipway/internal/platform/dbtest"
	"slipway/internal/platform/gc"
	"slipway/internal/platform/job"
	"slipway/internal/platform/wait"
	"slipway/internal/tenant/operation"
)

// The result of a garbage collection has the bytes freed, and those that a grace period still keeps.
func TestCollectOnRequest(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	dir := filepath.Join(t.TempDir(), "blobs")
	blobs, err := blob.OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	put := func(text string) {
		if _, _, err := blobs.Put(t.Context(), strings.NewReader(text)); err != nil {
			t.Fatal(err)
		}
	}
	put("garbage")
	old := time.Now().Add(-24 * time.Hour)
	if err := filepath.WalkDir(dir, func(p string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			err = os.Chtimes(p, old, old)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	put("young")
	garbage := gc.New(gc.Config{DB: d, Blobs: blobs, Log: slog.New(slog.DiscardHandler)})
	garbage.Register("test", func(context.Context, func(blob.Digest)) error { return nil })
	ops := operation.New(operation.Config{DB: d})
	jobs := job.New(job.Config{DB: d, Log: slog.New(slog.DiscardHandler), Queues: map[string]int{"default": 1}})
	New(Config{DB: d, Operations: ops, Garbage: garbage}).Work(jobs)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- jobs.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })

	var o operation.Operation
	if err := d.Write(t.Context(), func(tx *db.Tx) (err error) {
		o, err = BeginTx(t.Context(), tx, ops)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	wait.Until(t, "the operation ends", func() bool {
		o, err = ops.Get(t.Context(), backup.OfInstallation, o.ID)
		return err != nil || o.CompletedAt != 0
	})
	var freed gc.Freed
	if err := json.Unmarshal(o.Result, &freed); err != nil || o.Status != operation.Success {
		t.Fatalf("%+v, %v", o, err)
	}
	if want := (blob.Swept{Files: 1, Bytes: 7, Young: 1, YoungBytes: 5}); freed.Swept != want || freed.Rewrite {
		t.Errorf("%+v, want %+v", freed, want)
	}
}
