package sandbox

import (
	"bytes"
	"log/slog"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Several installations on a host use the same uids. Processes of one must not keep another's helpers from starting
// processes.
func TestHelperBesideOthersOfItsUID(t *testing.T) {
	if unix.Geteuid() != 0 {
		t.Skip("only root lends uids")
	}
	h, err := NewHelpers(t.Context(), t.TempDir(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	uid, release, err := h.Identity()
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	limits := Limits{Memory: 256 << 20, Pids: 8, Disk: 1 << 20, Wall: time.Minute, NoFile: 64}
	other := exec.Command("/bin/sh", "-c", "i=0; while [ $i -lt 32 ]; do sleep 600 & i=$((i+1)); done; echo; wait")
	other.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}, Setpgid: true}
	out, err := other.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Kill(-other.Process.Pid, syscall.SIGKILL); _ = other.Wait() }()
	if _, err := out.Read(make([]byte, 1)); err != nil { // all of them run
		t.Fatal(err)
	}
	for _, grouped := range []bool{true, false} {
		x, err := h.New(uid, limits, grouped)
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("/bin/sh", "-c", "/bin/true; [ $(id -u) = "+strconv.Itoa(uid)+" ] && exit 7")
		cmd.Stderr = os.Stderr
		if err := x.Start(cmd); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		if cmd.ProcessState.ExitCode() != 7 {
			t.Errorf("grouped %t: the helper ended with %s beside 33 processes of its uid", grouped, cmd.ProcessState)
		}
		if err := x.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Without a cgroup, RLIMIT_NPROC limits a helper's processes.
func TestHelperProcessesAreBounded(t *testing.T) {
	if unix.Geteuid() != 0 {
		t.Skip("only root lends uids")
	}
	h, err := NewHelpers(t.Context(), t.TempDir(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	x, err := h.New(firstHelper, Limits{Pids: 8}, true)
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	if x.group == nil || x.group.Pids == "" {
		var nproc uint64
		for _, l := range x.rlimits() {
			if l.name == "nproc" {
				nproc = l.Max
			}
		}
		if nproc == 0 || nproc > 8+runaway {
			t.Errorf("without a cgroup RLIMIT_NPROC is %d", nproc)
		}
		return
	}
	cmd := exec.Command("/bin/sh", "-c", "i=0; while [ $i -lt 32 ]; do sleep 600 & i=$((i+1)); done; exit 0")
	if err := x.Start(cmd); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if cmd.ProcessState.Success() {
		t.Error("a helper with 8 processes allowed started 32")
	}
}

// The service's threads have a higher priority than programs, and programs a higher one than builds. A program doesn't
// inherit the service's priority.
func TestPriorities(t *testing.T) {
	if unix.Geteuid() != 0 {
		t.Skip("only root raises a priority")
	}
	var says bytes.Buffer
	Prefer(slog.New(slog.NewTextHandler(&says, &slog.HandlerOptions{Level: slog.LevelDebug})))
	if strings.Contains(says.String(), "operation not supported") {
		t.Skip("the race detector's build can't reach all threads") // it uses cgo
	}
	own, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	for _, thread := range own {
		text, err := os.ReadFile("/proc/self/task/" + thread.Name() + "/stat")
		if err != nil {
			t.Fatal(err)
		}
		if nice := statField(t, string(text), 19); nice != niceService {
			t.Errorf("a thread of the service has nice %d, want %d; %s", nice, niceService, says.String())
		}
	}
	b := newSandbox(t)
	for foreground, want := range map[bool]int{true: niceForeground, false: niceBackground} {
		limits := small()
		limits.Foreground = foreground
		var out bytes.Buffer
		res, err := b.Run(t.Context(), Command{
			Argv:   []string{"cat", "/proc/self/stat"},
			Work:   newWork(t),
			UID:    siteUID(),
			Limits: limits,
			Stdout: &out,
		})
		if err != nil || !res.OK() {
			t.Fatal(res, err)
		}
		if nice := statField(t, out.String(), 19); nice != want {
			t.Errorf("foreground %t: nice %d, want %d", foreground, nice, want)
		}
		if policy := statField(t, out.String(), 41); policy != schedBatch {
			t.Errorf("foreground %t: policy %d, want SCHED_BATCH", foreground, policy)
		}
	}
}

// statField returns a field of proc_pid_stat(5), from the third on.
func statField(t *testing.T, stat string, n int) int {
	t.Helper()
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:]) // starts with the third field
	v, err := strconv.Atoi(fields[n-3])
	if err != nil {
		t.Fatal(err)
	}
	return v
}
