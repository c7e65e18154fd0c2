// Package s3test owns a temporary S3 object store for tests: the Versity gateway over a directory, built from the
// module tools/versitygw.
package s3test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Credentials of all Servers.
const (
	AccessKey = "slipway-tests"
	SecretKey = "not-a-secret-but-long-enough"
)

// Server is a running object store.
type Server struct {
	Addr string // HOST:PORT
	dir  string
	cmd  *exec.Cmd
	args []string
}

// New starts an object store that ends with the test.
func New(t testing.TB) *Server {
	t.Helper()
	s, err := Start(filepath.Join(t.TempDir(), "buckets"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	return s
}

// Start starts an object store over a new directory. Stop ends it.
func Start(dir string) (*Server, error) {
	program, err := Program()
	if err != nil {
		return nil, err
	}
	s := &Server{dir: dir}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return nil, err
	}
	for try := 1; ; try++ { // another process may take the free port
		if s.Addr, err = free(); err != nil {
			return nil, err
		}
		s.args = []string{
			program, "--port", s.Addr, "--access", AccessKey, "--secret", SecretKey, s.dir,
		}
		if err = s.Start(); err == nil {
			return s, nil
		}
		if try == 5 {
			return nil, err
		}
	}
}

// Start restarts the server after Stop, with its data.
func (s *Server) Start() error {
	cmd := exec.Command(s.args[0], s.args[1:]...)
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for deadline := time.Now().Add(time.Minute); ; {
		if c, err := net.Dial("tcp", s.Addr); err == nil {
			c.Close()
			s.cmd = cmd
			return nil
		}
		select {
		case err := <-ended:
			return fmt.Errorf("versitygw ended: %v: %s", err, out.String())
		case <-time.After(20 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			cmd.Process.Kill()
			return errors.New("versitygw doesn't listen")
		}
	}
}

// Stop kills the server and waits until its port is free.
func (s *Server) Stop() {
	if s.cmd != nil {
		s.cmd.Process.Kill()
		for { // wait until its port is free
			if c, err := net.Dial("tcp", s.Addr); err != nil {
				break
			} else {
				c.Close()
			}
		}
		s.cmd = nil
	}
}

// Bucket creates a bucket and returns the address of a store in it, with credentials.
func (s *Server) Bucket(t testing.TB) string {
	t.Helper()
	address, err := s.NewBucket()
	if err != nil {
		t.Fatal(err)
	}
	return address
}

// NewBucket is Bucket outside a test.
func (s *Server) NewBucket() (string, error) {
	name := "b" + strings.ToLower(rand.Text())
	if err := os.Mkdir(filepath.Join(s.dir, name), 0o700); err != nil {
		return "", err
	}
	return s.Address(name, s.Addr), nil
}

// Address returns the address of a bucket at hostport, with credentials.
func (s *Server) Address(bucket, hostport string) string {
	q := url.Values{"endpoint": {"http://" + hostport}, "access-key": {AccessKey}, "secret-key": {SecretKey}}
	return "s3://" + bucket + "?" + q.Encode()
}

// Objects lists the names in a bucket.
func (s *Server) Objects(t testing.TB, address string) (names []string) {
	t.Helper()
	err := filepath.WalkDir(s.Path(address), func(p string, e os.DirEntry, err error) error {
		if err == nil && !e.IsDir() && !strings.Contains(p, "/.") {
			names = append(names, e.Name())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// Path returns the directory of a bucket's objects, for tests that damage them.
func (s *Server) Path(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		panic(err) // can't fail: Bucket made the address
	}
	return filepath.Join(s.dir, u.Host, u.Path)
}

// Program builds the gateway, which the go command caches, and returns its path. It takes --port, --access, --secret
// and a directory of buckets.
func Program() (string, error) {
	root, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("go env: %w", err)
	}
	dir := filepath.Join(filepath.Dir(strings.TrimSpace(string(root))), "tools/versitygw")
	ctx, cancel := context.WithTimeout(context.Background(), 8*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "tool", "-n", "versitygw")
	cmd.Dir = dir
	out, err := cmd.Output()
	if err != nil {
		var e *exec.ExitError
		if errors.As(err, &e) {
			return "", fmt.Errorf("build versitygw: %w: %s", err, e.Stderr)
		}
		return "", fmt.Errorf("build versitygw: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

func free() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}
