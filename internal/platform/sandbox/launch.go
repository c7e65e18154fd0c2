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

// Everything is started from one thread that never ends, for two reasons.
//
// bwrap's --die-with-parent, like every parent-death signal, follows the thread that
// forked: started from a goroutine whose thread ends, a sandbox would be killed at once.
//
// And that thread has a mount namespace of its own when we are root. bwrap resolves the
// paths that it binds as the site's uid, which may not pass our private directories
// (nor do we want to open them). So the thread first binds each of them below a tmpfs
// on stagePoint, which only it and its children see: bwrap reads from there, no parent
// of ours is opened to anybody, and the path that was checked is the one that is bound.

// stagePoint is covered in the private namespace only. /sys exists everywhere, and
// neither bwrap nor a sandbox has any use for it.
const stagePoint = "/sys"

type thread struct {
	work  chan func()
	id    int
	stage error               // why staging is not to be had; nil when it is
	homes map[string]*os.File // version 1 controller → tasks file of our own cgroup; used on the thread only
}

// launcher returns the thread, begun at the first use.
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
		// /proc/self shows the main thread: its mounts and its cgroups
		// must stay what they are. While we hold it, another goroutine gets another.
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

// rescue moves the thread out of a cgroup that it could not leave by itself, which
// happens when somebody moved the whole service since it began.
func (t *thread) rescue() error {
	t.do(func() { t.homes = nil }) // from now on processes are moved by number
	return cgroup.Rescue(t.id)
}

func ownMounts() error {
	if unix.Geteuid() != 0 {
		return errors.New("not root")
	}
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("make a mount namespace: %w", err)
	}
	// Slave, not private: a disk that the operator mounts or unmounts later must do so here too.
	if err := unix.Mount("", "/", "", unix.MS_SLAVE|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("separate the mount namespace: %w", err)
	}
	if err := unix.Mount("tmpfs", stagePoint, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0711,size=1m"); err != nil {
		return fmt.Errorf("mount the stage: %w", err)
	}
	// A service manager may have covered parts of /proc (ProtectKernelTunables= of systemd). A user
	// namespace can't take the covers off, so the kernel would refuse sandboxes a /proc of their
	// own: those that are started here begin with one that is bare. Where that is forbidden, Canary says so.
	_ = unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
	return nil
}

func (t *thread) do(f func()) {
	done := make(chan struct{})
	t.work <- func() { defer close(done); f() }
	<-done
}

// launch is a process about to be started.
type launch struct {
	id    string
	cmd   *exec.Cmd
	binds []staged
	child []*os.File // ends that the child inherits as fd 3, 4, …
}

type staged struct{ source, at string }

// show makes the host path source visible to bwrap and returns where. Real staging
// happens in start, on the launcher's thread.
func (l *launch) show(source string) string {
	if unix.Geteuid() != 0 {
		return source
	}
	at := filepath.Join(stagePoint, l.id, strconv.Itoa(len(l.binds)))
	l.binds = append(l.binds, staged{source, at})
	return at
}

// maxTerminals is how many pseudo-terminals a command may have: the kernel's are counted for
// the whole host.
const maxTerminals = 64

// terminals has the command get a file system of pseudo-terminals of its own that holds
// maxTerminals, and returns where bwrap finds it; empty for a plain user, who can't mount one
// with a bound.
func (l *launch) terminals() string {
	if unix.Geteuid() != 0 {
		return ""
	}
	at := filepath.Join(stagePoint, l.id, "pts")
	l.binds = append(l.binds, staged{at: at})
	return at
}

// inherit hands f to the child and returns its number there.
func (l *launch) inherit(f *os.File) int {
	l.child = append(l.child, f)
	return 2 + len(l.child)
}

// start stages and starts inside g, which may be nil; our copies of the child's ends
// are closed whatever happens. That the child is in all of g is not promised.
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
			// To go on would mean to kill ourselves with the build.
			panic(fmt.Sprintf("sandbox: the launcher cannot leave a cgroup: %v", errors.Join(stuck, e)))
		}
	}
	if err != nil {
		return fmt.Errorf("start %s: %w", filepath.Base(l.cmd.Path), err)
	}
	return nil
}

// fork starts cmd, born in the version 2 leaf where clone3 is to be had.
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
	if err := os.Mkdir(filepath.Join(stagePoint, l.id), 0o711); err != nil {
		return fmt.Errorf("stage: %w", err)
	}
	for _, b := range l.binds {
		if err := mountOne(b); err != nil {
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

// openNoLinks opens an absolute path none of whose parts may be a link: Command.check resolved
// those that there were, and one that appears after that is an attack. Part by part, and not by openat2(2) with
// RESOLVE_NO_SYMLINKS: systemd's RestrictSUIDSGID= takes that call away, because it can't see its flags.
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
		if err == nil { // O_PATH opens a link itself
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

// unstage takes the binds away again; children that are dead need them no more.
func (l *launch) unstage() {
	if len(l.binds) == 0 {
		return
	}
	t := launcher()
	t.do(func() {
		if t.stage != nil {
			return
		}
		for _, b := range l.binds {
			_ = unix.Unmount(b.at, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
			_ = os.Remove(b.at) // empty: the bind is gone, or never was
		}
		_ = os.Remove(filepath.Join(stagePoint, l.id))
	})
}

// memfile returns an anonymous file holding p, read from its start.
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
