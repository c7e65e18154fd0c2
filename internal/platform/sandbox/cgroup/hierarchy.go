package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Hierarchy is one mounted cgroup tree. A hybrid host has several of version 1 and one of version 2 without
// controllers, which is still best for killing.
type Hierarchy struct {
	Point       string // where it is mounted
	V2          bool
	Controllers map[string]bool
}

// Hierarchies returns the cgroup trees mounted for this process.
func Hierarchies() ([]Hierarchy, error) {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("list cgroup mounts: %w", err)
	}
	// Skip trees hidden below a later mount.
	return slices.DeleteFunc(hierarchies(string(text)), func(h Hierarchy) bool {
		_, err := os.Stat(h.Point)
		return errors.Is(err, fs.ErrNotExist)
	}), nil
}

func hierarchies(mountinfo string) (hs []Hierarchy) {
	for line := range strings.Lines(mountinfo) {
		left, right, ok := strings.Cut(strings.TrimSpace(line), " - ")
		l, r := strings.Fields(left), strings.Fields(right)
		if !ok || len(l) < 5 || len(r) < 3 {
			continue
		}
		h := Hierarchy{Point: unescape(l[4]), Controllers: map[string]bool{}}
		switch r[0] {
		case "cgroup":
			for _, o := range strings.Split(r[2], ",") {
				h.Controllers[o] = true
			}
		case "cgroup2":
			h.V2 = true
			have, _ := os.ReadFile(filepath.Join(h.Point, "cgroup.controllers"))
			for _, c := range strings.Fields(string(have)) {
				h.Controllers[c] = true
			}
		default:
			continue
		}
		// A part that is mounted again over itself, as our unit does for writable paths, isn't a tree of its own. Of
		// mounts at the same place, the last one listed is visible.
		hs = slices.DeleteFunc(hs, func(below Hierarchy) bool { return below.Point == h.Point })
		if !slices.ContainsFunc(hs, func(above Hierarchy) bool { return strings.HasPrefix(h.Point, above.Point+"/") }) {
			hs = append(hs, h)
		}
	}
	return hs
}

// unescape decodes octal escapes of mountinfo (proc_pid_mountinfo(5)).
func unescape(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}

// Root contains the groups of all installations on a host.
const Root = "/slipway"

// Membership returns a process's cgroup by controller, "" for version 2 (cgroups(7)).
func Membership(pid string) map[string]string {
	text, _ := os.ReadFile("/proc/" + pid + "/cgroup")
	m := map[string]string{}
	for line := range strings.Lines(string(text)) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) == 3 {
			for _, c := range strings.Split(f[1], ",") {
				m[c] = f[2]
			}
		}
	}
	return m
}

// Homes opens the tasks files of our own version 1 groups, by controller, to return to. It skips those that can't be
// opened: in a container our group may be outside of what is mounted.
func Homes() map[string]*os.File {
	m := map[string]*os.File{}
	hs, _ := Hierarchies()
	mine := Membership("self")
	for _, h := range hs {
		for c := range h.Controllers {
			home, ok := mine[c]
			if !ok || h.V2 {
				continue
			}
			if f, err := os.OpenFile(filepath.Join(h.Point, home, "tasks"), os.O_WRONLY, 0); err == nil {
				m[c] = f
			}
		}
	}
	return m
}

// Rescue moves a thread of ours into the process's version 1 groups.
func Rescue(thread int) error {
	hs, err := Hierarchies()
	if err != nil {
		return err
	}
	mine := Membership("self")
	for _, h := range hs {
		for c := range h.Controllers {
			if home, ok := mine[c]; ok && !h.V2 {
				// unsynced: the kernel
				if err := os.WriteFile(filepath.Join(h.Point, home, "tasks"), []byte(strconv.Itoa(thread)), 0); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// Left finds groups of earlier runs below parent, one per run for all hierarchies.
func Left(hs []Hierarchy, parent string) map[string]*Group {
	left := map[string]*Group{}
	for _, h := range hs {
		entries, err := os.ReadDir(filepath.Join(h.Point, parent))
		if err != nil {
			continue
		}
		for _, d := range entries {
			if !d.IsDir() {
				continue
			}
			g := left[d.Name()]
			if g == nil {
				g = &Group{}
				left[d.Name()] = g
			}
			dir := filepath.Join(h.Point, parent, d.Name())
			g.dirs = append(g.dirs, dir)
			if h.V2 {
				g.Unified = dir
			} else if h.Controllers["freezer"] {
				g.freezer = dir
			}
		}
	}
	return left
}

// RemoveEmpty removes an installation's groups without leaves, which a killed process may have left.
func RemoveEmpty(hs []Hierarchy, parent string) {
	for _, h := range hs {
		_ = unix.Rmdir(filepath.Join(h.Point, parent))
	}
}
