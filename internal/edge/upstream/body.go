package upstream

import (
	"bytes"
	"errors"
	"io"
)

// mode says how the rest of an answer is read.
type mode int

const (
	modeNone    mode = iota // no answer yet
	modeDone                // all of it has been read
	modeLength              // left bytes follow
	modeEnd                 // until the program closes
	modeSize                // the size of a chunk follows
	modeChunk               // left bytes of a chunk follow
	modeAfter               // the line end after a chunk follows
	modeTrailer             // trailers follow
)

// Bounds of what surrounds chunks. Trailers are dropped (RFC 9112, section 7.1.2).
const (
	maxSizeLine = 1 << 10
	maxTrailers = 16 << 10
)

var errChunk = errors.New("read the program's answer: malformed chunk")

// Next returns the next part of the answer's body, which stands until it is called again.
// io.EOF follows the last part. before is called each time before the program is waited
// for: what the visitor has not been sent yet is to go out then.
func (c *Conn) Next(before func() error) ([]byte, error) {
	for {
		switch c.mode {
		case modeDone:
			return nil, io.EOF
		case modeLength, modeChunk, modeEnd:
			if c.r < c.w {
				return c.part(), nil
			}
		case modeSize, modeAfter, modeTrailer:
			done, err := c.line()
			if err != nil {
				return nil, err
			}
			if done {
				continue
			}
		default:
			return nil, errMalformed
		}
		if err := before(); err != nil {
			return nil, err
		}
		if err := c.fill(); err != nil {
			if err != io.EOF {
				return nil, err
			}
			if c.mode != modeEnd {
				return nil, io.ErrUnexpectedEOF
			}
			c.mode = modeDone
		}
	}
}

// Done reports whether the answer has been read whole.
func (c *Conn) Done() bool { return c.mode == modeDone }

// part takes what has been read of the body.
func (c *Conn) part() []byte {
	n := c.w - c.r
	if c.mode != modeEnd {
		n = int(min(int64(n), c.left))
		c.left -= int64(n)
	}
	p := (*c.buf)[c.r : c.r+n]
	c.r += n
	if c.left == 0 {
		switch c.mode {
		case modeLength:
			c.mode = modeDone
		case modeChunk:
			c.mode = modeAfter
		}
	}
	return p
}

// line takes a line of the chunked coding, and reports whether one was there.
func (c *Conn) line() (bool, error) {
	if c.buf == nil || c.r == c.w {
		return false, nil
	}
	b := (*c.buf)[c.r:c.w]
	i := bytes.IndexByte(b, '\n')
	if i < 0 {
		if len(b) > maxSizeLine {
			return false, errChunk
		}
		return false, nil
	}
	if i == 0 || b[i-1] != '\r' || i > maxTrailers {
		return false, errChunk
	}
	line := b[:i-1]
	c.r += i + 1
	switch c.mode {
	case modeAfter:
		if len(line) > 0 {
			return false, errChunk
		}
		c.mode = modeSize
	case modeSize:
		n, ok := chunkSize(line)
		if !ok {
			return false, errChunk
		}
		c.mode, c.left = modeChunk, n
		if n == 0 {
			c.mode = modeTrailer
		}
	case modeTrailer:
		if len(line) == 0 {
			c.mode = modeDone
			break
		}
		c.total += len(line) + 2
		if c.total > maxTrailers {
			return false, errChunk
		}
		if _, ok := fieldOf(line); !ok {
			return false, errChunk
		}
	}
	return true, nil
}

// chunkSize reads the line before a chunk: its size, and extensions that mean nothing here.
func chunkSize(line []byte) (n int64, ok bool) {
	if len(line) > maxSizeLine || !printable(line) {
		return 0, false
	}
	line, _, _ = bytes.Cut(line, []byte(";"))
	line = bytes.TrimRight(line, " \t")
	if len(line) == 0 || len(line) > 15 {
		return 0, false
	}
	for _, ch := range line {
		switch {
		case ch >= '0' && ch <= '9':
			ch -= '0'
		case ch >= 'a' && ch <= 'f':
			ch -= 'a' - 10
		case ch >= 'A' && ch <= 'F':
			ch -= 'A' - 10
		default:
			return 0, false
		}
		n = n<<4 | int64(ch)
	}
	return n, true
}
