package sandbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"slipway/internal/platform/sandbox/cgroup"
	"slipway/internal/platform/sandbox/inside"
)

// Reap kills what an earlier process of this installation left and proves that nothing is left. Call it at start,
// before the first Run: it treats every sandbox of the installation as an orphan. After an error, builds must not
// begin.
func (e *engine) Reap(ctx context.Context) error {
	deadline := time.Now().Add(killPatience)
	if d, ok := ctx.Deadline(); ok && d.Before(deadline) {
		deadline = d
	}
	if err := e.reapMarked(deadline); err != nil {
		return fmt.Errorf("reap: %w", err)
	}
	if err := sweep(markVar+"="+e.name+"/", true, deadline); err != nil {
		return fmt.Errorf("reap: %w", err)
	}
	for _, g := range cgroup.Left(e.hs, e.parent) {
		if err := g.Kill(deadline); err != nil {
			return fmt.Errorf("reap: %w", err)
		}
		if err := g.Remove(time.Until(deadline)); err != nil {
			return fmt.Errorf("reap: %w", err)
		}
	}
	cgroup.RemoveEmpty(e.hs, e.parent)
	return ctx.Err()
}

// reapMarked kills the processes with our marker in argv: bwrap and its pid 1, whose death ends their namespace. A
// tenant who forges the marker only kills their own process. A dying pid 1 has no argv any more, but exists until its
// namespace has ended, so reapMarked waits for dying processes.
func (e *engine) reapMarked(deadline time.Time) error {
	mark := []byte("\x00" + inside.Name + "\x00" + e.name + "\x00")
	for pid := range processes() {
		line, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
		if err == nil && len(line) == 0 {
			outlast(pid, deadline)
			continue
		}
		if err != nil || !bytes.Contains(line, mark) || pid == os.Getpid() {
			continue
		}
		fd, err := unix.PidfdOpen(pid, 0)
		if errors.Is(err, unix.ESRCH) {
			continue
		}
		if err != nil {
			return fmt.Errorf("open process %d: %w", pid, err)
		}
		// The pid may have been reused since, or the process may be dying.
		again, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
		switch {
		case err == nil && len(again) == 0:
			outlast(pid, deadline)
		case err == nil && bytes.Contains(again, mark):
			if err = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err == nil {
				err = gone(fd, deadline)
			}
		}
		_ = unix.Close(fd)
		if err != nil && !errors.Is(err, unix.ESRCH) && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("kill process %d: %w", pid, err)
		}
	}
	return nil
}

// outlast waits for a dying process. It has a time limit, since an unrelated process may be stuck.
func outlast(pid int, deadline time.Time) {
	if st, ok := stat(pid); !ok || !st.exiting || st.state == 'Z' {
		return
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	if soon := time.Now().Add(2 * time.Second); soon.Before(deadline) {
		deadline = soon
	}
	_ = gone(fd, deadline)
}
