package stripetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Mock starts stripe-mock, which knows Stripe's published API and refuses requests that aren't of it, and returns its address. One serves
// all tests of a program. A test that can't have it fails.
func Mock(t testing.TB) string {
	t.Helper()
	url, err := mock()
	if err != nil {
		t.Fatalf("stripe-mock, which checks all requests to Stripe, can't be had: %v", err)
	}
	return url
}

var mock = sync.OnceValues(func() (string, error) {
	root, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("go env: %w", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 8*time.Minute)
	defer cancel()
	build := exec.CommandContext(ctx, "go", "tool", "-n", "stripe-mock")
	build.Dir = filepath.Join(filepath.Dir(strings.TrimSpace(string(root))), "tools/stripemock")
	path, err := build.Output()
	if err != nil {
		var e *exec.ExitError
		if errors.As(err, &e) {
			return "", fmt.Errorf("build: %w: %s", err, e.Stderr)
		}
		return "", fmt.Errorf("build: %w", err)
	}
	for try := 1; ; try++ { // another program may take the port first
		url, err := start(strings.TrimSpace(string(path)))
		if err == nil || try == 3 {
			return url, err
		}
	}
})

// start starts the program at a free port, and returns its address once it answers.
func start(path string) (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	address := l.Addr().String()
	l.Close()
	var says bytes.Buffer
	run := exec.Command(path, "-http-addr", address)
	run.Stdout, run.Stderr = &says, &says
	run.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	ended := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // the program ends with the thread that started it, so that one must stay
		ended <- run.Run()
	}()
	url := "http://" + address
	for deadline := time.Now().Add(time.Minute); ; {
		res, err := http.Get(url)
		if err == nil {
			res.Body.Close()
			return url, nil
		}
		select {
		case err := <-ended:
			return "", fmt.Errorf("it ended: %w: %s", err, says.String())
		case <-time.After(20 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			return "", fmt.Errorf("it doesn't listen: %w", err)
		}
	}
}
