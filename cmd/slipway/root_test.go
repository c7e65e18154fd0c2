//go:build linux

package main

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// asNobody returns the program as a user who may write nowhere.
func asNobody(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	cmd := program(t, args...)
	if os.Geteuid() != 0 {
		return cmd
	}
	dir, err := os.MkdirTemp("", "slipway-nobody-") // t.TempDir lies below one that others can't enter
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	from, err := os.Open(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	to, err := os.OpenFile(filepath.Join(dir, "slipway"), os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.Copy(to, from)
	if closed := to.Close(); err != nil || closed != nil {
		t.Fatal(err, closed)
	}
	cmd.Path, cmd.Dir = to.Name(), "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	return cmd
}

// A normal user is told to be root, before any question and with no riddle about files.
func TestOperatorsCommandsOfANormalUser(t *testing.T) {
	t.Parallel()
	closed := filepath.Join(t.TempDir(), "closed")
	if err := os.Mkdir(closed, 0o500); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"secrets.key", "slipway.db"} {
		if err := os.WriteFile(filepath.Join(closed, name), nil, 0o400); err != nil {
			t.Fatal(err)
		}
	}
	for _, line := range []string{
		"setup --yes --site-domain sites.example.net --base-url https://panel.example.com --email a@example.com --file " + closed + "/new/server.toml",
		"user list --data-dir " + closed,
		"gc --data-dir " + closed,
		"backup create --data-dir " + closed,
		"ca export --data-dir " + closed,
		"user list --data-dir " + filepath.Join(closed, "below"),
	} {
		out, err := asNobody(t, strings.Fields(line)...).CombinedOutput()
		if err == nil || !strings.Contains(string(out), "run it as root") || strings.Count(string(out), "\n") != 1 {
			t.Errorf("slipway %s: %v\n%s", line, err, out)
		}
	}
	out, err := asNobody(t, "doctor", "--data-dir", closed).CombinedOutput()
	if os.Geteuid() == 0 && (err == nil || !strings.Contains(string(out), "run it as root")) {
		t.Errorf("slipway doctor: %v\n%s", err, out)
	}
}
