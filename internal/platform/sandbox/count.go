package sandbox

import (
	"errors"
	"os"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

// PerFile is the minimum size, in bytes, that a file or folder counts for. File systems are usually created with one
// inode per 16 KiB, so a tree within its byte limit can't use up all inodes.
const PerFile = 16 << 10

// tally is the disk usage of a tree.
type tally struct{ bytes, files int64 }

// cost returns the tree's bytes for its disk limit.
func (t tally) cost() int64 { return max(t.bytes, t.files*PerFile) }

// maxDepth caps the depth of directories, since each level needs a descriptor; honest trees are less deep.
const maxDepth = 256

type inode struct{ dev, ino uint64 }

// count adds up a tree that an attacker may change meanwhile. It follows no link, opens only directories, counts a file
// with several names once, and stops when a limit is exceeded or done is closed. A tree deeper than maxDepth exceeds
// every limit.
func count(dir string, limit tally, done <-chan struct{}) tally {
	c := counter{limit: limit, done: done, linked: map[inode]bool{}}
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return tally{}
	}
	c.walk(os.NewFile(uintptr(fd), ""), 0)
	return c.sum
}

type counter struct {
	limit  tally
	sum    tally
	done   <-chan struct{}
	linked map[inode]bool
}

func (c *counter) over() bool {
	select {
	case <-c.done:
		return true
	default:
		return c.sum.bytes > c.limit.bytes || c.sum.files > c.limit.files
	}
}

func (c *counter) walk(d *os.File, depth int) {
	defer d.Close()
	if depth > maxDepth {
		c.sum = tally{1 << 62, 1 << 62}
		return
	}
	at := int(d.Fd())
	for !c.over() {
		names, err := d.Readdirnames(1024)
		for _, name := range names {
			var st unix.Stat_t
			if unix.Fstatat(at, name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
				continue
			}
			dir := st.Mode&unix.S_IFMT == unix.S_IFDIR
			if st.Nlink > 1 && !dir {
				i := inode{uint64(st.Dev), st.Ino}
				if c.linked[i] {
					continue
				}
				c.linked[i] = true
			}
			c.sum.files++
			c.sum.bytes += st.Blocks * 512
			if !dir {
				continue
			}
			if sub := openDir(at, name); sub != nil {
				c.walk(sub, depth+1)
			}
			if c.over() {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// openDir opens a subdirectory. If its owner removed the permissions to hide the content, openDir restores them; only
// services without root need that.
func openDir(at int, name string) *os.File {
	const flags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	fd, err := unix.Openat(at, name, flags, 0)
	if errors.Is(err, unix.EACCES) {
		p, err2 := unix.Openat(at, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err2 != nil {
			return nil
		}
		// Use the descriptor, so that a link put in its place isn't followed.
		_ = unix.Chmod("/proc/self/fd/"+strconv.Itoa(p), 0o700)
		_ = unix.Close(p)
		fd, err = unix.Openat(at, name, flags, 0)
	}
	if err != nil {
		return nil
	}
	return os.NewFile(uintptr(fd), "")
}

// unlinked adds up files on work's file system, or on one of devices, that have no name but are open in one of the
// processes, which run as uid. No walk of a tree finds such files.
func unlinked(pids []int, work string, devices map[uint64]bool, uid int) (sum int64) {
	var home unix.Stat_t
	if unix.Stat(work, &home) != nil {
		return 0
	}
	seen := map[inode]bool{}
	look := func(pid int) error {
		dir := "/proc/" + strconv.Itoa(pid) + "/fd"
		d, err := os.Open(dir)
		if err != nil {
			return err
		}
		names, err := d.Readdirnames(-1)
		_ = d.Close()
		for _, n := range names {
			var st unix.Stat_t
			if err = unix.Stat(dir+"/"+n, &st); errors.Is(err, unix.EACCES) {
				return err
			}
			if err != nil || st.Dev != home.Dev && !devices[uint64(st.Dev)] || st.Nlink != 0 || st.Mode&unix.S_IFMT != unix.S_IFREG {
				continue
			}
			if i := (inode{uint64(st.Dev), st.Ino}); !seen[i] {
				seen[i] = true
				sum += st.Blocks * 512
			}
		}
		return err
	}
	var closed []int
	for _, pid := range pids {
		if errors.Is(look(pid), unix.EACCES) {
			closed = append(closed, pid)
		}
	}
	if len(closed) > 0 {
		as(uid, func() {
			for _, pid := range closed {
				_ = look(pid)
			}
		})
	}
	return sum
}

// as calls f on a thread that switches to uid and keeps its capabilities. Only a tracer (CAP_SYS_PTRACE, which our unit
// drops) or the owner of a process's user namespace may inspect its descriptors: root if we created the namespace (see
// throughStage), else uid.
func as(uid int, f func()) {
	if unix.Geteuid() != 0 || uid <= 0 {
		return
	}
	done := make(chan struct{})
	// uncaught: better the end than a thread that stays another user's
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked if switching back fails, so that the thread ends
		set := func(call, id uintptr) bool {
			_, _, errno := unix.RawSyscall(call, ^uintptr(0), id, ^uintptr(0)) // changes one thread; package syscall would change all
			return errno == 0
		}
		if set(unix.SYS_SETRESGID, uintptr(uid)) && set(unix.SYS_SETRESUID, uintptr(uid)) {
			head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
			var caps [2]unix.CapUserData
			if unix.Capget(&head, &caps[0]) == nil { // permitted capabilities must be made effective again
				caps[0].Effective, caps[1].Effective = caps[0].Permitted, caps[1].Permitted
				_ = unix.Capset(&head, &caps[0])
			}
			f()
		}
		if set(unix.SYS_SETRESUID, 0) && set(unix.SYS_SETRESGID, 0) {
			runtime.UnlockOSThread()
		}
	}()
	<-done
}

// Size returns the cost of a tree whose owner may be changing it: its bytes on disk, or PerFile for each file if that
// is more. It stops counting slightly above most.
func Size(dir string, most int64) int64 {
	return count(dir, tally{most, most / PerFile}, nil).cost()
}
