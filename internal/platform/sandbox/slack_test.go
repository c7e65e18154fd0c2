package sandbox

import (
	"bytes"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// A command has the usual timer slack, even if the service's own threads have a larger one.
func TestCommandsHaveTheUsualTimerSlack(t *testing.T) {
	switch _, _, errno := syscall.AllThreadsSyscall(unix.SYS_PRCTL, unix.PR_SET_TIMERSLACK, 1_000_000, 0); errno {
	case 0:
	case syscall.ENOTSUP:
		t.Skip("this test is built with cgo, the program is not")
	default:
		t.Fatal(errno)
	}
	var out bytes.Buffer
	res, err := newSandbox(t).Run(t.Context(), Command{
		Argv:   []string{"cat", "/proc/self/timerslack_ns"},
		Work:   newWork(t),
		UID:    siteUID(),
		Limits: small(),
		Stdout: &out,
		Stderr: &out,
	})
	if err != nil || !res.OK() || strings.TrimSpace(out.String()) != "50000" {
		t.Errorf("slack %q, %v, %v", out.String(), res, err)
	}
}
