package php

import (
	"cmp"
	"errors"
	"fmt"
	"os"

	"slipway/internal/platform/disk"
	"slipway/internal/platform/fair"
)

// What requests and answers on their way have on disk, in MiB. It is taken in steps, as bytes come: who announces much and
// sends little takes little.
const (
	maxSpool     = 8 << 10
	ownerSpool   = 3 << 10
	visitorSpool = 3 << 9
	spoolStep    = 4
)

// share: total 8 GiB on disk of bodies and answers on their way; owner 3 GiB, of which one visitor has 1.5 GiB; edge a body is refused with 503, an answer goes as fast as its visitor reads
var spools = fair.New(fair.Config{Places: maxSpool, Owner: ownerSpool, Visitor: visitorSpool})

// errNoRoom is the error of a spool that may not grow.
var errNoRoom = errors.New("there is no room on disk for more")

// spool is a file without a name that holds bytes on their way.
type spool struct {
	dir  string // optional: empty is the system's
	who  fair.Who
	file *os.File // nil before the first byte
	size int64
	room []func() // each gives a step back
}

// Write appends to the file.
func (s *spool) Write(b []byte) (int, error) {
	for s.size+int64(len(b)) > int64(len(s.room))*spoolStep<<20 {
		if disk.Spare(cmp.Or(s.dir, os.TempDir()), spoolStep<<20) != nil {
			return 0, errNoRoom
		}
		release, ok := spools.TryN(s.who, spoolStep)
		if !ok {
			return 0, errNoRoom
		}
		s.room = append(s.room, release)
	}
	if s.file == nil {
		f, err := os.CreateTemp(s.dir, "body-")
		if err != nil {
			return 0, spoolFault(err)
		}
		_ = os.Remove(f.Name())
		s.file = f
	}
	n, err := s.file.WriteAt(b, s.size)
	s.size += int64(n)
	return n, spoolFault(err)
}

func spoolFault(err error) error {
	switch {
	case err == nil:
		return nil
	case disk.Full(err):
		return errNoRoom
	}
	return fmt.Errorf("store bytes on their way: %w", err)
}

// clear forgets what the file holds, and gives its room back.
func (s *spool) clear() error {
	for _, release := range s.room {
		release()
	}
	s.room, s.size = nil, 0
	if s.file == nil {
		return nil
	}
	return s.file.Truncate(0)
}

func (s *spool) close() {
	for _, release := range s.room {
		release()
	}
	s.room, s.size = nil, 0
	if s.file != nil {
		_ = s.file.Close()
	}
}
