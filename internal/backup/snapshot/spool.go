package snapshot

import (
	"cmp"
	"io"
	"sync"
)

// spoolSize is how many bytes a spool holds.
const spoolSize = 16 << 20

// spool is a pipe that holds some megabytes: a dump goes on while what reads it does something
// else. One goroutine writes and one reads.
type spool struct {
	mu     sync.Mutex // guards what follows
	moved  sync.Cond
	chunks [][]byte
	begun  []byte   // of the first of chunks, what is not read yet
	free   [][]byte // chunks that were read, for the next writes
	size   int
	ended  error // why nothing more comes; nil: it may
	gone   error // why nobody reads any more; nil: somebody does
}

func newSpool() *spool {
	s := &spool{}
	s.moved.L = &s.mu
	return s
}

// maxFree is how many chunks are kept for the next writes: memory that is used again need not
// be fetched from the system.
const maxFree = 4

// Write waits while there is no room, and fails once nobody reads any more.
func (s *spool) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.size > 0 && s.size+len(b) > spoolSize && s.gone == nil {
		s.moved.Wait()
	}
	if s.gone != nil {
		return 0, s.gone
	}
	if len(b) > 0 {
		var chunk []byte
		if last := len(s.free) - 1; last >= 0 {
			chunk, s.free = s.free[last], s.free[:last]
		}
		s.chunks, s.size = append(s.chunks, append(chunk[:0], b...)), s.size+len(b)
		s.moved.Broadcast()
	}
	return len(b), nil
}

// Read waits until there is something, or an end.
func (s *spool) Read(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.chunks) == 0 && s.ended == nil && s.gone == nil {
		s.moved.Wait()
	}
	if s.gone != nil || len(s.chunks) == 0 {
		return 0, cmp.Or(s.gone, s.ended)
	}
	if len(s.begun) == 0 {
		s.begun = s.chunks[0]
	}
	n := copy(b, s.begun)
	if s.begun = s.begun[n:]; len(s.begun) == 0 {
		if len(s.free) < maxFree {
			s.free = append(s.free, s.chunks[0])
		}
		s.chunks[0] = nil
		s.chunks = s.chunks[1:]
	}
	s.size -= n
	s.moved.Broadcast()
	return n, nil
}

// end says that nothing more comes: err is what the reader gets then, nil stands for io.EOF.
func (s *spool) end(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = cmp.Or(s.ended, err, io.EOF)
	s.moved.Broadcast()
}

// leave says that nobody reads any more.
func (s *spool) leave(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gone = cmp.Or(s.gone, err)
	s.moved.Broadcast()
}

// firstWrite tells when a dump has begun.
type firstWrite struct {
	w     io.Writer
	began chan<- struct{}
	told  bool
}

func (f *firstWrite) begin() {
	if !f.told {
		f.told = true
		f.began <- struct{}{}
	}
}

func (f *firstWrite) Write(b []byte) (int, error) {
	f.begin()
	return f.w.Write(b)
}
