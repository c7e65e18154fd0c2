package sandbox

import (
	"log/slog"
	"syscall"

	"golang.org/x/sys/unix"
)

// Priorities of processes, as nice(2) counts them: the service answers for everybody, so a
// program that takes all it can get must not make it wait; what nobody waits for runs last.
// They decide where the service and programs share a control group's level, as in version 1 of
// cgroups(7), where its threads stand beside the groups of programs.
const (
	niceService    = -5
	niceForeground = 0
	niceBackground = 5
)

// Prefer lets the threads of this process run before those of the programs that it starts,
// where it is allowed to (CAP_SYS_NICE); processes in a sandbox are put back.
func Prefer(log *slog.Logger) {
	nice := niceService // a variable: the conversion of a negative constant is refused
	_, _, errno := syscall.AllThreadsSyscall(syscall.SYS_SETPRIORITY, unix.PRIO_PROCESS, 0, uintptr(nice))
	if errno != 0 {
		log.Debug("priority not raised", "err", errno)
	}
}

// schedBatch is SCHED_BATCH of sched(7), for which x/sys has no name.
const schedBatch = 3

// renice sets the priority of a process that has not run yet. A program's threads don't
// interrupt the service's as they wake (SCHED_BATCH): requests are then passed on and answered
// in groups, which costs fewer changes between the two.
func renice(pid int, background bool) {
	nice := niceForeground
	if background {
		nice = niceBackground
	}
	_ = unix.SchedSetAttr(pid, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: schedBatch, Nice: int32(nice)}, 0)
}
