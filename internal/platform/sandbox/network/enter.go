package network

import (
	"fmt"
	"os"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
)

// enterer creates sockets in network namespaces. A socket permanently belongs to the namespace of the thread that
// creates it. So one thread enters the namespace briefly, and the socket is then used from anywhere.
type enterer struct {
	work chan *entry
	err  error // why namespaces can't be entered
}

type entry struct {
	space *os.File
	six   bool
	fd    int
	err   error
	done  chan struct{}
}

// networks returns the enterer and starts it at the first call.
var networks = sync.OnceValue(func() *enterer {
	e := &enterer{work: make(chan *entry)}
	ready := make(chan error)
	// uncaught: without this thread no network is entered
	go e.run(ready)
	e.err = <-ready
	return e
})

// run serves until the thread can't leave a namespace. Then the thread ends and another replaces it.
func (e *enterer) run(ready chan error) {
	runtime.LockOSThread()
	home, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err == nil {
		err = unix.Setns(home, unix.CLONE_NEWNET)
	}
	if ready != nil {
		ready <- err
	}
	if err != nil {
		runtime.UnlockOSThread()
		return
	}
	defer unix.Close(home)
	for w := range e.work {
		w.err = unix.Setns(int(w.space.Fd()), unix.CLONE_NEWNET)
		if w.err != nil {
			w.err = fmt.Errorf("enter network: %w", w.err)
			close(w.done)
			continue
		}
		family := unix.AF_INET
		if w.six {
			family = unix.AF_INET6
		}
		w.fd, w.err = unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		err := unix.Setns(home, unix.CLONE_NEWNET)
		close(w.done)
		if err != nil {
			// uncaught: without this thread no network is entered
			go e.run(nil)
			return // locked, so the thread ends
		}
	}
}

// socket creates a non-blocking TCP socket in a namespace.
func (e *enterer) socket(space *os.File, six bool) (int, error) {
	if e.err != nil {
		return -1, e.err
	}
	w := &entry{space: space, six: six, done: make(chan struct{})}
	e.work <- w
	<-w.done
	return w.fd, w.err
}
