package panics

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func broken() { panic("broken input") }

// A panic becomes an error with its stack. It is counted and reported once, however many callers handle the error.
func TestCall(t *testing.T) { // no t.Parallel: the count is global
	var reported []error
	Report(func(err error) { reported = append(reported, err) })
	defer report.Store(nil)
	before := Count()
	err := Call(func() error {
		var g Group
		g.Go(broken)
		g.Go(func() {})
		g.Wait()
		t.Error("Wait returned although a goroutine panicked")
		return nil
	})
	if !errors.Is(err, ErrPanic) || !strings.Contains(err.Error(), "broken input") || !strings.Contains(err.Error(), "panics.broken") {
		t.Errorf("got %v", err)
	}
	if len(reported) != 1 || Count()-before != 1 {
		t.Errorf("%d reported, %d counted, want 1", len(reported), Count()-before)
	}
	other := errors.New("other")
	if err := Safe(func() error { return other })(); err != other {
		t.Errorf("an error that is no panic: %v", err)
	}
}

// A panic in a background goroutine ends only that goroutine, after its deferred calls.
func TestBackground(t *testing.T) {
	var b Background
	var ended atomic.Int64
	for range 3 {
		b.Go(func() { defer ended.Add(1); broken() })
	}
	b.Wait()
	done := make(chan struct{})
	Go(func() { defer close(done); broken() })
	<-done
	if ended.Load() != 3 {
		t.Errorf("%d ended", ended.Load())
	}
}

// A loop runs again after a panic, after a pause. It doesn't after it has returned or ctx has ended.
func TestAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun, runs := time.Now(), 0
		Loop(t.Context(), func(context.Context) {
			runs++
			if runs < 3 {
				broken()
			}
		})
		if runs != 3 || time.Since(begun) != 3*time.Second {
			t.Errorf("%d runs in %s", runs, time.Since(begun))
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		runs = 0
		err := Again(ctx, func(context.Context) error { runs++; broken(); return nil })
		if !errors.Is(err, ErrPanic) || runs < 10 || runs > 20 {
			t.Errorf("%d runs in 10 minutes, %v", runs, err)
		}
	})
}

// Keep runs a function again after an error or panic. The pauses are short again after it has run for a while.
func TestKeep(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begun, runs := time.Now(), 0
		var told []error
		away := errors.New("the database is away")
		Keep(t.Context(), func(context.Context) error {
			switch runs++; runs {
			case 1, 2:
				return away
			case 3:
				broken()
			case 4:
				time.Sleep(time.Hour)
				return away
			}
			return nil
		}, func(err error) { told = append(told, err) })
		if took := time.Since(begun); runs != 5 || took != time.Hour+8*time.Second { // 1 + 2 + 4, then 1
			t.Errorf("%d runs in %s", runs, took)
		}
		if len(told) != 4 || !errors.Is(told[0], away) || !errors.Is(told[2], ErrPanic) {
			t.Errorf("told of %v", told)
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	Keep(ctx, func(context.Context) error { cancel(); return ctx.Err() }, func(err error) { t.Errorf("told of the end: %v", err) })
}
