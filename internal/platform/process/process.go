//go:build linux

// Package process owns what a server asks of the kernel for its own process before it serves.
package process

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Prepare makes this process ready to serve.
func Prepare() {
	// What is made for other users, as for the sandbox's, they must be able to read, whoever starts the program; what is for
	// this user alone says so file by file.
	syscall.Umask(0o022)
	_ = leaveWork() // without it the service works as well, but slower
}

// timerSlack is how much later than asked for the kernel may wake a thread of the service.
const timerSlack = time.Millisecond

// leaveWork makes threads that look for work leave to each processor what it is about to run.
// Go's scheduler waits for 3 µs before it takes that over, of which the kernel's slack of 50 µs
// makes 53: less than a request takes. So the two halves of a request ran on different processors,
// and threads that looked in vain used up a part of one. With a millisecond a request that is
// passed on to a program takes a tenth less processor time (docs/benchmarks.md); timers of the
// service may be that much late. Threads that are started later are as those that start them.
// A program that was built with cgo can't set anything for all its threads: ENOTSUP.
func leaveWork() error {
	if _, _, errno := syscall.AllThreadsSyscall(unix.SYS_PRCTL, unix.PR_SET_TIMERSLACK, uintptr(timerSlack), 0); errno != 0 {
		return errno
	}
	return nil
}
