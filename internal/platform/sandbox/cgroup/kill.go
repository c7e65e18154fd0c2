package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Procs lists the group's living processes in all hierarchies.
func (g *Group) Procs() ([]int, error) {
	seen := map[int]bool{}
	var pids []int
	for _, dir := range g.dirs {
		text, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("list cgroup: %w", err)
		}
		for _, f := range strings.Fields(string(text)) {
			if pid, err := strconv.Atoi(f); err == nil && !seen[pid] {
				seen[pid] = true
				pids = append(pids, pid)
			}
		}
	}
	return pids, nil
}

// Kill sends SIGKILL to the whole group until it is empty, and fails if it isn't at the deadline. Forks can't escape:
// version 2 kills atomically, version 1 is frozen while it is killed.
func (g *Group) Kill(deadline time.Time) error {
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		pids, err := g.Procs()
		if err != nil {
			return err
		}
		if len(pids) == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("kill cgroup: %d processes are still there", len(pids))
		}
		g.strike()
		time.Sleep(pause) // version 1 has no event for an empty group
	}
}

func (g *Group) strike() {
	// unsynced: the kernel
	if g.Unified != "" && os.WriteFile(filepath.Join(g.Unified, "cgroup.kill"), []byte("1"), 0) == nil {
		return
	}
	if g.freezer != "" {
		state := filepath.Join(g.freezer, "freezer.state")
		// unsynced: the kernel
		_ = os.WriteFile(state, []byte("FROZEN"), 0)
		// Freezing is asynchronous; a task in a page fault takes a while.
		for range 20 {
			if now, _ := os.ReadFile(state); strings.TrimSpace(string(now)) != "FREEZING" {
				break
			}
			time.Sleep(time.Millisecond)
		}
		// unsynced: the kernel
		defer func() { _ = os.WriteFile(state, []byte("THAWED"), 0) }()
	}
	pids, _ := g.Procs()
	for _, pid := range pids {
		_ = unix.Kill(pid, unix.SIGKILL)
	}
}

// Remove deletes the leaves. The kernel refuses while a process lives in them, which makes this the final proof. The
// kernel may notice a death late, so Remove retries for patience. The last leaf's removal also removes the
// installation's group.
func (g *Group) Remove(patience time.Duration) error {
	deadline := time.Now().Add(patience)
	for _, dir := range g.dirs {
		for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
			err := unix.Rmdir(dir)
			if err == nil || errors.Is(err, unix.ENOENT) {
				break
			}
			if time.Now().After(deadline) {
				return fmt.Errorf("remove cgroup %s: %w", dir, err)
			}
			time.Sleep(pause)
		}
		_ = unix.Rmdir(filepath.Dir(dir)) // fails while it has other leaves
	}
	return nil
}
