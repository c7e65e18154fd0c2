package blob

import (
	"context"
	"errors"
	"fmt"
	"io"
)

// OpenBriefly is [Store.Open] for slow readers: it opens the blob anew for each read, so that no file descriptor is
// held in between.
func (s *Store) OpenBriefly(ctx context.Context, d Digest) (io.ReadSeekCloser, int64, error) {
	f, size, err := s.backend.Get(ctx, d.String())
	if err != nil {
		return nil, 0, fmt.Errorf("open blob %s: %w", d, err)
	}
	f.Close()
	v := verify(&brief{ctx: ctx, backend: s.backend, name: d.String(), size: size}, d, size)
	v.corrupt = func() { s.backend.Distrust(d.String()) }
	return v, size, nil
}

type brief struct {
	ctx      context.Context
	backend  Backend
	name     string
	at, size int64
}

func (b *brief) Read(p []byte) (int, error) {
	if b.at >= b.size {
		return 0, io.EOF
	}
	f, size, err := b.backend.Get(b.ctx, b.name)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	if size != b.size {
		return 0, ErrCorrupt
	}
	if _, err := f.Seek(b.at, io.SeekStart); err != nil {
		return 0, err
	}
	n, err := f.Read(p)
	b.at += int64(n)
	if n > 0 && err == io.EOF {
		err = nil // the next read reports it
	}
	return n, err
}

func (b *brief) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += b.at
	case io.SeekEnd:
		offset += b.size
	}
	if offset < 0 {
		return 0, errors.New("seek before the beginning of a blob")
	}
	b.at = offset
	return offset, nil
}

func (b *brief) Close() error { return nil }
