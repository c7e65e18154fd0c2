package snapshot

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/synctest"
)

// A spool buffers writes until it is full, passes all data on in order, and tells each side when the other ends.
func TestSpool(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSpool()
		b := bytes.Repeat([]byte("0123456789abcdef"), 1<<16) // 1 MiB
		wrote, whole := 0, errors.New("the dump failed")
		go func() {
			for range 20 {
				n, _ := s.Write(b)
				wrote += n
			}
			s.end(whole)
		}()
		synctest.Wait()
		if wrote != spoolSize {
			t.Errorf("%d bytes were accepted without a reader", wrote)
		}
		got, err := io.ReadAll(s)
		if !errors.Is(err, whole) || !bytes.Equal(got, bytes.Repeat(b, 20)) {
			t.Errorf("%d bytes came, %v", len(got), err)
		}

		s = newSpool()
		left := errors.New("no longer read")
		var failed error
		go func() {
			for failed == nil {
				_, failed = s.Write(b)
			}
		}()
		synctest.Wait()
		s.leave(left)
		synctest.Wait()
		if !errors.Is(failed, left) {
			t.Errorf("a write without a reader fails with %v", failed)
		}

		s = newSpool()
		n, err := s.Write(bytes.Repeat(b, 20)) // more than the capacity, into an empty spool
		if n != 20<<20 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
		s.end(nil)
		if got, err := io.ReadAll(s); len(got) != n || err != nil {
			t.Errorf("%d, %v", len(got), err)
		}
	})
}
