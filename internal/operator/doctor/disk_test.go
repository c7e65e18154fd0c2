package doctor

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"slipway/internal/operator/config"
	"slipway/internal/operator/installation"
	"slipway/internal/platform/db"
	"slipway/internal/platform/disk"
	"slipway/internal/platform/wait"
)

// Without an installation, for example in a mistyped directory, doctor creates nothing.
func TestNoInstallation(t *testing.T) {
	t.Parallel()
	s := installation.Store{DataDir: filepath.Join(t.TempDir(), "mistyped")}
	checks := Examine(t.Context(), s, config.SMTP{}, Certificates{})
	if c := checks[0]; c.OK || !strings.Contains(c.Text, "has no installation") {
		t.Errorf("%+v", c)
	}
	if _, err := os.Stat(s.DataDir); !os.IsNotExist(err) {
		t.Errorf("the directory was made: %v", err)
	}
}

// On a full disk doctor reports that the data directory isn't writable and fails, and the database reports that it
// takes no writes.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "small")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=40m"); err != nil {
		t.Skipf("NOT TESTED: this machine can't mount a small file system: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	s := installation.Store{DataDir: filepath.Join(dir, "data")}
	d, _, err := s.Open(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if err := d.TakesWrites(t.Context()); err != nil {
		t.Errorf("there is room: %v", err)
	}
	ballast := filepath.Join(dir, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 64<<20), 0o600); !disk.Full(err) {
		t.Fatalf("the disk isn't full: %v", err)
	}
	if c := dataDir(s); c.OK || !c.Required || !strings.Contains(c.Text, "no space left") {
		t.Errorf("%+v", c)
	}
	if err := d.TakesWrites(t.Context()); !db.Full(err) {
		t.Errorf("the database takes writes: %v", err)
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	// A file system may free a removed file's space a moment later.
	wait.Until(t, "a data directory that can be written", func() bool { return !dataDir(s).Required })
	if err := d.TakesWrites(t.Context()); err != nil {
		t.Errorf("once there is room: %v", err)
	}
}
