package stripetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Mock starts stripe-mock, which validates requests against Stripe's published API, and returns its address. All tests
// of a program share one. The test fails if it can't start.
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
	return start(strings.TrimSpace(string(path)))
})

// listening matches the line that stripe-mock prints with its port.
var listening = regexp.MustCompile(`Listening for HTTP at address: (\S+)\n`)

// start starts the program on free ports, also for HTTPS, whose default port would conflict between concurrent tests.
// It returns the address once it answers.
func start(path string) (string, error) {
	says := new(output)
	run := exec.Command(path, "-http-addr", "127.0.0.1:0", "-https-addr", "127.0.0.1:0")
	run.Stdout, run.Stderr = says, says
	run.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	ended := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // the program ends with the thread that started it, so keep the thread
		ended <- run.Run()
	}()
	for deadline := time.Now().Add(time.Minute); ; {
		if m := listening.FindStringSubmatch(says.String()); m != nil {
			url := "http://" + m[1]
			res, err := http.Get(url)
			if err == nil {
				res.Body.Close()
				return url, nil
			}
		}
		select {
		case err := <-ended:
			return "", fmt.Errorf("it ended: %w: %s", err, says)
		case <-time.After(20 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			return "", fmt.Errorf("it doesn't answer after a minute; it printed: %s", says)
		}
	}
}

// output collects a program's output and can be read concurrently.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}
