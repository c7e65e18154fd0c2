package job

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"testing"

	"slipway/internal/platform/db"
	"slipway/internal/platform/dbtest"
	"slipway/internal/platform/wait"
)

// refuse makes writes fail until take is called.
func refuse(t *testing.T, d *db.DB, err error) (take func()) {
	t.Helper()
	d.Guard(func(context.Context) error { return err })
	return func() { d.Guard(func(context.Context) error { return nil }) }
}

// over reports whether the running job's lease has ended.
func over(t *testing.T, d *db.DB) bool {
	t.Helper()
	return count(t, d, fmt.Sprintf("state = 'running' AND lease_until < %d", db.Now())) == 1
}

// A job that ends while the disk is full keeps its turn until its end is written. Then the next job of its group runs.
func TestEndOnAFullDisk(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]error{"success": nil, "failure": errors.New("no luck"), "later": Later(1)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := dbtest.New(t)
			var r recorder
			begun, full := make(chan struct{}, 1), make(chan struct{})
			start(t, d, 2, Policy{}, func(_ context.Context, a work, attempt int64) error {
				r.add(a.Name)
				if a.Name == "first" && attempt == 1 {
					begun <- struct{}{}
					<-full
					return end
				}
				return nil
			})
			enqueue(t, d, "first", Options{Group: "g", Unique: "u"})
			<-begun
			enqueue(t, d, "next", Options{Group: "g"})
			take := refuse(t, d, syscall.ENOSPC)
			close(full)
			// The lease ends meanwhile, because its renewals fail too.
			wait.Until(t, "the lease is over", func() bool { return over(t, d) })
			take()
			wait.Until(t, "both are done", func() bool { return count(t, d, "1=1") == 0 })
			if got := r.all(); d.Single() && end == nil && len(got) != 2 {
				t.Errorf("ran %v; want each once", got)
			}
		})
	}
}

// A job whose end couldn't be written runs again after its lease has ended, also with a single process.
func TestLostEnd(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	var r recorder
	start(t, d, 1, Policy{}, func(_ context.Context, a work, attempt int64) error {
		r.add(a.Name)
		if attempt == 1 {
			refuse(t, d, errors.New("an odd error"))
		}
		return nil
	})
	enqueue(t, d, "x", Options{})
	wait.Until(t, "it has run", func() bool { return len(r.all()) == 1 })
	d.Guard(func(context.Context) error { return nil })
	wait.Until(t, "it is done", func() bool { return count(t, d, "1=1") == 0 })
}

// A job that runs longer than its lease, because renewals fail, isn't started a second time by the only process.
func TestRunningIsNotRescued(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	if !d.Single() {
		t.Skip("with several nodes, another one takes it over")
	}
	var r recorder
	begun, end := make(chan struct{}, 2), make(chan struct{})
	j := start(t, d, 2, Policy{}, func(_ context.Context, a work, _ int64) error {
		r.add(a.Name)
		begun <- struct{}{}
		<-end
		return nil
	})
	enqueue(t, d, "x", Options{})
	<-begun
	take := refuse(t, d, syscall.ENOSPC)
	wait.Until(t, "the lease is over", func() bool { return over(t, d) })
	take()
	if err := j.rescue(t.Context(), d.Now().Add(1e9)); err != nil || count(t, d, "state = 'running'") != 1 {
		t.Errorf("%v, %d run", err, count(t, d, "state = 'running'"))
	}
	close(end)
	wait.Until(t, "it is done", func() bool { return count(t, d, "1=1") == 0 })
	if got := r.all(); len(got) != 1 {
		t.Errorf("ran %v; want it once", got)
	}
}

// If a canceled handler couldn't write the end of its work, it is called again, and the job isn't deleted before.
func TestCanceledOnAFullDisk(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	var r recorder
	begun, canceled, full := make(chan struct{}, 2), make(chan struct{}), make(chan struct{})
	start(t, d, 1, Policy{}, func(ctx context.Context, _ work, _ int64) error {
		begun <- struct{}{}
		if len(r.all()) == 0 {
			<-ctx.Done()
			close(canceled)
			<-full
		}
		err := d.Write(context.WithoutCancel(ctx), func(*db.Tx) error { return nil })
		r.add("ended")
		return err
	})
	enqueue(t, d, "x", Options{Unique: "k"})
	<-begun
	if err := d.Write(t.Context(), func(tx *db.Tx) error { _, err := Cancel(t.Context(), tx, "k"); return err }); err != nil {
		t.Fatal(err)
	}
	<-canceled
	take := refuse(t, d, syscall.ENOSPC)
	close(full)
	wait.Until(t, "it ended", func() bool { return len(r.all()) == 1 })
	take()
	<-begun
	wait.Until(t, "it is done", func() bool { return count(t, d, "1=1") == 0 })
	if len(r.all()) != 2 {
		t.Errorf("ended %d times; want 2: the first end wasn't written", len(r.all()))
	}
}
