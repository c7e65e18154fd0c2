package sandbox

import "golang.org/x/sys/unix"

// Pause stops all processes of the run until resume is called. No process inside can continue itself or another
// meanwhile.
func (l *Link) Pause() (resume func()) {
	var stopped []int
	seen := map[int]bool{}
	for range 10 { // processes that were about to fork have forked by the next round
		more := false
		for _, pid := range l.procs() {
			if !seen[pid] && unix.Kill(pid, unix.SIGSTOP) == nil {
				seen[pid], more = true, true
				stopped = append(stopped, pid)
			}
		}
		if !more {
			break
		}
	}
	return func() {
		for _, pid := range stopped {
			_ = unix.Kill(pid, unix.SIGCONT)
		}
	}
}
