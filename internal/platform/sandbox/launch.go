package sandbox

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"slipway/internal/platform/sandbox/cgroup"
)

// All sandboxes are started from one thread that never ends, for two reasons.
//
// First, a parent-death signal such as bwrap's --die-with-parent follows the forking thread: if a goroutine's thread
// ended, its sandbox would be killed.
//
// Second, if we are root, that thread has its own mount namespace. bwrap resolves the paths that it binds as the site's
// uid, which may not enter our private directories. So the thread first binds each path below a tmpfs on stagePoint
// that only it and its children see. bwrap reads from there: no directory of ours is opened to others, and the checked
// path is the one that is bound.

// stagePoint is hidden only in the private namespace. Neither bwrap nor sandboxes need it. It always exists where cgroups
// are mounted, which sandboxes see.
var stagePoint = sync.OnceValue(func() string {
	if _, err := os.Stat("/sys/kernel"); err != nil {
		return "/sys"
	}
	return "/sys/kernel"
})

type thread struct {
	work  chan func()
	id    int
	stage error               // why staging isn't possible; nil if it is
	homes map[string]*os.File // version 1 controller → tasks file of our own cgroup; used only on the thread
}

// launcher returns the thread and starts it at the first call.
var launcher = sync.OnceValue(func() *thread {
	t := &thread{work: make(chan func())}
	ready := make(chan struct{})
	// uncaught: without this thread no sandbox starts
	go t.run(ready)
	<-ready
	return t
})

func (t *thread) run(ready chan struct{}) {
	runtime.LockOSThread()
	if unix.Gettid() == unix.Getpid() {
		// /proc/self shows the main thread, whose mounts and cgroups must not change. While we hold it, other
		// goroutines run on other threads.
		defer runtime.UnlockOSThread()
		// uncaught: without this thread no sandbox starts
		go t.run(ready)
		<-ready
		return
	}
	t.id = unix.Gettid() // never unlocked: this thread must outlive every sandbox
	t.homes = cgroup.Homes()
	t.stage = ownMounts()
	close(ready)
	for f := range t.work {
		f()
	}
}

// rescue moves the thread out of a cgroup that it couldn't leave itself, because the whole service was moved since its
// start.
func (t *thread) rescue() error {
	t.do(func() { t.homes = nil }) // from now on move processes by pid
	return cgroup.Rescue(t.id)
}

func ownMounts() error {
	if unix.Geteuid() != 0 {
		return errors.New("not root")
	}
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("make a mount namespace: %w", err)
	}
	// Slave instead of private: disks that the operator mounts or unmounts later must appear here too.
	if err := unix.Mount("", "/", "", unix.MS_SLAVE|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("separate the mount namespace: %w", err)
	}
	if err := unix.Mount("tmpfs", stagePoint(), "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0711,size=1m"); err != nil {
		return fmt.Errorf("mount the stage: %w", err)
	}
	// A service manager may have mounted over parts of /proc (ProtectKernelTunables= of systemd). A user namespace
	// can't remove such mounts, so the kernel would refuse sandboxes their own /proc. Sandboxes therefore start with a
	// fresh one. If mounting it is forbidden, Canary reports that.
	_ = unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
	return nil
}

func (t *thread) do(f func()) {
	done := make(chan struct{})
	t.work <- func() { defer close(done); f() }
	<-done
}

// launch is a process to be started.
type launch struct {
	id    string
	cmd   *exec.Cmd
	binds []staged
	child []*os.File // files that the child inherits as descriptors 3, 4, …
	users *os.File   // the user namespace of layers; nil without layers
}

type staged struct {
	source, at string
	layer      string // Bind.Layer
}

// show makes a host path visible to bwrap and returns its path there. start does the staging on the launcher's thread.
func (l *launch) show(source string) string {
	if unix.Geteuid() != 0 {
		return source
	}
	at := filepath.Join(stagePoint(), l.id, strconv.Itoa(len(l.binds)))
	l.binds = append(l.binds, staged{source: source, at: at})
	return at
}

// maxTerminals caps the pseudo-terminals of a command, since the kernel counts them for the whole host.
const maxTerminals = 64

// terminals gives the command its own devpts with maxTerminals and returns its path for bwrap, or "" for a plain user,
// who can't mount one with a limit.
func (l *launch) terminals() string {
	if unix.Geteuid() != 0 {
		return ""
	}
	at := filepath.Join(stagePoint(), l.id, "pts")
	l.binds = append(l.binds, staged{at: at})
	return at
}

// inherit passes f to the child and returns its descriptor there.
func (l *launch) inherit(f *os.File) int {
	l.child = append(l.child, f)
	return 2 + len(l.child)
}

