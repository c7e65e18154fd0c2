package php

import (
	"io"
	"sync"
)

// answerMemory is how much of an answer that its visitor has not read yet is kept in memory; what is beyond is on disk.
const answerMemory = 64 << 10

// kept is an answer's body that is taken from PHP as fast as PHP writes it, so that a visitor who reads slowly, or not at all,
// holds no worker. Where there is no room for more, PHP waits for its visitor.
type kept struct {
	from io.ReadCloser
	done func() // called once, when PHP has given all of it, or is not asked for more

	mu     sync.Mutex // guards what follows
	moved  *sync.Cond // something of it has changed
	memory []byte     // what is to be read first
	disk   spool      // what follows; only while it is empty, memory grows
	read   int64      // of the disk
	err    error      // how it ends; nil while more may come
	closed bool
}

func keep(from io.ReadCloser, to spool, done func()) *kept {
	k := &kept{from: from, disk: to, done: sync.OnceFunc(done)}
	k.moved = sync.NewCond(&k.mu)
	// uncaught: copies bytes
	go k.take()
	return k
}

// take takes the answer from PHP to its end.
func (k *kept) take() {
	b := bufferPool.Get().(*[32 << 10]byte)
	defer bufferPool.Put(b)
	for {
		n, err := k.from.Read(b[:])
		k.mu.Lock()
		if n > 0 && !k.closed {
			if failed := k.add(b[:n]); failed != nil {
				err = failed
			}
		}
		ends := err != nil || k.closed
		if ends {
			k.err = err
			if k.err == nil {
				k.err = io.ErrClosedPipe
			}
		}
		k.moved.Broadcast()
		k.mu.Unlock()
		if ends {
			_ = k.from.Close()
			k.done()
			return
		}
	}
}

// share: total one for each answer that PHP writes; owner see the workers of its sites; edge more are made
var bufferPool = sync.Pool{New: func() any { return new([32 << 10]byte) }}

// add keeps more of the answer, and waits while there is no room. mu is held.
func (k *kept) add(b []byte) error {
	for !k.closed {
		if k.disk.size == 0 && len(k.memory)+len(b) <= answerMemory {
			k.memory = append(k.memory, b...)
			return nil
		}
		switch n, err := k.disk.Write(b); {
		case err == nil:
			return nil
		case err != errNoRoom:
			return err
		default:
			b = b[n:]
		}
		if k.disk.size > 0 || len(k.memory) > 0 {
			k.moved.Wait()
		}
	}
	return io.ErrClosedPipe
}

// Read waits for the next bytes.
func (k *kept) Read(b []byte) (int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for len(k.memory) == 0 && k.disk.size == 0 && k.err == nil && !k.closed {
		k.moved.Wait()
	}
	switch {
	case k.closed:
		return 0, io.ErrClosedPipe
	case len(k.memory) > 0:
		n := copy(b, k.memory)
		if k.memory = k.memory[n:]; len(k.memory) == 0 {
			k.memory = nil
		}
		k.moved.Broadcast()
		return n, nil
	case k.disk.size == 0:
		return 0, k.err
	}
	n, err := k.disk.file.ReadAt(b[:min(int64(len(b)), k.disk.size-k.read)], k.read)
	if k.read += int64(n); n == 0 {
		return 0, err
	}
	if k.read == k.disk.size {
		k.read = 0
		if err := k.disk.clear(); err != nil {
			return n, err
		}
	}
	k.moved.Broadcast()
	return n, nil
}

// Close ends the request, whether all of the answer has come or not.
func (k *kept) Close() error {
	k.mu.Lock()
	if k.closed {
		k.mu.Unlock()
		return nil
	}
	k.closed, k.memory = true, nil
	k.disk.close()
	k.moved.Broadcast()
	k.mu.Unlock()
	err := k.from.Close() // ends a read that waits
	k.done()
	return err
}
