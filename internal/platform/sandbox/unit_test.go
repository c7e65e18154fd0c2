package sandbox

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// Under the systemd unit, root may not trace other processes. Deleted files that are still open count towards the disk
// limit nevertheless.
func TestUnlinkedFilesWithoutTracing(t *testing.T) {
	if unix.Geteuid() != 0 {
		t.Skip("a plain user never may trace others")
	}
	var out []byte
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // the thread ends with the goroutine, because it has lost the capability
		if err = unix.Prctl(unix.PR_CAPBSET_DROP, unix.CAP_SYS_PTRACE, 0, 0, 0); err == nil {
			out, err = exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^TestLimits$/^unlinked_files$").CombinedOutput()
		}
	}()
	<-done
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// A path bound into a sandbox must not contain a symbolic link, which could have replaced a folder after the check.
func TestStagedPathsHaveNoLinks(t *testing.T) {
	t.Parallel()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.MkdirAll(filepath.Join(dir, "a", "b"), 0o755), os.Symlink("a", filepath.Join(dir, "link")),
		os.Symlink("b", filepath.Join(dir, "a", "last"))); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]error{
		"/": nil, dir: nil, filepath.Join(dir, "a", "b"): nil,
		filepath.Join(dir, "link", "b"): unix.ELOOP, filepath.Join(dir, "a", "last"): unix.ELOOP, filepath.Join(dir, "none", "b"): unix.ENOENT,
	} {
		fd, err := openNoLinks(path)
		if !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", path, err, want)
		}
		if err == nil {
			_ = unix.Close(fd)
		}
	}
}
