// Command onscratch runs a command with its temporary files (TMPDIR) on a separate file system: an image that is
// mounted only for this command and its children, and disappears when the last of them exits.
//
// Tests create and delete millions of small files. On an ext4 file system without a journal, which virtual machines
// often have, the kernel skips the inodes deleted in the last half minute one by one, which takes half of such a test's
// processor time. On all disks, tests would wait for data to be written that they then delete. A tmpfs would be as
// fast, but would count toward the memory limits of builds. If the image can't be mounted (that needs root, mkfs.ext4
// and a loop device), the command runs without it.
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
	runtime.LockOSThread() // mount namespaces are per thread until exec
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
	leastRoom = 12 << 30 // free bytes required for an image
	mostRoom  = 64 << 30 // size of the image in bytes; it is sparse
)

// mount mounts a new file system for this thread and the program that it executes, and returns the path.
func mount() (dir string, err error) {
	if os.Geteuid() != 0 {
		return "", errors.New("only root may mount an image")
	}
	image, err := os.CreateTemp("", "slipway-scratch-")
	if err != nil {
		return "", err
	}
	defer image.Close()
	defer os.Remove(image.Name()) // the loop device keeps it open
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
	defer device.Close() // keeps it while it is mounted
	if dir, err = place(); err != nil {
		return "", err
	}
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return "", fmt.Errorf("mount namespace: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return "", fmt.Errorf("mount namespace: %w", err)
	}
	// fsync needn't reach the disk. Discard is off, because ext4 discards while it commits, so every fsync would wait
	// for a deleted node_modules.
	if err := unix.Mount(device.Name(), dir, "ext4", unix.MS_NOATIME|unix.MS_NODEV,
		"nobarrier,data=writeback,noinit_itable,commit=60"); err != nil {
		return "", fmt.Errorf("mount the image: %w", err)
	}
	return dir, os.Chmod(dir, 0o777|os.ModeSticky)
}

// loop attaches the image to a free loop device, which is released when nothing uses it.
func loop(image *os.File) (*os.File, error) {
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer control.Close()
	for range 10 { // another process may take the device first
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

// place returns a folder to mount on. Its path must be short, because paths of sockets are limited to 107 bytes: it is
// one of Debian's standard mount points, if it is empty.
func place() (string, error) {
	for _, dir := range []string{"/srv", "/mnt", "/media"} {
		if entries, err := os.ReadDir(dir); err == nil && len(entries) == 0 {
			return dir, nil
		}
	}
	return os.MkdirTemp("/tmp", "s")
}
