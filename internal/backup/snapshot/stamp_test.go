package snapshot

import (
	"io/fs"
	"syscall"
	"testing"
	"time"
)

// statOf is a FileInfo with only a Stat_t.
type statOf struct {
	fs.FileInfo
	st syscall.Stat_t
}

func (s statOf) Sys() any    { return &s.st }
func (s statOf) Size() int64 { return s.st.Size }

// A file gets a stamp only once a later change can't have the same time as its last one.
func TestStamp(t *testing.T) {
	t.Parallel()
	of := func(changed time.Time, ino uint64, size int64) string {
		return StampOf(statOf{st: syscall.Stat_t{Ino: ino, Size: size, Ctim: syscall.NsecToTimespec(changed.UnixNano())}})
	}
	at := time.Now().Add(-time.Second)
	one := of(at, 1, 5)
	if one == "" || of(at, 1, 5) != one {
		t.Errorf("a file that rests has the stamps %q and %q", one, of(at, 1, 5))
	}
	for name, other := range map[string]string{
		"a later change": of(at.Add(1), 1, 5),
		"another file":   of(at, 2, 5),
		"another size":   of(at, 1, 6),
	} {
		if other == one || other == "" {
			t.Errorf("%s: %q", name, other)
		}
	}
	if s := of(time.Now().Add(time.Hour), 1, 5); s != "" { // its change time is in the future
		t.Errorf("a file that is being changed has the stamp %q", s)
	}
}
