package sandbox

import "golang.org/x/sys/unix"

// Pause stops every process of the run where it stands, until resume is called. Nothing
// inside can go on, or make another go on, meanwhile.
func (l *Link) Pause() (resume func()) {
	var stopped []int
	seen := map[int]bool{}
	for range 10 { // what was about to fork has done so by the next look
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
