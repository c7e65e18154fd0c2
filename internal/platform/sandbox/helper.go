package sandbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"slipway/internal/platform/sandbox/cgroup"
	"slipway/internal/platform/sandbox/inside"
)

// Helpers starts our own programs that read untrusted data, such as git. They are trusted to do their task but not to
// limit their resources: a pack of 16 KB makes git use gigabytes. Each has limits on memory, processor time, processes
// and files, and is killed first when the host runs out of memory. If we are root, it also runs under its own uid,
// which can read only the directories shown to it.
//
// prlimit(1) from util-linux sets the limits and then executes the helper. Without it, limits are set from outside
// while ptrace(2) stops the helper; our unit forbids that. Without root there are no separate uids, and without cgroups
// no group limits.
type Helpers struct {
	engine
	prlimit string     // path of prlimit(1); "" if missing
	mu      sync.Mutex // guards used
	// share: total 500 uids of helpers; owner as many as its fetches and exports, which are pools; edge the helper is not started
	used map[int]bool
	same bool // helpers run under our uid
}

// Uids of helpers, next to those of builds. Nothing on disk belongs to one of them longer than it is in use.
const (
	firstHelper = 199_000
	lastHelper  = 199_499
)

// runaway is how many processes of other installations may run under a helper's uid.
const runaway = 4096

// NewHelpers prepares helpers for the owner of dir and kills those left by an earlier process.
func NewHelpers(ctx context.Context, dir string, log *slog.Logger) (*Helpers, error) {
	e, err := newEngine(&Config{Dir: dir, Log: log, Self: "none"})
	if err != nil {
		return nil, err
	}
	// A tree without controllers has no limits, and moving a process into it is slow.
	e.hs = slices.DeleteFunc(e.hs, func(h cgroup.Hierarchy) bool { return h.V2 && !h.Controllers["memory"] && !h.Controllers["pids"] })
	for _, g := range cgroup.Left(e.hs, e.parent) {
		if err := errors.Join(g.Kill(time.Now().Add(killPatience)), g.Remove(time.Second)); err != nil {
			e.log.WarnContext(ctx, "helper of an earlier process left behind", "err", err)
		}
	}
	cgroup.RemoveEmpty(e.hs, e.parent)
	h := &Helpers{engine: e, used: map[int]bool{}}
	h.prlimit, _ = exec.LookPath("prlimit")
	h.same = h.prlimit == "" && !mayLimitOthers() // keep our uid: the limits matter more
	return h, nil
}

// mayLimitOthers reports whether we may set limits of another uid's processes; root in a container often may not.
func mayLimitOthers() bool {
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	return unix.Capget(&head, &data[0]) == nil && data[unix.CAP_SYS_RESOURCE/32].Effective&(1<<(unix.CAP_SYS_RESOURCE%32)) != 0
}

var errNoIdentity = errors.New("all uids of helpers are in use")

