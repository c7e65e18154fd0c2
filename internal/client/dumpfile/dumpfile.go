// Package dumpfile owns writing database dumps to files. A file gets its name once the dump is complete, so that an
// incomplete one can't be taken for a backup.
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

// ErrIncomplete is returned for a dump without its last line.
var ErrIncomplete = errors.New("the dump is incomplete: its last line is missing")

// Dump is a dump being written. Its zero value is ready to use.
type Dump struct {
	bytes atomic.Int64
	tail  []byte // at most as long as end
	to    io.Writer
}

// Bytes returns the bytes of SQL written so far. It may be called at any time.
func (d *Dump) Bytes() int64 { return d.bytes.Load() }

// Write writes a part of the dump and counts its bytes.
func (d *Dump) Write(p []byte) (int, error) {
	n, err := d.to.Write(p)
	d.bytes.Add(int64(n))
	d.tail = append(d.tail, p[max(0, n-len(end)):n]...)
	d.tail = d.tail[max(0, len(d.tail)-len(end)):]
	return n, err
}

// To writes the dump that fetch produces to w.
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

// ToFile writes the dump that fetch produces to a file that only its owner can read, compressed if the name ends in
// .gz. It replaces an existing file once the dump is complete and leaves it unchanged after an error.
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
