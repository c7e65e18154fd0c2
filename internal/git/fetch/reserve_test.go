package fetch

import (
	"crypto/rand"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"slipway/internal/platform/disk"
	"slipway/internal/platform/egress"
)

// Fetching a repository larger than the disk fails with an error that says so, before or when the disk is full, and its
// space is freed.
func TestFetchOnASmallDisk(t *testing.T) {
	t.Parallel()
	if os.Getenv("SLIPWAY_TEST_SMALL_DISK") == "" {
		// Run in a new process, because git helpers started by other tests don't see a later mount.
		c := exec.Command(os.Args[0], "-test.run=^TestFetchOnASmallDisk$", "-test.v")
		c.Env = append(os.Environ(), "SLIPWAY_TEST_SMALL_DISK=1")
		out, err := c.CombinedOutput()
		t.Logf("%s", out)
		if err != nil {
			t.Error(err)
		}
		return
	}
	dir, repos := filepath.Join(t.TempDir(), "small"), t.TempDir()
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=60m"); err != nil {
		t.Skipf("NOT TESTED: this machine can't mount a small file system: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	big := make([]byte, 70<<20) // incompressible
	_, _ = rand.Read(big)
	work := filepath.Join(repos, "work")
	if err := os.MkdirAll(work, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(work, "big.bin"), big, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"init", "-q", "-b", "main", "."},
		{"add", "."},
		{"-c", "user.name=a", "-c", "user.email=a@b.test", "commit", "-q", "-m", "x"},
		{"clone", "-q", "--bare", ".", filepath.Join(repos, "ada", "site.git")},
	} {
		c := exec.Command("git", append([]string{"-c", "core.compression=0"}, args...)...)
		c.Dir = work
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v: %s", args, err, out)
		}
	}
	out, err := egress.New(egress.Config{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(Config{
		Dir: filepath.Join(dir, "source"), Egress: out, Hosts: map[string]string{"git.test": "file://" + repos}, MaxPack: 1 << 30,
	})
	if err != nil {
		t.Fatal(err)
	}
	r, err := ParseRepository("git.test/ada/site")
	if err != nil {
		t.Fatal(err)
	}
	if _, err = s.Fetch(t.Context(), Request{Site: "site_1", Repository: r, Branch: "main"}); !disk.Full(err) {
		t.Errorf("the fetch ended with %v; want an error of a full disk", err)
	}
	if err := disk.Spare(dir, 40<<20); err != nil {
		t.Errorf("what the fetch took is not free again: %v", err)
	}
}
