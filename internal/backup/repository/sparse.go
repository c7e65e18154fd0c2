package repository

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// zeros holds the bytes of a hole, as far as a piece goes: it is stored once.
var zeros [MaxPiece]byte

// zerosSum is the digest of zeros. It takes 3 ms, a tenth of the start of a command, so it is worked out where it is needed.
var zerosSum = sync.OnceValue(func() [sha256.Size]byte { return sha256.Sum256(zeros[:]) })

// MaxHoles bounds the holes of all files of one backup: their digest is worked out although
// nothing of them is read.
const MaxHoles = 16 << 30

// Holes reads a file whose holes cost nothing but the bytes that it returns for them.
type Holes struct {
	f    *os.File
	at   int64
	end  int64 // of the file, as it was when it was opened
	data int64 // from at to here is data; behind it a hole may begin
}

// NewHoles returns a reader of the first bytes of a file.
func NewHoles(f *os.File, size int64) *Holes { return &Holes{f: f, end: size} }

// Read reads what comes next.
func (h *Holes) Read(b []byte) (int, error) {
	if h.at >= h.data { // of holes that Skip has left, as they are not long
		h.data = h.end
		if next, err := unix.Seek(int(h.f.Fd()), h.at, unix.SEEK_HOLE); err == nil && next > h.at {
			h.data = min(next, h.end)
		}
	}
	n, err := h.f.ReadAt(b[:min(int64(len(b)), max(h.data-h.at, 4096))], h.at)
	h.at += int64(n)
	if n > 0 && errors.Is(err, io.EOF) {
		err = nil
	}
	return n, err
}

// Skip returns how many whole pieces of nothing follow, and passes them.
func (h *Holes) Skip() int {
	next, err := unix.Seek(int(h.f.Fd()), h.at, unix.SEEK_DATA)
	switch {
	case errors.Is(err, unix.ENXIO):
		next = h.end // no more data
	case err != nil:
		return 0
	}
	n := max(0, min(next, h.end)-h.at) / MaxPiece
	h.at += n * MaxPiece
	return int(n)
}

// Sparse writes a file in which runs of zeros are holes, so that a file of holes takes no
// more on disk than where it came from.
type Sparse struct {
	f  *os.File
	at int64
}

// NewSparse returns a writer to an empty file.
func NewSparse(f *os.File) *Sparse { return &Sparse{f: f} }

// A hole consists of blocks: file systems allocate no less.
const block = 4 << 10

// Write writes what comes next.
func (s *Sparse) Write(b []byte) (int, error) {
	for done := 0; done < len(b); {
		n := run(b[done:], s.at)
		if !bytes.Equal(b[done:done+n], zeros[:n]) {
			if _, err := s.f.WriteAt(b[done:done+n], s.at); err != nil {
				return done, err
			}
		}
		done, s.at = done+n, s.at+int64(n)
	}
	return len(b), nil
}

// run returns how many bytes to write at once: whole blocks that are all zeros, or none of
// which is.
func run(b []byte, at int64) int {
	next := func(from int) int { return min(len(b), from+block-int((at+int64(from))%block)) }
	end := next(0)
	empty := bytes.Equal(b[:end], zeros[:end])
	for end < len(b) {
		to := next(end)
		if bytes.Equal(b[end:to], zeros[:to-end]) != empty {
			break
		}
		end = to
	}
	return end
}

// Close gives the file its length: its end may be a hole.
func (s *Sparse) Close() error { return s.f.Truncate(s.at) }
