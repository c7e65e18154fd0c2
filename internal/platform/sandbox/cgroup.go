package sandbox

import (
	"bufio"
	"bytes"
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
	"time"

	"golang.org/x/sys/unix"
)

// hierarchy is one mounted cgroup tree. A hybrid host has several of version 1 and
// one of version 2 without controllers, which is still the best way to kill.
type hierarchy struct {
	point       string
	v2          bool
	controllers map[string]bool
}

// hierarchies reads which cgroup trees this process sees mounted.
func hierarchies() ([]hierarchy, error) {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("list cgroup mounts: %w", err)
	}
	var hs []hierarchy
	for line := range strings.Lines(string(text)) {
		left, right, ok := strings.Cut(strings.TrimSpace(line), " - ")
		l, r := strings.Fields(left), strings.Fields(right)
		if !ok || len(l) < 5 || len(r) < 3 {
			continue
		}
		h := hierarchy{point: unescape(l[4]), controllers: map[string]bool{}}
		switch r[0] {
		case "cgroup":
			for _, o := range strings.Split(r[2], ",") {
				h.controllers[o] = true
			}
		case "cgroup2":
			h.v2 = true
			have, _ := os.ReadFile(filepath.Join(h.point, "cgroup.controllers"))
			for _, c := range strings.Fields(string(have)) {
				h.controllers[c] = true
			}
		default:
			continue
		}
		hs = append(hs, h)
	}
	return hs, nil
}

// unescape undoes mountinfo's octal escapes (proc_pid_mountinfo(5)).
func unescape(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}

// group is one run's place in every hierarchy we can use.
type group struct {
	dirs    []string // one leaf per hierarchy
	unified string   // the version 2 leaf, "" for none
	memory  string   // leaf of the controller, "" where it is not to be had
	pids    string
	cpu     string
	acct    string
	freezer string
	doors   map[string]string // version 1 controller → tasks file of the leaf
}

var errNoCgroup = errors.New("no cgroup hierarchy is writable")

// newGroup makes the leaf parent/id in every hierarchy that has something for us and
// lets us in, and sets the limits. It returns errNoCgroup when there is none.
func newGroup(hs []hierarchy, parent, id string, l Limits) (*group, error) {
	g := &group{doors: map[string]string{}}
	for _, h := range hs {
		c := h.controllers
		if !h.v2 && !c["memory"] && !c["pids"] && !c["cpu"] && !c["cpuacct"] && !c["freezer"] {
			continue
		}
		dir := filepath.Join(h.point, parent, id)
		if err := makeLeaf(h, parent, dir); err != nil {
			if denied(err) {
				continue
			}
			g.remove(0)
			return nil, fmt.Errorf("make cgroup: %w", err)
		}
		g.dirs = append(g.dirs, dir)
		if l.Foreground && !h.v2 && c["cpu"] {
			share(h, parent)
		}
		pick := func(at *string, controller, file string) {
			if _, err := os.Stat(filepath.Join(dir, file)); err == nil && (h.v2 || c[controller]) && *at == "" {
				*at = dir
			}
		}
		if h.v2 {
			g.unified = dir
			pick(&g.memory, "memory", "memory.max")
			pick(&g.cpu, "cpu", "cpu.max")
			pick(&g.acct, "cpu", "cpu.stat")
		} else {
			for name := range c { // options of the mount are among them; they have no home
				g.doors[name] = filepath.Join(dir, "tasks")
			}
			pick(&g.memory, "memory", "memory.limit_in_bytes")
			pick(&g.cpu, "cpu", "cpu.cfs_quota_us")
			pick(&g.acct, "cpuacct", "cpuacct.usage")
			pick(&g.freezer, "freezer", "freezer.state")
		}
		pick(&g.pids, "pids", "pids.max")
	}
	if len(g.dirs) == 0 {
		return nil, errNoCgroup
	}
	if err := g.limit(l); err != nil {
		g.remove(0)
		return nil, err
	}
	return g, nil
}

// makeLeaf makes dir below parent. The parent goes with the last run of an installation, so
// it may go between two steps.
func makeLeaf(h hierarchy, parent, dir string) (err error) {
	for range 10 {
		if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
			return err
		}
		if h.v2 {
			delegate(h, parent)
		}
		if err = os.Mkdir(dir, 0o755); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return err
}

