package world

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"slipway/internal/platform/sandbox"
)

// supervisedVar says that this test program has a supervisor.
const supervisedVar = "SLIPWAY_E2E_SUPERVISED"

// supervise runs this test program again, with its own folder for temporary files, and returns the exit status. After
// any end, including a panic, a timeout or SIGKILL, it kills what the tests started and deletes the folder. Orphaned
// processes become its children.
func supervise() (status int) {
	runtime.LockOSThread() // the parent-death signal belongs to the thread that forked
	dir, err := os.MkdirTemp("", "e2e-")
	if err == nil {
		err = os.Chmod(dir, 0o755) // some tests run the program as another user
	}
	if err == nil {
		err = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Args[0] = os.Args[0]
	cmd.Env = append(os.Environ(), supervisedVar+"=1", "TMPDIR="+dir)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGQUIT) // go test sends the last one to a test that hangs
	go func() {
		for s := range signals {
			cmd.Process.Signal(s)
		}
	}()
	for {
		var end syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &end, 0, nil) // including orphans, so that none stays a zombie
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case err != nil:
			fmt.Fprintln(os.Stderr, "wait for the tests:", err)
			status = 1
		case pid != cmd.Process.Pid:
			continue
		case end.Signaled():
			fmt.Fprintln(os.Stderr, "the tests were ended by", end.Signal())
			status = 128 + int(end.Signal())
		default:
			status = end.ExitStatus()
		}
		break
	}
	if left := endChildren(10 * time.Second); len(left) > 0 {
		fmt.Fprintf(os.Stderr, "processes %v that the tests started don't end\n", left)
		status = max(status, 1)
	}
	// Installations whose folder still exists weren't closed.
	filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.IsDir() && e.Name() == "builds" {
			clearGroups(filepath.Dir(path))
			return fs.SkipDir
		}
		return nil
	})
	// Small disks of tests that were killed.
	if mounts, err := os.ReadFile("/proc/self/mounts"); err == nil {
		for line := range strings.Lines(string(mounts)) {
			if f := strings.Fields(line); len(f) > 1 && strings.HasPrefix(f[1], dir+"/") {
				_ = unix.Unmount(f[1], unix.MNT_DETACH)
			}
		}
	}
	if err := os.RemoveAll(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		status = max(status, 1)
	}
	return status
}

// endChildren kills this process's children, and orphans that become its children, until there are none. It returns
// those left after patience.
func endChildren(patience time.Duration) (left []int) {
	for deadline := time.Now().Add(patience); ; {
		left = children(os.Getpid())
		if len(left) == 0 || time.Now().After(deadline) {
			return left
		}
		for _, pid := range left {
			syscall.Kill(pid, syscall.SIGKILL)
		}
		for {
			if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); err != nil || pid == 0 {
				break
			}
		}
		time.Sleep(10 * time.Millisecond) // until the kernel has removed them
	}
}

// children lists the processes whose parent is pid.
func children(pid int) (list []int) {
	names, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		// The name is in parentheses and may contain anything: proc_pid_stat(5).
		f := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
		if len(f) > 1 && f[1] == strconv.Itoa(pid) {
			child, _ := strconv.Atoi(filepath.Base(filepath.Dir(name)))
			list = append(list, child)
		}
	}
	return list
}

// clearGroups deletes the cgroups of an installation that was killed.
func clearGroups(data string) {
	ctx, done := context.WithTimeout(context.Background(), 10*time.Second)
	defer done()
	if dir := filepath.Join(data, "builds", "sandbox"); exists(dir) {
		if s, err := sandbox.New(sandbox.Config{Dir: dir}); err == nil {
			s.Reap(ctx)
		}
	}
	if dir := filepath.Join(data, "source"); exists(dir) {
		sandbox.NewHelpers(ctx, dir, slog.New(slog.DiscardHandler))
	}
}

func exists(dir string) bool {
	_, err := os.Stat(dir)
	return err == nil
}
