package world

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// deadlyVar makes this test program start child processes and then exit in the given way: return, panic or kill.
const deadlyVar = "SLIPWAY_E2E_DEADLY"

func TestMain(m *testing.M) {
	if os.Getenv(deadlyVar) == "" {
		os.Exit(m.Run())
	}
	if os.Getenv(supervisedVar) == "" {
		os.Exit(supervise())
	}
	os.Exit(deadly())
}

// deadly leaves behind a child, a detached child, a grandchild, a detached grandchild, and files.
func deadly() int {
	dir, err := os.MkdirTemp("", "left-")
	if err != nil {
		panic(err)
	}
	for _, argv := range [][]string{
		{"sleep", "86213"},
		{"setsid", "sleep", "86213"},
		{"sh", "-c", "(setsid sleep 86213 &) ; sleep 86213"},
	} {
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		if err := cmd.Start(); err != nil {
			panic(err)
		}
	}
	for deadline := time.Now().Add(time.Minute); len(sleepers()) < 4 && time.Now().Before(deadline); {
		time.Sleep(5 * time.Millisecond) // until all of them are there
	}
	if err := os.WriteFile(os.Getenv("SLIPWAY_E2E_NOTE"), []byte(dir+" "+strconv.Itoa(len(sleepers()))), 0o600); err != nil {
		panic(err)
	}
	switch os.Getenv(deadlyVar) {
	case "panic":
		panic("a test panics")
	case "kill":
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	return 3
}

// sleepers returns the pids of deadly's processes, which it finds by their command line.
func sleepers() (pids []string) {
	names, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, name := range names {
		if text, err := os.ReadFile(name); err == nil && strings.HasPrefix(string(text), "sleep\x0086213\x00") {
			pids = append(pids, filepath.Base(filepath.Dir(name)))
		}
	}
	return pids
}

// However a test program ends, the supervisor kills all of its processes and deletes its temporary files.
func TestNothingOutlivesTheTests(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for how, want := range map[string]int{"return": 3, "panic": 2, "kill": 128 + 9} {
		note, tmp := filepath.Join(t.TempDir(), "note"), t.TempDir()
		cmd := exec.Command(self)
		cmd.Env = append(os.Environ(), deadlyVar+"="+how, "SLIPWAY_E2E_NOTE="+note, "TMPDIR="+tmp)
		out, err := cmd.CombinedOutput()
		if got := cmd.ProcessState.ExitCode(); got != want {
			t.Errorf("%s: exit status %d, want %d: %v\n%s", how, got, want, err, out)
		}
		text, err := os.ReadFile(note)
		dir, n, _ := strings.Cut(string(text), " ")
		if err != nil || n != "4" || !strings.HasPrefix(dir, tmp) {
			t.Fatalf("%s: the test's note is %q, %v: it must start 4 processes and work below %s\n%s", how, text, err, tmp, out)
		}
		if left := sleepers(); len(left) > 0 {
			t.Errorf("%s: processes %v run on", how, left)
		}
		if left, err := os.ReadDir(tmp); err != nil || len(left) > 0 {
			t.Errorf("%s: files are left: %v, %v", how, left, err)
		}
	}
}
