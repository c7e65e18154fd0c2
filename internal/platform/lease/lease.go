// Package lease owns locks of things in a directory that several processes make, use and remove.
//
// Each thing has a lock file, which is never deleted: a deleted lock that another process waits for guards nothing.
// A process that makes or removes a thing locks it exclusively, one that uses it locks it shared, and the kernel
// releases the locks of processes that die.
package lease

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"slipway/internal/platform/panics"
)

// Locks are the locks in one directory. It is safe for concurrent use.
type Locks struct {
	dir    string // absolute, ours, private
	flight flight
}

// New returns the locks in an existing directory.
func New(dir string) *Locks { return &Locks{dir: dir} }

// Path returns the file of a key's lock.
func (l *Locks) Path(key string) string { return filepath.Join(l.dir, key) }

// Try takes a lock at once, shared or exclusively. It returns nil if another holder forbids that.
func (l *Locks) Try(key string, exclusive bool) (*os.File, error) {
	f, err := os.OpenFile(l.Path(key), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", key, err)
	}
	how := unix.LOCK_SH
	if exclusive {
		how = unix.LOCK_EX
	}
	err = unix.Flock(int(f.Fd()), how|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, f.Close()
	}
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("lock %s: %w", key, err)
	}
	return f, nil
}

// Unlock releases a lock. Closing the file isn't enough: a child process that another goroutine has just forked has it
// open too.
func Unlock(f *os.File) {
	_ = unix.Flock(int(f.Fd()), unix.LOCK_UN)
	_ = f.Close()
}

// lock waits until key is ours alone. It polls because flock can't be interrupted.
func (l *Locks) lock(ctx context.Context, key string) (*os.File, error) {
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, 200*time.Millisecond) {
		f, err := l.Try(key, true)
		if f != nil || err != nil {
			return f, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(pause):
		}
	}
}

// Once runs f with the exclusive lock of key. Callers in this process that ask for the same key meanwhile share its
// result, errors included: ten builds don't wait for ten timeouts. f is canceled when the last caller gives up.
func (l *Locks) Once(ctx context.Context, key string, f func(context.Context) error) error {
	return l.flight.do(ctx, key, func(ctx context.Context) error {
		file, err := l.lock(ctx, key)
		if err != nil {
			return err
		}
		defer Unlock(file)
		return f(ctx)
	})
}

// flight joins calls for the same key.
type flight struct {
	mu sync.Mutex // guards calls and the waiters of each
	// share: total the versions of Node.js and PHP that are installed at the time; owner what others leave; edge who wants the same waits for it
	calls map[string]*call
}

type call struct {
	done    chan struct{}
	err     error // valid once done is closed
	waiters int
	cancel  context.CancelFunc
}

func (f *flight) do(ctx context.Context, key string, fn func(context.Context) error) error {
	f.mu.Lock()
	c := f.calls[key]
	if c == nil {
		run, cancel := context.WithCancel(context.WithoutCancel(ctx))
		c = &call{done: make(chan struct{}), cancel: cancel}
		if f.calls == nil {
			f.calls = map[string]*call{}
		}
		f.calls[key] = c
		go func() {
			err := panics.Call(func() error { return fn(run) })
			f.mu.Lock()
			c.err = err
			if f.calls[key] == c {
				delete(f.calls, key)
			}
			f.mu.Unlock()
			cancel()
			close(c.done)
		}()
	}
	c.waiters++
	f.mu.Unlock()

	select {
	case <-c.done:
		return c.err
	case <-ctx.Done():
	}
	f.mu.Lock()
	c.waiters--
	last := c.waiters == 0
	if last && f.calls[key] == c {
		delete(f.calls, key) // who comes now must not join a call that is being given up
	}
	f.mu.Unlock()
	if last {
		c.cancel()
		<-c.done // its processes are dead before the build is called ended
	}
	return ctx.Err()
}
