package watchdog

import (
	"log/slog"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"slipway/internal/platform/wait"
)

// sleeper starts a process and returns its pidfd, and a channel that is closed when it ends.
func sleeper(t *testing.T) (pidfd int, ended chan struct{}) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sleep", "3600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pidfd, err := unix.PidfdOpen(cmd.Process.Pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	ended = make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	t.Cleanup(func() { _ = unix.Close(pidfd) })
	return pidfd, ended
}

func closed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// Held processes are killed at the deadline, not before it if it was extended. Released processes aren't.
func TestDeadline(t *testing.T) {
	t.Parallel()
	w := New(Config{Log: slog.New(slog.DiscardHandler)})
	t.Cleanup(w.Close)
	hold := func(deadline time.Duration) (*Held, chan struct{}) {
		t.Helper()
		w.Extend(deadline)
		fd, ended := sleeper(t)
		h, err := w.Hold(fd)
		if err != nil {
			t.Fatal(err)
		}
		return h, ended
	}
	_, first := hold(Now() + 300*time.Millisecond)
	released, stays := hold(Now() + time.Hour)
	_, third := hold(Now() + time.Hour)
	released.Release()
	released.Kill() // has no effect after Release
	last, fourth := hold(Now() + time.Hour)
	if closed(first) || closed(third) {
		t.Fatal("a process was ended before its deadline")
	}
	last.Kill()
	wait.Until(t, "what was killed has ended", func() bool { return closed(fourth) })
	if closed(first) {
		t.Fatal("a process was ended at its earlier deadline")
	}
	soon := Now() + 100*time.Millisecond
	w.Extend(soon)
	wait.Until(t, "what is held has ended", func() bool { return closed(first) && closed(third) })
	if Now() < soon {
		t.Error("the process was ended before the deadline")
	}
	if closed(stays) {
		t.Error("a released process was ended")
	}
}

// The end of the service kills held processes like a deadline. The end of the watchdog doesn't: another one is started.
func TestEnds(t *testing.T) {
	t.Parallel()
	w := New(Config{Log: slog.New(slog.DiscardHandler)})
	w.Extend(Now() + time.Hour)
	fd, ended := sleeper(t)
	if _, err := w.Hold(fd); err != nil {
		t.Fatal(err)
	}
	before := w.PID()
	if err := unix.Kill(before, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	wait.Until(t, "another one runs", func() bool { pid := w.PID(); return pid != 0 && pid != before })
	if closed(ended) {
		t.Fatal("a process was ended when the watchdog ended")
	}
	if err := w.conn.Close(); err != nil { // as the kernel does when the service ends
		t.Fatal(err)
	}
	wait.Until(t, "what is held has ended", func() bool { return closed(ended) })
	w.Close()
}
