package connlimit

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Places holds how many connections each listener may hold, given the process's limit of file descriptors.
type Places struct {
	Edge, EdgeAddress, EdgeSpare int
	Control, ControlAddress      int
}

// Plan divides the file descriptors. It reserves a part for the control plane, the database, files and child processes,
// so that visitors of sites can't use them all. max and perAddress are the operator's settings; 0 means as many as fit.
func Plan(descriptors uint64, max, perAddress int) Places {
	n := int(min(descriptors, 1<<20))
	back := min(2048, n/2)
	var p Places
	p.Edge = min(n-back, 100_000)
	if max > 0 {
		p.Edge = min(max, n-back)
	}
	p.EdgeSpare = min(256, p.Edge/8)
	p.EdgeAddress = perAddress
	if perAddress == 0 {
		p.EdgeAddress = p.Edge / 8
	}
	p.Control = back / 2
	p.ControlAddress = p.Control / 2
	return p
}

// Descriptors returns how many files the process may open.
func Descriptors() (uint64, error) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 0, fmt.Errorf("read limit of open files: %w", err)
	}
	return limit.Cur, nil
}
