package blob

import (
	"crypto/sha256"
	"hash"
	"io"
)

// verified reads size bytes of r and returns the last of them only if all hash to want. It stops verifying if the
// caller skips a part.
type verified struct {
	r    io.ReadSeeker
	want Digest
	size int64
	hash hash.Hash
	seen int64 // bytes hashed from the beginning; -1 after a skip
	at   int64

	corrupt func() // called if the bytes have changed. Optional.
}

func verify(r io.ReadSeeker, want Digest, size int64) *verified {
	if at, err := r.Seek(0, io.SeekStart); err != nil || at != 0 {
		return &verified{r: r, want: want, size: size, seen: -1}
	}
	return &verified{r: r, want: want, size: size, hash: sha256.New()}
}

func (v *verified) Read(p []byte) (int, error) {
	if v.at >= v.size {
		if v.size == 0 && v.want != Sum(nil) {
			return 0, v.bad()
		}
		return 0, io.EOF
	}
	if rest := v.size - v.at; int64(len(p)) > rest {
		p = p[:rest]
	}
	n, err := v.r.Read(p)
	if err == io.EOF && v.at+int64(n) < v.size {
		return 0, v.bad() // shorter than its size
	}
	if v.seen >= 0 {
		switch {
		case v.at == v.seen:
			v.hash.Write(p[:n])
			v.seen += int64(n)
		case v.at > v.seen:
			v.seen = -1
		}
		if v.seen == v.size && v.at+int64(n) == v.size && n > 0 {
			if Digest(v.hash.Sum(nil)) != v.want {
				return 0, v.bad()
			}
		}
	}
	v.at += int64(n)
	return n, err
}

func (v *verified) bad() error {
	if v.corrupt != nil {
		v.corrupt()
	}
	return ErrCorrupt
}

// Seek implements [io.Seeker], relative to the expected length.
func (v *verified) Seek(offset int64, whence int) (int64, error) {
	if whence == io.SeekEnd {
		offset, whence = offset+v.size, io.SeekStart
	}
	at, err := v.r.Seek(offset, whence)
	if err != nil {
		return at, err
	}
	v.at = at
	if at == 0 && v.hash != nil { // start verifying again
		v.hash.Reset()
		v.seen = 0
	}
	return at, nil
}

func (v *verified) Close() error {
	if c, ok := v.r.(io.Closer); ok {
		return c.Close()
	}
	return nil
}
