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

// Reap kills what an earlier process of this installation left behind, and proves that
// nothing is left. It is for the start, before the first Run: it takes every sandbox of
// the installation for an orphan. An error means that builds must not begin.
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

// reapMarked kills the processes whose argv carries our marker: bwrap and its pid 1,
// whose death is the death of their namespace. A tenant who forges the marker has
// killed himself. A pid 1 that is dying already, of its parent's death, has no argv left
// but is not gone before its namespace is, so whatever is dying is waited for.
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
		// The number may have found a new owner between the two looks; or it dies by now.
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

// outlast waits for a process that is dying, for as long as dying takes. Somebody else's
// may be stuck in it and is no reason to wait for ever.
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
