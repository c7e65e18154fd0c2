package disk

import (
	"bytes"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// RenameTree is Rename for a directory that was filled just now: everything below it is on the disk before it has its new name.
func RenameTree(from, to string) error {
	if err := SyncAll(from); err != nil {
		return err
	}
	return Rename(from, to)
}

// SyncAll returns once all of the file system that holds path is on the disk: for many files that were written just now.
func SyncAll(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(unix.Syncfs(int(f.Fd())), f.Close())
}

// AfterBoot calls clear, and then notes in a file that it did, unless it did so since the machine started. It is for files that
// nobody waited to have on the disk: after a power cut, any of them may be empty. Another layout is cleared, too.
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
