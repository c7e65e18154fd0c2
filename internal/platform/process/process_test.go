//go:build linux

package process

import (
	"errors"
	"runtime"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// All threads have the timer slack, also those started later.
func TestThreadsLeaveWork(t *testing.T) {
	switch err := leaveWork(); {
	case errors.Is(err, syscall.ENOTSUP):
		t.Skip("this test is built with cgo, the program is not")
	case err != nil:
		t.Fatal(err)
	}
	var all sync.WaitGroup
	started := make(chan struct{})
	var first sync.WaitGroup
	const threads = 20
	first.Add(threads)
	for range threads {
		all.Go(func() {
			runtime.LockOSThread() // the thread ends with the goroutine
			first.Done()
			<-started // all threads exist at the same time
			if got, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0); err != nil || got != int(timerSlack) {
				t.Errorf("slack %d, %v", got, err)
			}
		})
	}
	first.Wait()
	close(started)
	all.Wait()
}
