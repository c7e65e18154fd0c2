// Package cgroup owns the control groups of sandboxes: it creates a run's group in every hierarchy of the host, sets
// limits, reads usage, and proves that the group is empty.
//
// It supports version 2, version 1 and hybrid hosts, and containers that see only parts of them. It never starts a
// process.
package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Limits holds the limits of a group.
type Limits struct {
	Memory     int64   // bytes, including swap
	Pids       int64   // processes and threads
	CPU        float64 // cores; 0 means no quota
	Foreground bool    // twice the normal weight
}

// Group is one run's group in every usable hierarchy.
type Group struct {
	dirs    []string // one leaf per hierarchy
	Unified string   // the version 2 leaf, or ""
	Memory  string   // leaf with the memory controller, or ""
	Pids    string
	CPU     string
	acct    string
	freezer string
	doors   map[string]string // version 1 controller → tasks file of the leaf
}

// Shown returns where a sandbox sees which of the group's directories. Runtimes such as V8 and the JVM read their limits of
// memory and processors there.
func (g *Group) Shown() map[string]string {
	const top = "/sys/fs/cgroup"
	at := map[string]string{}
	if g.Unified != "" && (g.Memory == g.Unified || g.CPU == g.Unified) {
		at[top] = g.Unified
		return at
	}
	if g.Memory != "" {
		at[top+"/memory"] = g.Memory
	}
	if g.CPU != "" {
		at[top+"/cpu"] = g.CPU
	}
	return at
}

// ErrNone is returned by New on a host where we may create no group.
var ErrNone = errors.New("no cgroup hierarchy is writable")

// New creates the leaf parent/id in every usable hierarchy and sets the limits. It returns ErrNone if there is none.
func New(hs []Hierarchy, parent, id string, l Limits) (*Group, error) {
	g := &Group{doors: map[string]string{}}
	for _, h := range hs {
		c := h.Controllers
		if !h.V2 && !c["memory"] && !c["pids"] && !c["cpu"] && !c["cpuacct"] && !c["freezer"] {
			continue
		}
		dir := filepath.Join(h.Point, parent, id)
		if err := makeLeaf(h, parent, dir); err != nil {
			if denied(err) {
				continue
			}
			g.Remove(0)
			return nil, fmt.Errorf("make cgroup: %w", err)
		}
		g.dirs = append(g.dirs, dir)
		if l.Foreground && !h.V2 && c["cpu"] {
			share(h, parent)
		}
		pick := func(at *string, controller, file string) {
			if _, err := os.Stat(filepath.Join(dir, file)); err == nil && (h.V2 || c[controller]) && *at == "" {
				*at = dir
			}
		}
		if h.V2 {
			g.Unified = dir
			pick(&g.Memory, "memory", "memory.max")
			pick(&g.CPU, "cpu", "cpu.max")
			pick(&g.acct, "cpu", "cpu.stat")
		} else {
			for name := range c { // mount options are listed too; skip them
				g.doors[name] = filepath.Join(dir, "tasks")
			}
			pick(&g.Memory, "memory", "memory.limit_in_bytes")
			pick(&g.CPU, "cpu", "cpu.cfs_quota_us")
			pick(&g.acct, "cpuacct", "cpuacct.usage")
			pick(&g.freezer, "freezer", "freezer.state")
		}
		pick(&g.Pids, "pids", "pids.max")
	}
	if len(g.dirs) == 0 {
		return nil, ErrNone
	}
	if err := g.limit(l); err != nil {
		g.Remove(0)
		return nil, err
	}
	return g, nil
}

// makeLeaf creates dir below parent. Another run's end may remove parent at any time, so it retries.
func makeLeaf(h Hierarchy, parent, dir string) (err error) {
	for range 10 {
		if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
			return err
		}
		if h.V2 {
			delegate(h, parent)
		}
		if err = os.Mkdir(dir, 0o755); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return err
}

