package lease

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
)

// Unlock releases a lock even if a child process still has the file open, as between fork and exec.
func TestUnlock(t *testing.T) {
	t.Parallel()
	l := New(t.TempDir())
	f, err := l.Try("tool", true)
	if f == nil || err != nil {
		t.Fatal(f, err)
	}
	childs, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(childs)
	if again, err := l.Try("tool", false); again != nil || err != nil {
		t.Fatalf("the lock was taken twice: %v", err)
	}
	Unlock(f)
	again, err := l.Try("tool", true)
	if again == nil || err != nil {
		t.Fatalf("the lock is still held: %v", err)
	}
	Unlock(again)
}

// Concurrent calls with the same key share one run and its error.
func TestOnce(t *testing.T) {
	t.Parallel()
	l := New(t.TempDir())
	var runs atomic.Int32
	begun, end := make(chan struct{}), make(chan struct{})
	failure := errors.New("failed")
	run := func(context.Context) error {
		if runs.Add(1) == 1 {
			close(begun)
		}
		<-end
		return failure
	}
	results := make(chan error, 3)
	go func() { results <- l.Once(t.Context(), "tool", run) }()
	<-begun
	for range 2 {
		go func() { results <- l.Once(t.Context(), "tool", run) }()
	}
	for {
		l.flight.mu.Lock()
		n := l.flight.calls["tool"].waiters
		l.flight.mu.Unlock()
		if n == 3 {
			break
		}
	}
	close(end)
	for range 3 {
		if err := <-results; !errors.Is(err, failure) {
			t.Errorf("got %v", err)
		}
	}
	if n := runs.Load(); n != 1 {
		t.Errorf("the function ran %d times", n)
	}
}
