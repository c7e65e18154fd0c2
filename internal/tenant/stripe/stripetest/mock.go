package stripetest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
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
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	port := l.Addr().(*net.TCPAddr).Port
	l.Close()
	run := exec.Command(strings.TrimSpace(string(path)), "-http-addr", fmt.Sprintf("127.0.0.1:%d", port))
	run.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := run.Start(); err != nil {
		return "", err
	}
	url := fmt.Sprintf("http://127.0.0.1:%d", port)
	for deadline := time.Now().Add(time.Minute); ; {
		res, err := http.Get(url)
		if err == nil {
			res.Body.Close()
			return url, nil
		}
		if time.Now().After(deadline) {
			return "", fmt.Errorf("it doesn't listen: %w", err)
		}
		time.Sleep(20 * time.Millisecond)
	}
})
