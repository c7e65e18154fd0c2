package archive

import (
	"fmt"
	"io"
	"os"

	"slipway/internal/platform/disk"
	"slipway/internal/platform/fault"
)

// Receive writes an archive of at most so many bytes to the disk.
func Receive(f *os.File, body io.Reader, most int64) error {
	n, err := io.Copy(f, io.LimitReader(body, most+1))
	synced := f.Sync()
	switch {
	case disk.Full(err) || disk.Full(synced):
		return diskFull()
	case err != nil:
		return &fault.Error{
			Kind:    fault.Invalid,
			Message: "The archive could not be received",
			Details: "the connection ended before the upload was complete",
			Code:    "invalid_import",
		}
	case n > most:
		return &fault.Error{
			Kind:    fault.TooLarge,
			Message: "The archive is too large",
			Details: fmt.Sprintf("this site may store %d MiB; raise run.storageMiB", most>>20),
			Code:    "import_too_large",
		}
	case n == 0:
		return Bad("it is empty")
	case synced != nil:
		return fmt.Errorf("store import: %w", synced)
	}
	return nil
}

func diskFull() error {
	return &fault.Error{Kind: fault.Unavailable, Message: "The server's disk is full", Details: "nothing was changed", Code: "disk_full"}
}

func Bad(why string) error {
	return &fault.Error{
		Kind:    fault.Invalid,
		Message: "The archive can't be imported",
		Details: why + "; it must be a .tar.gz or a .zip with wp-content and one .sql file",
		Code:    "invalid_import",
	}
}
