package job

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"slipway/internal/platform/db"
	"slipway/internal/platform/dbtest"
)

// A share runs at most half of a queue's jobs, even if other slots are free. The service's own jobs aren't limited.
func TestHalfOfAQueue(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	leave := make(chan struct{})
	began := make(chan string, 100)
	var running atomic.Int64
	start(t, d, 4, Policy{}, func(ctx context.Context, w work, _ int64) error {
		if w.Name == "greedy" && running.Add(1) > 2 {
			t.Error("a share has more than half of the places")
		}
		began <- w.Name
		select {
		case <-leave:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if w.Name == "greedy" {
			running.Add(-1)
		}
		return nil
	})
	put := func(name, share string, times int) {
		err := d.Write(t.Context(), func(tx *db.Tx) (err error) {
			for range times {
				_, more := Enqueue(t.Context(), tx, work{Name: name}, Options{Share: share})
				err = errors.Join(err, more)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	put("greedy", "a", 10)
	for range 2 {
		<-began
	}
	put("other", "b", 1)
	if got := <-began; got != "other" {
		t.Errorf("%s began third", got)
	}
	put("own", "", 1)
	if got := <-began; got != "own" {
		t.Errorf("%s began fourth", got)
	}
	close(leave)
	for range 8 {
		<-began
	}
}
