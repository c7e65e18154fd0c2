package sandbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
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
	for _, g := range e.leftGroups() {
		if err := g.kill(deadline); err != nil {
			return fmt.Errorf("reap: %w", err)
		}
		if err := g.remove(time.Until(deadline)); err != nil {
			return fmt.Errorf("reap: %w", err)
		}
	}
	e.removeEmpty()
	return ctx.Err()
}

// leftGroups finds the groups of earlier runs, one per run over all hierarchies.
func (e *engine) leftGroups() map[string]*group {
	left := map[string]*group{}
	for _, h := range e.hs {
		entries, err := os.ReadDir(filepath.Join(h.point, e.parent))
		if err != nil {
			continue
		}
		for _, d := range entries {
			if !d.IsDir() {
				continue
			}
			g := left[d.Name()]
			if g == nil {
				g = &group{}
				left[d.Name()] = g
			}
			dir := filepath.Join(h.point, e.parent, d.Name())
			g.dirs = append(g.dirs, dir)
			if h.v2 {
				g.unified = dir
			} else if h.controllers["freezer"] {
				g.freezer = dir
			}
		}
	}
	return left
}

// reapMarked kills the processes whose argv carries our marker: bwrap and its pid 1,
// whose death is the death of their namespace. A tenant who forges the marker has
// killed himself. A pid 1 that is dying already, of its parent's death, has no argv left
// but is not gone before its namespace is, so whatever is dying is waited for.
func (e *engine) reapMarked(deadline time.Time) error {
	mark := []byte("\x00" + ShimName + "\x00" + e.name + "\x00")
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
