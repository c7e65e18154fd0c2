package sandbox

import (
	"log/slog"
	"syscall"

	"golang.org/x/sys/unix"
)

// Nice values (nice(2)). The service answers everybody, so a busy program must not delay it; background work runs last.
// They matter where the service's threads and programs compete in one cgroup level, as in version 1 of cgroups(7).
const (
	niceService    = -5
	niceForeground = 0
	niceBackground = 5
)

// Prefer gives the service's threads priority over the programs that it starts, if allowed (CAP_SYS_NICE). Processes in
// a sandbox get the normal priority.
func Prefer(log *slog.Logger) {
	nice := niceService // a variable, since a negative constant can't be converted
	_, _, errno := syscall.AllThreadsSyscall(syscall.SYS_SETPRIORITY, unix.PRIO_PROCESS, 0, uintptr(nice))
	if errno != 0 {
		log.Debug("priority not raised", "err", errno)
	}
}

// schedBatch is SCHED_BATCH (sched(7)), which x/sys doesn't define.
const schedBatch = 3

// renice sets the priority of a process that hasn't run yet. With SCHED_BATCH, a program's threads don't preempt the
// service's when they wake: requests are handled in groups, with fewer context switches.
func renice(pid int, background bool) {
	nice := niceForeground
	if background {
		nice = niceBackground
	}
	_ = unix.SchedSetAttr(pid, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: schedBatch, Nice: int32(nice)}, 0)
}
