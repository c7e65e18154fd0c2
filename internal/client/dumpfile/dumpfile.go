// Package dumpfile owns the files that dumps of databases are written to. A file appears under its name when the
// dump in it is complete, and never before: a half one could be taken for a backup.
package dumpfile

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"

	"slipway/internal/platform/disk"
)

// end is the last line of a complete dump.
const end = "-- slipway:end\n"

// ErrIncomplete is the error of a dump without its last line.
var ErrIncomplete = errors.New("the dump is incomplete: its last line is missing")

// Dump is one that is written. Its zero value is ready.
type Dump struct {
	bytes atomic.Int64
	tail  []byte // at most as long as end
	to    io.Writer
}

// Bytes returns how many bytes of SQL were written so far. It may be called at any time.
func (d *Dump) Bytes() int64 { return d.bytes.Load() }

// Write passes on a part of the dump.
func (d *Dump) Write(p []byte) (int, error) {
	n, err := d.to.Write(p)
	d.bytes.Add(int64(n))
	d.tail = append(d.tail, p[max(0, n-len(end)):n]...)
	d.tail = d.tail[max(0, len(d.tail)-len(end)):]
	return n, err
}

// To writes what fetch brings to w.
func (d *Dump) To(w io.Writer, fetch func(io.Writer) error) error {
	d.to = w
	if err := fetch(d); err != nil {
		return err
	}
	if !bytes.Equal(d.tail, []byte(end)) {
		return ErrIncomplete
	}
	return nil
}

// ToFile writes what fetch brings to a file that only its owner can read, compressed if its name ends with .gz. An existing
// file is replaced when the dump is complete; after an error it is as it was.
func (d *Dump) ToFile(name string, fetch func(io.Writer) error) (err error) {
	f, err := os.CreateTemp(filepath.Dir(name), ".slipway-dump-*") // 0600
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = f.Close()
			_ = os.Remove(f.Name())
		}
	}()
	if strings.HasSuffix(name, ".gz") {
		z := gzip.NewWriter(f)
		if err = d.To(z, fetch); err == nil {
			err = z.Close()
		}
	} else {
		err = d.To(f, fetch)
	}
	if err != nil {
		return err
	}
	if err = f.Sync(); err != nil {
		return err
	}
	if err = f.Close(); err != nil {
		return err
	}
	return disk.Rename(f.Name(), name)
}
