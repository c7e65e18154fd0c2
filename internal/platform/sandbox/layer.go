package sandbox

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"slipway/internal/platform/sandbox/inside"
)

// A layer takes what a command writes to a directory of ours that must not change, such as the files of a release: an
// overlay, which root mounts on the launcher's thread. The directory's files belong to root. An idmapped mount shows
// them as the site's, so that the command may change and delete its copies of them. The kernel marks deletions by
// whiteouts and attributes (trusted.*) that only root can set.

// Folders of Bind.Layer. The kernel needs the second for itself.
const (
	layerUpper = "upper"
	layerWork  = "work"
)

// Upper returns the directory of what a command wrote to the bind, or "".
func (b Bind) Upper() string {
	if b.Layer == "" {
		return ""
	}
	return filepath.Join(b.Layer, layerUpper)
}

// Layers reports why layers in dir over source, which both belong to us, are impossible. It returns nil if they work.
func (b *Bubblewrap) Layers(dir, source string, uid int) error {
	if unix.Geteuid() != 0 {
		return errors.New("the service does not run as root")
	}
	trial, err := os.MkdirTemp(dir, "layer-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(trial)
	if trial, err = filepath.EvalSymlinks(trial); err != nil {
		return err
	}
	bind := Bind{Layer: filepath.Join(trial, "layer")}
	if bind.Source, err = filepath.EvalSymlinks(source); err != nil {
		return err
	}
	if err := makeLayer(bind, uid, uid); err != nil {
		return err
	}
	r := run{engine: &b.engine, c: Command{UID: uid, GID: uid}, id: newID()}
	r.launch.id = r.id
	if _, err := b.showLayer(&r, bind); err != nil {
		return err
	}
	t := launcher()
	t.do(func() {
		if err = t.stage; err == nil {
			err = r.launch.mount()
		}
	})
	r.launch.unstage()
	return err
}

// makeLayer makes the folders of a new layer.
func makeLayer(b Bind, uid, gid int) error {
	err := os.MkdirAll(b.Layer, 0o700)
	if err == nil {
		err = os.Mkdir(filepath.Join(b.Layer, layerWork), 0o700)
	}
	if err == nil {
		err = os.Mkdir(b.Upper(), 0o755)
	}
	if err == nil {
		err = os.Lchown(b.Upper(), uid, gid)
	}
	if err != nil {
		return fmt.Errorf("make layer: %w", err)
	}
	return nil
}

// showLayer is launch.show for a bind with a layer.
func (b *Bubblewrap) showLayer(r *run, bind Bind) (string, error) {
	if r.launch.users == nil {
		users, err := b.users.of(b.Self, r.c.UID, r.c.GID)
		if err != nil {
			return "", fmt.Errorf("map the users of a layer: %w", err)
		}
		r.launch.users = users
	}
	at := r.launch.show(bind.Source)
	r.launch.binds[len(r.launch.binds)-1].layer = bind.Layer
	return at, nil
}

// mountLayer mounts the overlay on s.at.
func mountLayer(s staged, users *os.File) error {
	lower := s.lower()
	for _, at := range []string{s.at, lower} {
		if err := os.Mkdir(at, 0o711); err != nil {
			return err
		}
	}
	source, err := openNoLinks(s.source)
	if err != nil {
		return err
	}
	defer unix.Close(source)
	tree, err := unix.OpenTree(source, "", unix.AT_EMPTY_PATH|unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return fmt.Errorf("copy the mount: %w", err)
	}
	defer unix.Close(tree)
	if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, &unix.MountAttr{
		Attr_set:  unix.MOUNT_ATTR_IDMAP | unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV,
		Userns_fd: uint64(users.Fd()),
	}); err != nil {
		return fmt.Errorf("map users: %w", err)
	}
	if err := unix.MoveMount(tree, "", unix.AT_FDCWD, lower, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("attach the mount: %w", err)
	}
	own, err := openNoLinks(s.layer)
	if err != nil {
		return err
	}
	defer unix.Close(own)
	layer := "/proc/self/fd/" + strconv.Itoa(own)
	// volatile: nothing of it is needed after the command, so fsync(2) doesn't wait for the disk.
	err = unix.Mount("overlay", s.at, "overlay", unix.MS_NOSUID|unix.MS_NODEV, fmt.Sprintf(
		"lowerdir=%s,upperdir=%s,workdir=%s,redirect_dir=on,index=off,metacopy=off,volatile",
		lower, filepath.Join(layer, layerUpper), filepath.Join(layer, layerWork)))
	if err != nil {
		return fmt.Errorf("mount an overlay: %w", err)
	}
	return nil
}

// lower returns the mount point of a layer's source.
func (s staged) lower() string { return s.at + ".lower" }

// devices returns the numbers of the overlays' file systems.
func (l *launch) devices() map[uint64]bool {
	all := map[uint64]bool{}
	launcher().do(func() {
		for _, b := range l.binds {
			var st unix.Stat_t
			if b.layer != "" && unix.Stat(b.at, &st) == nil {
				all[uint64(st.Dev)] = true
			}
		}
	})
	return all
}

// users keeps user namespaces that map root to a site's uid.
type users struct {
	mu sync.Mutex // guards by
	// share: total 256 sites; owner its sites; edge all are made again
	by map[[2]int]*os.File
}

const maxUsers = 256

func (u *users) of(helper string, uid, gid int) (*os.File, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if f := u.by[[2]int{uid, gid}]; f != nil {
		return dup(f)
	}
	f, err := mapUsers(helper, uid, gid)
	if err != nil {
		return nil, err
	}
	if len(u.by) >= maxUsers {
		for _, old := range u.by {
			_ = old.Close()
		}
		u.by = nil
	}
	if u.by == nil {
		u.by = map[[2]int]*os.File{}
	}
	u.by[[2]int{uid, gid}] = f
	return dup(f)
}

// mapUsers returns a user namespace in which root is uid and gid. A process in it exists only while it is opened.
func mapUsers(helper string, uid, gid int) (*os.File, error) {
	cmd := exec.Command(helper, inside.Name, "hold")
	cmd.Env = []string{}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: uid, Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: gid, Size: 1}},
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	defer func() { _, _ = in.Close(), cmd.Wait() }()
	return os.Open(fmt.Sprintf("/proc/%d/ns/user", cmd.Process.Pid))
}
