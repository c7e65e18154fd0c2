package release

import (
	"fmt"
	"io"

	"slipway/internal/platform/fault"
	"slipway/internal/platform/text"
)

// admit checks a new file against the release's limits, and counts it.
func (w *Writer) admit(path string, size int64) error {
	if _, ok := w.entries[path]; ok {
		return badPath(path, "it is there twice")
	}
	if len(w.entries) >= w.r.MaxFiles {
		return fault.New(fault.Invalid, "release_files", "Too many files to publish",
			fmt.Sprintf("a release has at most %d files; %s would be one more", w.r.MaxFiles, show(path)))
	}
	if w.bytes+size > w.r.MaxBytes {
		return w.tooMuch(path)
	}
	w.bytes += size
	return nil
}

func (w *Writer) tooMuch(path string) error {
	return fault.New(fault.Invalid, "release_bytes", "The files are too large to publish",
		fmt.Sprintf("a release has at most %s in total; %s would exceed it", text.Size(w.r.MaxBytes), show(path))).Got(show(path))
}

// limited fails at the first byte over a limit.
type limited struct {
	r    io.Reader
	w    *Writer
	path string
	n    int64
}

func (l *limited) Read(p []byte) (int, error) {
	n, err := l.r.Read(p)
	l.n += int64(n)
	if l.n > l.w.r.MaxFile {
		return 0, fault.New(fault.Invalid, "release_file_bytes", "A file is too large to publish",
			fmt.Sprintf("%s is larger than %s", show(l.path), text.Size(l.w.r.MaxFile))).Got(show(l.path))
	}
	if l.w.bytes+l.n > l.w.r.MaxBytes {
		return 0, l.w.tooMuch(l.path)
	}
	return n, err
}
