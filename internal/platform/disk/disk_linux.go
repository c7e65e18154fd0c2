package disk

import (
	"bytes"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// RenameTree is [Rename] for a newly written directory: it first syncs everything below it.
func RenameTree(from, to string) error {
	if err := SyncAll(from); err != nil {
		return err
	}
	return Rename(from, to)
}

// SyncAll syncs the file system that holds path. Use it after writing many files.
func SyncAll(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(unix.Syncfs(int(f.Fd())), f.Close())
}

// AfterBoot calls clear once after each boot of the machine, or when layout changes, and records that in a file. Use it
// for files that were never synced: after a power cut any of them may be empty.
func AfterBoot(file, layout string, clear func() error) error {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return fmt.Errorf("read the id of this boot: %w", err)
	}
	boot = append(boot, layout+"\n"...)
	if noted, err := os.ReadFile(file); err == nil && bytes.Equal(noted, boot) {
		return nil
	}
	if err := clear(); err != nil {
		return err
	}
	return Write(file, boot, 0o600)
}