// Identity reserves a uid for a helper. uid is 0 if we can't change ours.
func (h *Helpers) Identity() (uid int, release func(), err error) {
	if unix.Geteuid() != 0 || launcher().stage != nil || h.same {
		return 0, func() {}, nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for uid := firstHelper; uid <= lastHelper; uid++ {
		if !h.used[uid] {
			h.used[uid] = true
			return uid, sync.OnceFunc(func() {
				h.mu.Lock()
				defer h.mu.Unlock()
				delete(h.used, uid)
			}), nil
		}
	}
	return 0, nil, errNoIdentity
}

// Helper is a program to be started.
type Helper struct {
	h      *Helpers
	uid    int
	limits Limits
	launch launch
	group  *cgroup.Group
}

// New prepares a helper that runs under uid, or under ours if uid is 0. It uses the limits Memory, Pids and NoFile,
// Disk for the size of one file, and Wall for the processor time of one process. With grouped, limits apply to all its
// processes together if there are cgroups, which costs some milliseconds. The caller must call Close.
func (h *Helpers) New(uid int, l Limits, grouped bool) (*Helper, error) {
	x := &Helper{h: h, uid: uid, limits: l.withDefaults()}
	x.launch.id = newID()
	if grouped {
		g, err := cgroup.New(h.hs, h.parent, x.launch.id, x.limits.group())
		if err != nil && !errors.Is(err, cgroup.ErrNone) {
			return nil, fmt.Errorf("prepare helper: %w", err)
		}
		x.group = g
	}
	return x, nil
}

// Show makes a directory or file of ours, whose path has no links, readable for the helper and returns its path there.
// Permissions inside it don't change.
func (x *Helper) Show(source string) string {
	if x.uid == 0 {
		return source
	}
	return x.launch.show(source)
}

// Start starts cmd; the limits are set before it runs anything.
func (x *Helper) Start(cmd *exec.Cmd) error {
	attr := &syscall.SysProcAttr{Setpgid: true, Pdeathsig: unix.SIGKILL, Ptrace: x.h.prlimit == ""}
	if x.uid != 0 {
		attr.Credential = &syscall.Credential{Uid: uint32(x.uid), Gid: uint32(x.uid), Groups: []uint32{}}
	}
	cmd.SysProcAttr = attr
	limits := x.rlimits()
	if x.h.prlimit != "" {
		argv := []string{"prlimit"}
		for _, l := range limits {
			argv = append(argv, fmt.Sprintf("--%s=%d", l.name, l.Max))
		}
		cmd.Path, cmd.Args = x.h.prlimit, append(append(argv, cmd.Path), cmd.Args[1:]...)
		limits = nil
	}
	v := &cgroup.Visit{Unified: -1}
	if x.group != nil {
		v = x.group.Enter()
	}
	defer v.Close()
	t := launcher()
	var err, stuck error
	held := false
	t.do(func() {
		if len(x.launch.binds) > 0 {
			if err = x.launch.mount(); err != nil {
				return
			}
		}
		stuck = v.Around(t.homes, func() { err = fork(cmd, v) })
		if err != nil || !attr.Ptrace {
			return
		}
		pid := cmd.Process.Pid
		var ws syscall.WaitStatus
		_, werr := syscall.Wait4(pid, &ws, 0, nil) // the stop after its exec; only the tracing thread may continue it
		for errors.Is(werr, syscall.EINTR) {
			_, werr = syscall.Wait4(pid, &ws, 0, nil)
		}
		held = werr == nil && ws.Stopped()
	})
	if stuck != nil {
		if e := t.rescue(); e != nil {
			panic(fmt.Sprintf("sandbox: the launcher cannot leave a cgroup: %v", errors.Join(stuck, e)))
		}
	}
	if err == nil {
		// Don't do this on the tracing thread, whose stage hides the cgroups.
		if err = x.confine(cmd.Process.Pid, limits); err != nil {
			_ = cmd.Process.Kill()
		}
		if held {
			t.do(func() { _ = syscall.PtraceDetach(cmd.Process.Pid) })
		}
		if err != nil {
			_ = cmd.Wait()
		}
	}
	if err != nil {
		return fmt.Errorf("start %s: %w", filepath.Base(cmd.Path), err)
	}
	return nil
}

type namedLimit struct {
	inside.Rlimit
	name string // as in prlimit(1)
}

func (x *Helper) rlimits() []namedLimit {
	l := x.limits
	limits := []namedLimit{
		{inside.Rlimit{Resource: unix.RLIMIT_CORE, Max: 0}, "core"},
		{inside.Rlimit{Resource: unix.RLIMIT_DATA, Max: uint64(l.Memory)}, "data"},
		{inside.Rlimit{Resource: unix.RLIMIT_CPU, Max: uint64(l.Wall/time.Second) + 1}, "cpu"},
		{inside.Rlimit{Resource: unix.RLIMIT_FSIZE, Max: uint64(l.Disk)}, "fsize"},
		{inside.Rlimit{Resource: unix.RLIMIT_NOFILE, Max: uint64(l.NoFile)}, "nofile"},
	}
	// The cgroup counts this helper's processes. RLIMIT_NPROC counts the uid's on the whole host, including other
	// installations', so it only stops a runaway if there is no cgroup.
	if x.uid != 0 && (x.group == nil || x.group.Pids == "") {
		limits = append(limits, namedLimit{inside.Rlimit{Resource: unix.RLIMIT_NPROC, Max: uint64(l.Pids) + runaway}, "nproc"})
	}
	for i, r := range limits { // never above our hard limit: raising needs a capability
		var now syscall.Rlimit
		if err := syscall.Getrlimit(r.Resource, &now); err == nil {
			limits[i].Max = min(r.Max, now.Max)
		}
	}
	return limits
}

// confine puts a process that hasn't run the helper yet into its group with its limits.
func (x *Helper) confine(pid int, limits []namedLimit) error {
	if x.group != nil && !x.group.Holds(pid) {
		if err := x.group.Attach(pid); err != nil {
			return err
		}
	}
	for _, r := range limits {
		if err := unix.Prlimit(pid, r.Resource, &unix.Rlimit{Cur: r.Max, Max: r.Max}, nil); err != nil {
			return fmt.Errorf("limit %s: %w", r.name, err)
		}
	}
	// Helpers are killed first and scheduled last, so that the service keeps responding.
	// unsynced: the kernel
	_ = os.WriteFile("/proc/"+strconv.Itoa(pid)+"/oom_score_adj", []byte("1000"), 0)
	renice(pid, true)
	return nil
}

// OutOfMemory reports whether all processes together reached the memory limit.
func (x *Helper) OutOfMemory() bool { return x.group != nil && x.group.OOM() > 0 }

// Close kills remaining processes and hides what was shown.
func (x *Helper) Close() error {
	var err error
	if x.group != nil {
		if err = x.group.Kill(time.Now().Add(killPatience)); err == nil {
			err = x.group.Remove(time.Second)
		}
	}
	x.launch.unstage()
	if err != nil {
		return fmt.Errorf("end helper: %w", err)
	}
	return nil
}
