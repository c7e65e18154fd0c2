// Package panics owns what a panic in a goroutine ends: one piece of work, and not the service with the requests of everybody.
//
// Each panic is counted and reported with its stack. What the work was for is for the caller: Call returns the panic as an error, so
// that a job fails, a delivery counts as an attempt, and an item is put off. TestGoroutinesCatchPanics lists goroutines that may do
// without.
package panics

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
)

// ErrPanic is what every panic becomes.
var ErrPanic = errors.New("panic")

var (
	count  atomic.Int64
	report atomic.Pointer[func(err error)]
)

// Count returns how many panics were caught since the process started.
func Count() int64 { return count.Load() }

// Report has f told of every panic, with its stack. Until then they are written to standard error.
func Report(f func(err error)) { report.Store(&f) }

// Caught counts and reports what recover returned, and returns it as an error; nil if there was no panic.
func Caught(v any) error {
	if v == nil {
		return nil
	}
	if p, ok := v.(error); ok && errors.Is(p, ErrPanic) { // of a part of the work, and counted there
		return p
	}
	count.Add(1)
	err := fmt.Errorf("%w: %v\n%s", ErrPanic, v, debug.Stack())
	if f := report.Load(); f != nil {
		(*f)(err)
	} else {
		fmt.Fprintln(os.Stderr, err)
	}
	return err
}

// Call returns f's error, or that of its panic.
func Call(f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = Caught(v)
		}
	}()
	return f()
}

// Safe is f with Call, for a group that takes functions.
func Safe(f func() error) func() error { return func() error { return Call(f) } }

// Go runs f in a goroutine. A panic ends f alone: its deferred calls give back what it holds.
func Go(f func()) { go contain(f) }

func contain(f func()) {
	defer func() { _ = Caught(recover()) }()
	f()
}

// The pauses of Again and Keep, each twice the one before.
const (
	firstPause = time.Second
	lastPause  = time.Minute
)

// Again runs f until it returns. After a panic it runs f again, a second later and then later and later, until ctx ends.
func Again(ctx context.Context, f func(ctx context.Context) error) error {
	return repeat(ctx, f, func(err error) bool { return errors.Is(err, ErrPanic) })
}

// Loop is Again for what returns no error.
func Loop(ctx context.Context, f func(ctx context.Context)) {
	_ = Again(ctx, func(ctx context.Context) error { f(ctx); return nil })
}

// Keep is Again for work that must last as long as ctx: it runs f again after an error too, of which it tells failed.
func Keep(ctx context.Context, f func(ctx context.Context) error, failed func(err error)) {
	_ = repeat(ctx, f, func(err error) bool {
		if err != nil && ctx.Err() == nil {
			failed(err)
		}
		return err != nil
	})
}

// repeat runs f as long as again says so and ctx lasts. Pauses begin anew after f has run for longer than the last of them.
func repeat(ctx context.Context, f func(ctx context.Context) error, again func(err error) bool) error {
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		started := time.Now()
		err := Call(func() error { return f(ctx) })
		if !again(err) {
			return err
		}
		if time.Since(started) > lastPause {
			pause = firstPause
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pause):
		}
	}
}

// Group is the parts of one piece of work. Wait panics as the first part did that panicked, so that the whole fails.
type Group struct {
	parts sync.WaitGroup
	once  sync.Once
	err   error // of the first panic
}

// Go runs a part in a goroutine.
func (g *Group) Go(f func()) {
	g.parts.Go(func() {
		if err := Call(func() error { f(); return nil }); err != nil {
			g.once.Do(func() { g.err = err })
		}
	})
}

// Wait returns when all parts have ended.
func (g *Group) Wait() {
	g.parts.Wait()
	if g.err != nil {
		panic(g.err)
	}
}

// Background is a sync.WaitGroup of work that only the end of the service waits for: a panic ends one piece of it.
type Background struct{ sync.WaitGroup }

// Go runs f in a goroutine.
func (b *Background) Go(f func()) { b.WaitGroup.Go(func() { contain(f) }) }
