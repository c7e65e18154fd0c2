// Command onscratch runs a command whose temporary files (TMPDIR) are on a file system of
// their own: an image that is mounted for this command and what it starts alone, and is gone with
// the last of them, however they end.
//
// Tests make and delete millions of small files. On an ext4 without a journal, as virtual
// machines often have, the kernel passes over each inode that was deleted in the last half minute,
// one by one, which takes half of the processor time of such a test; and everywhere tests wait for a
// disk to have what they will delete. A tmpfs would be as fast, but counts as memory of the build
// that writes to it. Where the image can't be mounted (it takes root, mkfs.ext4 and a loop device),
// the command runs without it.
package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

func main() {
	runtime.LockOSThread() // a mount namespace is a thread's until exec
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: onscratch COMMAND…")
		os.Exit(2)
	}
	path, err := exec.LookPath(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, "onscratch:", err)
		os.Exit(2)
	}
	env := os.Environ()
	if dir, err := mount(); err != nil {
		fmt.Fprintln(os.Stderr, "temporary files are where they always are, which is slower:", err)
	} else {
		env = append(slices.DeleteFunc(env, func(e string) bool { return strings.HasPrefix(e, "TMPDIR=") }), "TMPDIR="+dir)
	}
	fmt.Fprintln(os.Stderr, "onscratch:", syscall.Exec(path, os.Args[1:], env))
	os.Exit(2)
}

const (
	leastRoom = 12 << 30 // bytes that must be free for an image to be of use
	mostRoom  = 64 << 30 // bytes of an image, which takes the room of what is in it alone
)

// mount mounts a new file system, for this thread and what it executes, and returns where.
func mount() (dir string, err error) {
	if os.Geteuid() != 0 {
		return "", errors.New("only root may mount an image")
	}
	image, err := os.CreateTemp("", "slipway-scratch-")
	if err != nil {
		return "", err
	}
	defer image.Close()
	defer os.Remove(image.Name()) // the loop device keeps it
	var disk unix.Statfs_t
	if err := unix.Fstatfs(int(image.Fd()), &disk); err != nil {
		return "", err
	}
	room := int64(disk.Bavail) * disk.Bsize
	if room < leastRoom {
		return "", fmt.Errorf("%s has less than %d GiB free", filepath.Dir(image.Name()), leastRoom>>30)
	}
	if err := image.Truncate(min(mostRoom, room*3/4)); err != nil {
		return "", err
	}
	if out, err := exec.Command("mkfs.ext4", "-q", "-m", "0", "-O", "^metadata_csum", "-E", "lazy_itable_init=1,lazy_journal_init=1",
		image.Name()).CombinedOutput(); err != nil {
		return "", fmt.Errorf("mkfs.ext4: %w %s", err, strings.TrimSpace(string(out)))
	}
	device, err := loop(image)
	if err != nil {
		return "", fmt.Errorf("loop device: %w", err)
	}
	defer device.Close() // mounted, it stays; else it is free again
	if dir, err = place(); err != nil {
		return "", err
	}
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return "", fmt.Errorf("mount namespace: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return "", fmt.Errorf("mount namespace: %w", err)
	}
	// What fsync writes need not reach the disk. Nothing is discarded: ext4 does that while it commits, and every fsync would wait
	// for the holes that a deleted node_modules leaves in the image.
	if err := unix.Mount(device.Name(), dir, "ext4", unix.MS_NOATIME|unix.MS_NODEV,
		"nobarrier,data=writeback,noinit_itable,commit=60"); err != nil {
		return "", fmt.Errorf("mount the image: %w", err)
	}
	return dir, os.Chmod(dir, 0o777|os.ModeSticky)
}

// loop makes a free loop device of the image, which ends when nothing uses it any more.
func loop(image *os.File) (*os.File, error) {
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer control.Close()
	for range 10 { // somebody may be quicker
		n, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return nil, err
		}
		device, err := os.OpenFile(fmt.Sprint("/dev/loop", n), os.O_RDWR, 0)
		if err != nil {
			return nil, err
		}
		err = unix.IoctlLoopConfigure(int(device.Fd()), &unix.LoopConfig{
			Fd: uint32(image.Fd()), Info: unix.LoopInfo64{Flags: unix.LO_FLAGS_AUTOCLEAR},
		})
		if err == nil {
			return device, nil
		}
		device.Close()
		if !errors.Is(err, unix.EBUSY) {
			return nil, err
		}
	}
	return nil, unix.EBUSY
}

// place chooses a folder to mount on, whose name is short, because those of sockets below it may
// have 107 bytes: one of those that Debian has for such things, where it is empty.
func place() (string, error) {
	for _, dir := range []string{"/srv", "/mnt", "/media"} {
		if entries, err := os.ReadDir(dir); err == nil && len(entries) == 0 {
			return dir, nil
		}
	}
	return os.MkdirTemp("/tmp", "s")
}
