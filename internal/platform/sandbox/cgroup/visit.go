package cgroup

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// Enter opens the group's tasks files for a thread that is about to fork into the group. Moving another process takes a
// lock that waits for all processors, about 12 ms; a thread that moves itself takes no lock, and its children start in
// the group.
//
// It skips files that can't be opened (in a container, our own cgroup may be outside of what is mounted); Attach moves
// the process later.
func (g *Group) Enter() *Visit {
	v := &Visit{in: map[string]*os.File{}, Unified: -1}
	for controller, tasks := range g.doors {
		if f, err := os.OpenFile(tasks, os.O_WRONLY, 0); err == nil {
			v.in[controller] = f
		}
	}
	if g.Unified != "" {
		if fd, err := unix.Open(g.Unified, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err == nil {
			v.Unified = fd
		}
	}
	return v
}

// Visit is a thread's short stay in a group.
type Visit struct {
	in      map[string]*os.File // tasks files of the leaves, by controller
	Unified int                 // directory for clone3; -1 if none
}

// Around calls f while the calling thread is in the version 1 leaves, except those that it may not enter or has no home
// to return to. It returns an error if the thread couldn't return.
func (v *Visit) Around(homes map[string]*os.File, f func()) (err error) {
	for controller, in := range v.in {
		home := homes[controller]
		if home == nil {
			continue
		}
		if _, err := in.WriteString("0"); err != nil { // 0 means the writing thread
			continue
		}
		defer func() {
			if _, e := home.WriteString("0"); e != nil {
				err = errors.Join(err, e)
			}
		}()
	}
	f()
	return err
}

// Close closes the tasks files.
func (v *Visit) Close() {
	for _, f := range v.in {
		_ = f.Close()
	}
	if v.Unified >= 0 {
		_ = unix.Close(v.Unified)
	}
}
