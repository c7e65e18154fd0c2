package toolchain

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

// Each tool has a lock file, which stays for ever: a lock that is deleted while another
// process waits for it guards nothing. Who makes or removes the tool holds it alone, who
// uses the tool holds it with others; the kernel lets go for those who die. Its time of
// modification is when the tool was last taken.

func (t *Toolchain) lockPath(key string) string { return filepath.Join(t.c.Dir, "lock", key) }

// tryLock takes a lock at once; a nil file means that somebody holds it.
func (t *Toolchain) tryLock(key string, how int) (*os.File, error) {
	f, err := os.OpenFile(t.lockPath(key), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", key, err)
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

// unlock gives a lock back. To close the file is not enough: a child process of another
// goroutine that has been forked and has not begun its program has it open, too.
func unlock(f *os.File) {
	_ = unix.Flock(int(f.Fd()), unix.LOCK_UN)
	_ = f.Close()
}

// lock waits until key is ours alone. flock cannot be interrupted, hence the asking.
func (t *Toolchain) lock(ctx context.Context, key string) (*os.File, error) {
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, 200*time.Millisecond) {
		f, err := t.tryLock(key, unix.LOCK_EX)
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

// lease is a tool in use.
type lease struct {
	once sync.Once
	file *os.File
}

func (l *lease) release() { l.once.Do(func() { unlock(l.file) }) }

// lease takes a tool that is there; nil when it is not, or is being made or removed.
func (t *Toolchain) lease(p pack) (*lease, error) {
	f, err := t.tryLock(p.key(), unix.LOCK_SH)
	if f == nil || err != nil {
		return nil, err
	}
	if _, err := os.Lstat(t.kept(p)); err != nil {
		unlock(f)
		if errors.Is(err, os.ErrNotExist) {
			return nil, nil
		}
		return nil, fmt.Errorf("take %s: %w", p.key(), err)
	}
	now := t.now()
	_ = os.Chtimes(t.lockPath(p.key()), now, now) // only the order of sweeping hangs on it
	return &lease{file: f}, nil
}

// once runs f with the lock of key held. Those in this process who ask for the same key
// meanwhile share its end, error included: ten builds don't wait for ten timeouts. f
// goes on while anybody waits for it.
func (t *Toolchain) once(ctx context.Context, key string, f func(context.Context) error) error {
	return t.flight.do(ctx, key, func(ctx context.Context) error {
		l, err := t.lock(ctx, key)
		if err != nil {
			return err
		}
		defer unlock(l)
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