// start stages the paths and starts the process in g, which may be nil. It always closes our copies of the child's
// files. It doesn't guarantee that the child is in all of g.
func (l *launch) start(g *cgroup.Group) (err error) {
	defer func() {
		for _, f := range l.child {
			_ = f.Close()
		}
	}()
	l.cmd.ExtraFiles = l.child
	v := &cgroup.Visit{Unified: -1}
	if g != nil {
		v = g.Enter()
	}
	defer v.Close()
	t := launcher()
	var stuck error
	t.do(func() {
		if len(l.binds) > 0 {
			if err = t.stage; err == nil {
				err = l.mount()
			}
			if err != nil {
				return
			}
		}
		stuck = v.Around(t.homes, func() { err = fork(l.cmd, v) })
	})
	if stuck != nil {
		if e := t.rescue(); e != nil {
			// Continuing would let us kill ourselves together with the build.
			panic(fmt.Sprintf("sandbox: the launcher cannot leave a cgroup: %v", errors.Join(stuck, e)))
		}
	}
	if err != nil {
		return fmt.Errorf("start %s: %w", filepath.Base(l.cmd.Path), err)
	}
	return nil
}

// fork starts cmd, directly in the version 2 leaf if clone3 supports that.
func fork(cmd *exec.Cmd, v *cgroup.Visit) error {
	if v.Unified >= 0 {
		into, attr := *cmd, *cmd.SysProcAttr
		attr.UseCgroupFD, attr.CgroupFD = true, v.Unified
		into.SysProcAttr = &attr
		if err := into.Start(); err == nil {
			*cmd = into
			return nil
		}
	}
	return cmd.Start()
}

func (l *launch) mount() error {
	if err := os.Mkdir(filepath.Join(stagePoint(), l.id), 0o711); err != nil {
		return fmt.Errorf("stage: %w", err)
	}
	for _, b := range l.binds {
		err := error(nil)
		if b.layer != "" {
			err = mountLayer(b, l.users)
		} else {
			err = mountOne(b)
		}
		if err != nil {
			return fmt.Errorf("stage %s: %w", b.source, err)
		}
	}
	return nil
}

func mountOne(b staged) error {
	if b.source == "" { // see terminals
		if err := os.Mkdir(b.at, 0o711); err != nil {
			return err
		}
		return unix.Mount("devpts", b.at, "devpts", unix.MS_NOSUID|unix.MS_NOEXEC,
			fmt.Sprintf("newinstance,ptmxmode=0666,mode=0600,max=%d", maxTerminals))
	}
	fd, err := openNoLinks(b.source)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		err = os.Mkdir(b.at, 0o711)
	} else {
		// unsynced: a mount point of this start
		err = os.WriteFile(b.at, nil, 0o644)
	}
	if err != nil {
		return err
	}
	return unix.Mount("/proc/self/fd/"+strconv.Itoa(fd), b.at, "", unix.MS_BIND, "")
}

// openNoLinks opens an absolute path that contains no links: Command.check resolved existing ones, so a link now is an
// attack. It opens each part instead of using openat2(2) with RESOLVE_NO_SYMLINKS, which systemd's RestrictSUIDSGID=
// blocks.
func openNoLinks(path string) (fd int, err error) {
	const flags = unix.O_PATH | unix.O_CLOEXEC | unix.O_NOFOLLOW
	if fd, err = unix.Open("/", flags|unix.O_DIRECTORY, 0); err != nil {
		return -1, err
	}
	var st unix.Stat_t
	for part := range strings.SplitSeq(strings.Trim(path, "/"), "/") {
		next := -1
		if part != "" {
			next, err = unix.Openat(fd, part, flags, 0)
			_ = unix.Close(fd)
			fd = next
		}
		if err == nil { // O_PATH opens links themselves
			err = unix.Fstat(fd, &st)
		}
		if err == nil && st.Mode&unix.S_IFMT == unix.S_IFLNK {
			err = unix.ELOOP
		}
		if err != nil {
			if fd >= 0 {
				_ = unix.Close(fd)
			}
			return -1, err
		}
	}
	return fd, nil
}

// unstage removes the binds once the children no longer need them.
func (l *launch) unstage() {
	if l.users != nil {
		_ = l.users.Close()
	}
	if len(l.binds) == 0 {
		return
	}
	t := launcher()
	t.do(func() {
		if t.stage != nil {
			return
		}
		for _, b := range l.binds {
			points := []string{b.at}
			if b.layer != "" {
				points = append(points, b.lower())
			}
			for _, at := range points {
				_ = unix.Unmount(at, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
				_ = os.Remove(at) // fails unless the bind is gone
			}
		}
		_ = os.Remove(filepath.Join(stagePoint(), l.id))
	})
}

// memfile returns an anonymous file with the content p, positioned at its start.
func memfile(name string, p []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_NOEXEC_SEAL)
	if errors.Is(err, unix.EINVAL) { // before Linux 6.3
		fd, err = unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	}
	if err != nil {
		return nil, fmt.Errorf("make memory file: %w", err)
	}
	f := os.NewFile(uintptr(fd), name)
	if _, err := f.Write(p); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("write memory file: %w", err)
	}
	if _, err := f.Seek(0, 0); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("rewind memory file: %w", err)
	}
	return f, nil
}
