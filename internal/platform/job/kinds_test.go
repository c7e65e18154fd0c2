package job

import (
	"context"
	"log/slog"
	"slices"
	"testing"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/dbtest"
	"slipway/internal/platform/wait"
)

type novel struct{}

func (novel) Kind() string { return "test.novel" }

// During an upgrade, a new node enqueues jobs of a kind that an old node doesn't know. The old node leaves them, and
// reports them after they have waited for a while. The new node runs them.
func TestUnknownKindWaitsForANodeThatKnowsIt(t *testing.T) {
	t.Parallel()
	url := dbtest.URL(t)
	d := dbtest.Open(t, url)
	var r recorder
	old := start(t, d, 1, Policy{}, func(_ context.Context, a work, _ int64) error { r.add(a.Name); return nil })
	err := d.Write(t.Context(), func(tx *db.Tx) error {
		if _, err := Enqueue(t.Context(), tx, novel{}, Options{Group: "g"}); err != nil {
			return err
		}
		_, err := Enqueue(t.Context(), tx, work{"known"}, Options{})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	wait.Until(t, "the known job is done", func() bool { return slices.Equal(r.all(), []string{"known"}) && count(t, d, "TRUE") == 1 })
	if count(t, d, "state = 'ready' AND attempt = 0 AND failures = 0 AND error = ''") != 1 {
		t.Fatal("the old node changed a job of an unknown kind")
	}
	if got, err := Unknown(t.Context(), d); err != nil || len(got) > 0 {
		t.Errorf("reported at once: %v, %v", got, err)
	}
	long := db.Now().Add(-time.Hour)
	if err := d.Write(t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), `UPDATE jobs SET run_at = $1`, long)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if got, err := Unknown(t.Context(), d); err != nil || !slices.Equal(got, []Waiting{{"test.novel", 1, long}}) {
		t.Errorf("got %v, %v; want the kind that no node knows", got, err)
	}
	old.stop()
	if got, err := Unknown(t.Context(), d); err != nil || len(got) > 0 {
		t.Errorf("while nothing runs: %v, %v", got, err)
	}
	j := New(Config{DB: d, Log: slog.New(slog.DiscardHandler), Queues: map[string]int{"default": 1}, Poll: 20 * time.Millisecond})
	Handle(j, Policy{}, func(context.Context, novel, int64) error { r.add("novel"); return nil })
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- j.Run(ctx) }()
	wait.Until(t, "the new node does it", func() bool { return count(t, d, "TRUE") == 0 })
	if got, err := Unknown(t.Context(), d); err != nil || len(got) > 0 {
		t.Errorf("afterwards: %v, %v", got, err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	var n int
	if err := d.QueryRow(t.Context(), `SELECT count(*) FROM job_kinds`).Scan(&n); err != nil || n != 0 {
		t.Errorf("%d rows of stopped nodes are left, %v", n, err)
	}
}

// If a lease can't be renewed, its holder's context ends before others may take the row over.
func TestLeaseEndsWithoutTheDatabase(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	if d.Single() {
		t.Log("on SQLite nobody else can take a row over")
		return
	}
	l := &Leases{
		DB: d, Log: slog.New(slog.DiscardHandler), For: 50 * time.Millisecond,
		Renew: func(context.Context, *db.Tx, string, int64, db.Time) error { return context.DeadlineExceeded },
	}
	ctx, release := l.Hold(t.Context(), "x", 1)
	defer release()
	running, stop := context.WithCancel(t.Context())
	defer stop()
	go l.Run(running)
	<-ctx.Done()
	if cause := context.Cause(ctx); cause != ErrLost {
		t.Errorf("ended with %v, want ErrLost", cause)
	}
}

type renamed struct{ Name string }

func (renamed) Kind() string { return "test.renamed" }

// Jobs of a renamed kind run, whether they were enqueued under the old name earlier or by a node with an earlier
// version.
func TestFormerKindIsDone(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	var r recorder
	j := New(Config{DB: d, Log: slog.New(slog.DiscardHandler), Queues: map[string]int{"default": 1}, Poll: 20 * time.Millisecond})
	Handle(j, Policy{Formerly: "test.novel"}, func(_ context.Context, a renamed, _ int64) error { r.add("done " + a.Name); return nil })
	if err := d.Write(t.Context(), func(tx *db.Tx) error {
		_, err := Enqueue(t.Context(), tx, novel{}, Options{})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- j.Run(ctx) }()
	wait.Until(t, "the job of the former kind is done", func() bool {
		return slices.Equal(r.all(), []string{"done "}) && count(
			t,
			d,
			"TRUE",
		) == 0
	})
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}