// share lets all sandboxes together weigh as much as one busy thread outside of them for each
// processor. In version 1 a group weighs as much as one thread of the group above it, which
// has the service's own threads: the programs of all sites would share what one of them gets.
// Where no program has run, builds weigh as little as that.
func share(h hierarchy, parent string) {
	if !strings.HasPrefix(parent, ownCgroup+"/") {
		return // the operator chose the place, and what it weighs
	}
	_ = os.WriteFile(filepath.Join(h.point, ownCgroup, "cpu.shares"), strconv.AppendInt(nil, shareOfAll(), 10), 0)
}

func shareOfAll() int64 { return 1024 * int64(max(1, runtime.NumCPU())) }

func denied(err error) bool {
	return errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.EROFS) || errors.Is(err, unix.ENOSPC)
}

// delegate turns our controllers on in every ancestor of parent's children, one by
// one: a controller that is not there must not keep the others off. What could not be
// turned on shows in the leaf's files, which newGroup checks.
func delegate(h hierarchy, parent string) {
	dir := h.point
	for _, part := range append([]string{""}, strings.Split(strings.Trim(parent, "/"), "/")...) {
		dir = filepath.Join(dir, part)
		for _, c := range []string{"memory", "pids", "cpu"} {
			if h.controllers[c] {
				_ = os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+c), 0)
			}
		}
	}
}

func (g *group) limit(l Limits) error {
	type setting struct {
		dir, file, value string
		optional         bool // absent where the kernel does not count swap, and such
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
	case g.memory == "":
	case g.memory == g.unified:
		all = append(all, setting{g.memory, "memory.max", mem, false},
			setting{g.memory, "memory.swap.max", "0", true},
			setting{g.memory, "memory.oom.group", "1", true})
	default:
		all = append(all, setting{g.memory, "memory.limit_in_bytes", mem, false},
			setting{g.memory, "memory.memsw.limit_in_bytes", mem, true})
	}
	if g.pids != "" {
		all = append(all, setting{g.pids, "pids.max", pids, false})
	}
	switch {
	case g.cpu == "":
	case g.cpu == g.unified:
		all = append(all, setting{g.cpu, "cpu.max", strings.Replace(quota, "-1", "max", 1) + " " + strconv.Itoa(period), false},
			setting{g.cpu, "cpu.weight", weight, true})
	default:
		all = append(all, setting{g.cpu, "cpu.cfs_period_us", strconv.Itoa(period), false},
			setting{g.cpu, "cpu.cfs_quota_us", quota, false}, setting{g.cpu, "cpu.shares", shares, true})
	}
	for _, s := range all {
		if err := os.WriteFile(filepath.Join(s.dir, s.file), []byte(s.value), 0); err != nil && !s.optional {
			return fmt.Errorf("limit cgroup: %w", err)
		}
	}
	return nil
}

