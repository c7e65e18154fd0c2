//go:build linux

// Package process owns what a server sets for its own process before it serves.
package process

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Prepare makes this process ready to serve.
func Prepare() {
	// Other users, such as the sandboxes', must be able to read created files, whatever the caller's umask; private
	// files are created with their own mode.
	syscall.Umask(0o022)
	_ = leaveWork() // an error costs speed only
}

// timerSlack is how late the kernel may wake a thread of the service.
const timerSlack = time.Millisecond

// leaveWork raises the timer slack of all threads. An idle thread of Go's scheduler sleeps 3 µs before it steals work;
// the kernel's default slack of 50 µs makes that 53 µs, less than a request takes. So the two halves of a request ran
// on different processors, and idle threads used processor time in vain. With a millisecond, a forwarded request takes
// a tenth less processor time (docs/benchmarks.md), but the service's timers may be that much late. New threads inherit
// the value. A program built with cgo gets ENOTSUP.
func leaveWork() error {
	if _, _, errno := syscall.AllThreadsSyscall(unix.SYS_PRCTL, unix.PR_SET_TIMERSLACK, uintptr(timerSlack), 0); errno != 0 {
		return errno
	}
	return nil
}
