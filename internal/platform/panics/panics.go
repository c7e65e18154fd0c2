// Package panics owns the recovery of panics in goroutines: a panic ends one piece of work, not the service.
//
// Each panic is counted and reported with its stack. The caller decides what fails: [Call] returns the panic as an
// error, so that a job fails, a delivery counts as an attempt, or an item is postponed. TestGoroutinesCatchPanics lists
// the goroutines that don't need it.
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

// ErrPanic is wrapped by every recovered panic.
var ErrPanic = errors.New("panic")

var (
	count  atomic.Int64
	report atomic.Pointer[func(err error)]
)

// Count returns how many panics were caught since the process started.
func Count() int64 { return count.Load() }

// Report makes f receive every panic with its stack. Before that, panics are written to standard error.
func Report(f func(err error)) { report.Store(&f) }

// Caught counts and reports the result of recover and returns it as an error, or nil if there was no panic.
func Caught(v any) error {
	if v == nil {
		return nil
	}
	if p, ok := v.(error); ok && errors.Is(p, ErrPanic) { // re-raised by a part of the work and already counted
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

// Call calls f and returns its error or its panic as an error.
func Call(f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = Caught(v)
		}
	}()
	return f()
}

// Safe wraps f in [Call], for groups that take functions.
func Safe(f func() error) func() error { return func() error { return Call(f) } }

// Go runs f in a goroutine. A panic ends only f, after its deferred calls.
func Go(f func()) { go contain(f) }

func contain(f func()) {
	defer func() { _ = Caught(recover()) }()
	f()
}

// Pauses of [Again] and [Keep]; each is twice the previous one.
const (
	firstPause = time.Second
	lastPause  = time.Minute
)

// Again runs f until it returns. After a panic it repeats f with growing pauses, starting at a second, until ctx ends.
func Again(ctx context.Context, f func(ctx context.Context) error) error {
	return repeat(ctx, f, func(err error) bool { return errors.Is(err, ErrPanic) })
}

// Loop is [Again] for functions without an error.
func Loop(ctx context.Context, f func(ctx context.Context)) {
	_ = Again(ctx, func(ctx context.Context) error { f(ctx); return nil })
}

// Keep runs f for as long as ctx lasts: it repeats f after an error, which it passes to failed, as well as after a
// panic.
func Keep(ctx context.Context, f func(ctx context.Context) error, failed func(err error)) {
	_ = repeat(ctx, f, func(err error) bool {
		if err != nil && ctx.Err() == nil {
			failed(err)
		}
		return err != nil
	})
}

// repeat runs f while again returns true and ctx lasts. The pauses start over once f has run longer than the longest
// pause.
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

// Group runs the parts of one piece of work. [Group.Wait] panics if a part panicked, so that the whole work fails.
type Group struct {
	parts sync.WaitGroup
	once  sync.Once
	err   error // first panic
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

// Background is a [sync.WaitGroup] for work that only the service's shutdown waits for. A panic ends one piece of it.
type Background struct{ sync.WaitGroup }

// Go runs f in a goroutine.
func (b *Background) Go(f func()) { b.WaitGroup.Go(func() { contain(f) }) }