// membership reads a process's cgroup per controller, "" for version 2 (cgroups(7)).
func membership(pid string) map[string]string {
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

// holds reports whether the process is in every leaf.
func (g *group) holds(pid int) bool {
	for _, dir := range g.dirs {
		text, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		if err != nil || !slices.Contains(strings.Fields(string(text)), strconv.Itoa(pid)) {
			return false
		}
	}
	return true
}

// enter opens the doors for a thread that is about to fork into the group. Moving
// another process takes a lock that waits for all processors, some 12 ms; a thread
// that moves itself does not, and what it forks is born where it is.
//
// A door that does not open is left out (in a container, our own cgroup may be beyond
// what is mounted); attach makes up for it.
//
// A door that does not open is left out; attach makes up for it.
func (g *group) enter() *visit {
	v := &visit{in: map[string]*os.File{}, unified: -1}
	for controller, tasks := range g.doors {
		if f, err := os.OpenFile(tasks, os.O_WRONLY, 0); err == nil {
			v.in[controller] = f
		}
	}
	if g.unified != "" {
		if fd, err := unix.Open(g.unified, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err == nil {
			v.unified = fd
		}
	}
	return v
}

// visit is a thread's short stay in a group.
type visit struct {
	in      map[string]*os.File // tasks file of the leaf by controller
	unified int                 // directory for clone3; -1 for none
}

// around calls f while the calling thread is in the leaves of version 1, as far as it
// may be and has a home to return to. It returns an error if it could not return.
func (v *visit) around(homes map[string]*os.File, f func()) (err error) {
	for controller, in := range v.in {
		home := homes[controller]
		if home == nil {
			continue
		}
		if _, err := in.WriteString("0"); err != nil { // 0 is the thread that writes
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

func (v *visit) close() {
	for _, f := range v.in {
		_ = f.Close()
	}
	if v.unified >= 0 {
		_ = unix.Close(v.unified)
	}
}

// attach moves a process, which has not forked yet, into every leaf.
func (g *group) attach(pid int) error {
	for _, dir := range g.dirs {
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0); err != nil {
			return fmt.Errorf("enter cgroup: %w", err)
		}
	}
	return nil
}

// procs lists the living processes of the group, in any hierarchy.
func (g *group) procs() ([]int, error) {
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

// kill sends SIGKILL to all of the group, again and again until it is empty, and
// fails when it is not empty at the deadline. A fork cannot outrun it: version 2
// kills atomically, version 1 is frozen while it is killed.
func (g *group) kill(deadline time.Time) error {
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		pids, err := g.procs()
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
		time.Sleep(pause) // the kernel has no wait for "empty" in version 1
	}
}

func (g *group) strike() {
	if g.unified != "" && os.WriteFile(filepath.Join(g.unified, "cgroup.kill"), []byte("1"), 0) == nil {
		return
	}
	if g.freezer != "" {
		state := filepath.Join(g.freezer, "freezer.state")
		_ = os.WriteFile(state, []byte("FROZEN"), 0)
		// Freezing is asynchronous; a task in a page fault takes its time.
		for range 20 {
			if now, _ := os.ReadFile(state); strings.TrimSpace(string(now)) != "FREEZING" {
				break
			}
			time.Sleep(time.Millisecond)
		}
		defer func() { _ = os.WriteFile(state, []byte("THAWED"), 0) }()
	}
	pids, _ := g.procs()
	for _, pid := range pids {
		_ = unix.Kill(pid, unix.SIGKILL)
	}
}

// remove deletes the leaves; the kernel refuses while anything lives in them, so
// this is the last proof. Accounting may lag behind a death, hence the patience. With the
// last leaf goes the installation's own group, so that nothing stays of one that is gone.
func (g *group) remove(patience time.Duration) error {
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
		_ = unix.Rmdir(filepath.Dir(dir)) // refused while it has other leaves
	}
	return nil
}

// removeEmpty removes the installation's own groups where a process that was killed left
// them, without leaves.
func (e *engine) removeEmpty() {
	for _, h := range e.hs {
		_ = unix.Rmdir(filepath.Join(h.point, e.parent))
	}
}

// oom counts the processes that the memory limit killed.
func (g *group) oom() int64 {
	switch {
	case g.memory == "":
		return 0
	case g.memory == g.unified:
		return field(filepath.Join(g.memory, "memory.events"), "oom_kill")
	default:
		return field(filepath.Join(g.memory, "memory.oom_control"), "oom_kill")
	}
}

func (g *group) usage() (u Usage) {
	switch {
	case g.memory == "":
	case g.memory == g.unified:
		u.MaxMemory = number(filepath.Join(g.memory, "memory.peak"))
		u.Memory = number(filepath.Join(g.memory, "memory.current"))
	default:
		u.MaxMemory = number(filepath.Join(g.memory, "memory.max_usage_in_bytes"))
		u.Memory = number(filepath.Join(g.memory, "memory.usage_in_bytes"))
	}
	switch {
	case g.acct == "":
	case g.acct == g.unified:
		u.CPU = time.Duration(field(filepath.Join(g.acct, "cpu.stat"), "usage_usec")) * time.Microsecond
	default:
		u.CPU = time.Duration(number(filepath.Join(g.acct, "cpuacct.usage")))
	}
	return u
}

func number(file string) int64 {
	text, _ := os.ReadFile(file)
	n, _ := strconv.ParseInt(string(bytes.TrimSpace(text)), 10, 64)
	return n
}

func field(file, key string) int64 {
	text, _ := os.ReadFile(file)
	for s := bufio.NewScanner(bytes.NewReader(text)); s.Scan(); {
		if k, v, ok := strings.Cut(s.Text(), " "); ok && k == key {
			n, _ := strconv.ParseInt(strings.TrimSpace(v), 10, 64)
			return n
		}
	}
	return 0
}
