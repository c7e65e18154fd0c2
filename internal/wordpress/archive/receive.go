package archive

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"slipway/internal/platform/disk"
	"slipway/internal/platform/fault"
)

// Receive writes an archive of at most so many bytes to the disk.
func Receive(f *os.File, body io.Reader, most int64) error {
	n, err := io.Copy(f, disk.Sparing(filepath.Dir(f.Name()), io.LimitReader(body, most+1)))
	synced := f.Sync()
	switch {
	case disk.Full(err) || disk.Full(synced):
		return diskFull()
	case err != nil:
		return fault.New(fault.Invalid, "invalid_import", "The archive could not be received",
			"the connection ended before the upload was complete")
	case n > most:
		return fault.New(fault.TooLarge, "import_too_large", "The archive is too large",
			fmt.Sprintf("this site may store %d MiB; raise run.storageMiB", most>>20))
	case n == 0:
		return Bad("it is empty")
	case synced != nil:
		return fmt.Errorf("store import: %w", synced)
	}
	return nil
}

func diskFull() error {
	return fault.New(fault.Unavailable, "disk_full", "The server's disk is full", "nothing was changed")
}

func Bad(why string) error {
	return fault.New(fault.Invalid, "invalid_import", "The archive can't be imported",
		why+"; it must be a .tar.gz or a .zip with wp-content and one .sql file")
}
