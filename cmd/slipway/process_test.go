//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"slipway/internal/platform/wait"
)

// As the program itself, the tests' binary is what is run here.
func TestMain(m *testing.M) {
	if os.Getenv("SLIPWAY_TEST_IS_PROGRAM") != "" {
		os.Exit(run(os.Args[1:]))
	}
	// The developer may have exported settings such as SLIPWAY_LISTEN: the tests must not read them.
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); strings.HasPrefix(name, "SLIPWAY_") && !strings.HasPrefix(name, "SLIPWAY_TEST_") {
			os.Unsetenv(name)
		}
	}
	os.Exit(m.Run())
}

// program returns the program with arguments, in a home and a process group of its own.
func program(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, os.Args[0], args...)
	home := t.TempDir()
	cmd.Dir = home
	cmd.Env = []string{"SLIPWAY_TEST_IS_PROGRAM=1", "HOME=" + home, "XDG_CONFIG_HOME=" + home, "PATH=" + os.Getenv("PATH")}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return cmd
}

// ended returns the status with which a program has ended, and the signal, if it was one.
func ended(t *testing.T, err error) (status int, signal syscall.Signal) {
	t.Helper()
	var x *exec.ExitError
	if err != nil && !errors.As(err, &x) {
		t.Fatal(err)
	}
	if x == nil {
		return 0, 0
	}
	if w := x.Sys().(syscall.WaitStatus); w.Signaled() {
		return 0, w.Signal()
	}
	return x.ExitCode(), 0
}

// A disk that is full is said; a reader that has gone, such as head, ends the program without a word.
func TestOutputIsLost(t *testing.T) {
	t.Parallel()
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	var said bytes.Buffer
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"data": [{"id": "site_1", "slug": "harbor", "name": "Harbor"}]}`)
	}))
	t.Cleanup(server.Close)
	list := []string{"sites", "list", "--server", server.URL, "--token", "slw_x"}
	cmd := program(t, list...)
	cmd.Stdout, cmd.Stderr = full, &said
	if status, _ := ended(t, cmd.Run()); status != 1 || !strings.Contains(said.String(), "no space left") {
		t.Errorf("on a full disk it ends with %d and says %q", status, said.String())
	}
	data := t.TempDir()
	for _, args := range [][]string{{"version"}, {"user", "create", "--data-dir", data, "--email", "ada@example.test"}} {
		said.Reset()
		cmd := program(t, args...)
		cmd.Stdout, cmd.Stderr = full, &said
		if status, _ := ended(t, cmd.Run()); status != 1 || !strings.Contains(said.String(), "no space left") {
			t.Errorf("%q ends on a full disk with %d and says %q", args, status, said.String())
		}
	}

	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	said.Reset()
	cmd = program(t, list...)
	cmd.Stdout, cmd.Stderr = w, &said
	if _, signal := ended(t, cmd.Run()); signal != syscall.SIGPIPE || said.Len() > 0 {
		t.Errorf("without a reader it ends by %v and says %q", signal, said.String())
	}
}

// Ctrl-C ends what waits for a server with 130.
func TestInterruptedRequest(t *testing.T) {
	t.Parallel()
	asked := make(chan struct{}, 10)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		<-r.Context().Done()
	}))
	t.Cleanup(server.Close)
	cmd := program(t, "whoami", "--server", server.URL, "--token", "slw_x")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	<-asked
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if status, _ := ended(t, cmd.Wait()); status != 130 {
		t.Errorf("it ends with %d", status)
	}
}

// What a command runs may want to go on after Ctrl-C; a second one ends the command whatever that does.
func TestInterruptedTwice(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/api/v1/sites" || strings.HasSuffix(r.URL.Path, "/env") {
			_, _ = io.WriteString(w, `{"data": [{"id": "site_1", "slug": "harbor", "name": "Harbor"}]}`)
			return
		}
		_, _ = io.WriteString(w, `{"id": "site_1", "slug": "harbor", "name": "Harbor"}`)
	}))
	t.Cleanup(server.Close)
	cmd := program(t, "env", "run", "--server", server.URL, "--token", "slw_x", "--site", "site_1", "--",
		"sh", "-c", `trap "echo again" INT; echo $$; while :; do sleep 0.1; done`)
	out, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	cmd.Stdout = w
	if err := errors.Join(cmd.Start(), w.Close()); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 100)
	n, err := out.Read(buf)
	if err != nil {
		t.Fatal(err)
	}
	child, err := strconv.Atoi(strings.TrimSpace(string(buf[:n])))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Kill(child, syscall.SIGKILL) }()
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if n, err := out.Read(buf); err != nil || string(buf[:n]) != "again\n" {
		t.Fatalf("the child was not told: %q, %v", buf[:n], err)
	}
	over := make(chan error, 1)
	go func() { over <- cmd.Wait() }()
	wait.Until(t, "it has ended", func() bool {
		_ = cmd.Process.Signal(os.Interrupt) // until it has ended
		return len(over) > 0
	})
	if _, signal := ended(t, <-over); signal != syscall.SIGINT {
		t.Errorf("the second time it ends by %v", signal)
	}
}

// Ctrl-C while a secret is typed ends the command with 130, and the terminal shows again what is typed.
func TestInterruptedSecret(t *testing.T) {
	t.Parallel()
	ours, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	fd := int(ours.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	peer, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.TIOCGPTPEER, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC)
	if errno != 0 {
		t.Fatal(errno)
	}
	inside := os.NewFile(peer, "terminal")
	defer inside.Close()
	cmd := program(t, "env", "set", "TOKEN", "--server", "http://127.0.0.1:1", "--token", "slw_x", "--site", "site_1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = inside, inside, inside
	cmd.SysProcAttr.Setctty = true
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	echo := func() bool {
		t.Helper()
		state, err := unix.IoctlGetTermios(int(inside.Fd()), unix.TCGETS)
		if err != nil {
			t.Fatal(err)
		}
		return state.Lflag&unix.ECHO != 0
	}
	shown, buf := "", make([]byte, 1000)
	for !strings.Contains(shown, "Value of TOKEN: ") {
		n, err := ours.Read(buf)
		if err != nil {
			t.Fatalf("%v after %q", err, shown)
		}
		shown += string(buf[:n])
	}
	wait.Until(t, "the terminal hides what is typed", func() bool { return !echo() })
	if _, err := ours.WriteString("\x03"); err != nil {
		t.Fatal(err)
	}
	if status, _ := ended(t, cmd.Wait()); status != 130 {
		t.Errorf("it ends with %d", status)
	}
	if !echo() {
		t.Error("the terminal hides what is typed")
	}
}