// share gives all sandboxes together the weight of one busy thread per processor outside of them. In version 1 a group
// weighs as much as one thread of its parent, which also contains the service's threads: the programs of all sites
// would share the weight of a single thread. Builds have that weight until a program has run.
func share(h Hierarchy, parent string) {
	if !strings.HasPrefix(parent, Root+"/") {
		return // the operator chose the place and its weight
	}
	// unsynced: the kernel
	_ = os.WriteFile(filepath.Join(h.Point, Root, "cpu.shares"), strconv.AppendInt(nil, shareOfAll(), 10), 0)
}

func shareOfAll() int64 { return 1024 * int64(max(1, runtime.NumCPU())) }

func denied(err error) bool {
	return errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.EROFS) || errors.Is(err, unix.ENOSPC)
}

// delegate enables our controllers in every ancestor of parent's children, one by one, so that a missing controller
// doesn't prevent the others. New checks the leaf's files for controllers that couldn't be enabled.
func delegate(h Hierarchy, parent string) {
	dir := h.Point
	for _, part := range append([]string{""}, strings.Split(strings.Trim(parent, "/"), "/")...) {
		dir = filepath.Join(dir, part)
		for _, c := range []string{"memory", "pids", "cpu"} {
			if h.Controllers[c] {
				// unsynced: the kernel
				_ = os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+c), 0)
			}
		}
	}
}

func (g *Group) limit(l Limits) error {
	type setting struct {
		dir, file, value string
		optional         bool // may be absent, for example if the kernel doesn't count swap
	}
	const period = 100_000
	quota := "-1"
	if l.CPU > 0 {
		quota = strconv.FormatInt(max(1000, int64(math.Round(l.CPU*period))), 10)
	}
	weight, shares := "50", "512"
	if l.Foreground {
		weight, shares = "100", "1024"
	}
	mem, pids := strconv.FormatInt(l.Memory, 10), strconv.FormatInt(l.Pids, 10)
	var all []setting
	switch {
	case g.Memory == "":
	case g.Memory == g.Unified:
		all = append(all, setting{g.Memory, "memory.max", mem, false},
			setting{g.Memory, "memory.swap.max", "0", true},
			setting{g.Memory, "memory.oom.group", "1", true})
	default:
		all = append(all, setting{g.Memory, "memory.limit_in_bytes", mem, false},
			setting{g.Memory, "memory.memsw.limit_in_bytes", mem, true})
	}
	if g.Pids != "" {
		all = append(all, setting{g.Pids, "pids.max", pids, false})
	}
	switch {
	case g.CPU == "":
	case g.CPU == g.Unified:
		all = append(all, setting{g.CPU, "cpu.max", strings.Replace(quota, "-1", "max", 1) + " " + strconv.Itoa(period), false},
			setting{g.CPU, "cpu.weight", weight, true})
	default:
		all = append(all, setting{g.CPU, "cpu.cfs_period_us", strconv.Itoa(period), false},
			setting{g.CPU, "cpu.cfs_quota_us", quota, false}, setting{g.CPU, "cpu.shares", shares, true})
	}
	for _, s := range all {
		// unsynced: the kernel
		if err := os.WriteFile(filepath.Join(s.dir, s.file), []byte(s.value), 0); err != nil && !s.optional {
			return fmt.Errorf("limit cgroup: %w", err)
		}
	}
	return nil
}

// Holds reports whether a process is in every leaf.
func (g *Group) Holds(pid int) bool {
	for _, dir := range g.dirs {
		text, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		if err != nil || !slices.Contains(strings.Fields(string(text)), strconv.Itoa(pid)) {
			return false
		}
	}
	return true
}

// Attach moves a process that hasn't forked into every leaf.
func (g *Group) Attach(pid int) error {
	for _, dir := range g.dirs {
		// unsynced: the kernel
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0); err != nil {
			return fmt.Errorf("enter cgroup: %w", err)
		}
	}
	return nil
}
