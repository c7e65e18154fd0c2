package upstream

import (
	"bytes"
	"errors"
	"io"
)

// Field is one field of an answer, as it was sent but for the spaces around its value.
type Field struct{ Name, Value []byte }

// Head is the beginning of an answer. Its fields stand until Next or Put.
type Head struct {
	Status int
	Fields []Field
	Length int64 // of the body; -1 where the program doesn't say
	Body   bool  // whether a body follows
}

// maxFields is how many fields an answer may have.
const maxFields = 500

var errMalformed = errors.New("read the program's answer: malformed header")

// ReadHead reads the beginning of an answer. bodiless says that the request was one whose
// answer has no body, such as HEAD. One with a status below 200 is followed by another.
func (c *Conn) ReadHead(h *Head, bodiless bool) error {
	for {
		if c.buf != nil && c.w > c.r {
			end := c.headEnd()
			if end > 0 {
				b := (*c.buf)[c.r:end]
				c.r, c.seen = end, end
				return c.parse(h, b, bodiless)
			}
			if c.w-c.r >= bufferSize {
				return errTooLarge
			}
		}
		if err := c.fill(); err != nil {
			if err == io.EOF && c.w > c.r {
				err = io.ErrUnexpectedEOF
			}
			return err
		}
	}
}

// headEnd returns where the empty line ends that ends a head, or 0 where it isn't here yet.
func (c *Conn) headEnd() int {
	b := (*c.buf)[:c.w]
	for i := max(c.seen, c.r); ; {
		j := bytes.IndexByte(b[i:], '\n')
		if j < 0 {
			return 0
		}
		c.seen = i + j // looked at again with what follows it
		i += j + 1
		switch rest := b[i:]; {
		case len(rest) > 0 && rest[0] == '\n':
			return i + 1
		case len(rest) > 1 && rest[0] == '\r' && rest[1] == '\n':
			return i + 2
		}
	}
}

// parse reads a whole head (RFC 9112, sections 4 to 6).
func (c *Conn) parse(h *Head, b []byte, bodiless bool) error {
	line, rest := cutLine(b)
	// HTTP/1.1 200 OK
	if len(line) < 12 || !bytes.HasPrefix(line, []byte("HTTP/1.")) || line[7] != '0' && line[7] != '1' || line[8] != ' ' ||
		len(line) > 12 && line[12] != ' ' {
		return errMalformed
	}
	h.Status = 0
	for _, d := range line[9:12] {
		if d < '0' || d > '9' {
			return errMalformed
		}
		h.Status = 10*h.Status + int(d-'0')
	}
	if h.Status < 100 || !printable(line) {
		return errMalformed
	}
	old := line[7] == '0'
	h.Fields, h.Length, h.Body = h.Fields[:0], -1, false
	chunked, keep, end := false, false, false
	for {
		line, rest = cutLine(rest)
		if len(line) == 0 {
			break
		}
		f, ok := fieldOf(line)
		if !ok || len(h.Fields) == maxFields {
			return errMalformed
		}
		switch {
		case Is(f.Name, "content-length"):
			n, ok := number(f.Value)
			if !ok || h.Length >= 0 && h.Length != n {
				return errMalformed
			}
			h.Length = n
		case Is(f.Name, "transfer-encoding"):
			if chunked || old || !Is(f.Value, "chunked") {
				return errMalformed
			}
			chunked = true
		case Is(f.Name, "connection"):
			for part := range bytes.SplitSeq(f.Value, []byte(",")) {
				part = bytes.Trim(part, " \t")
				end = end || Is(part, "close")
				keep = keep || Is(part, "keep-alive")
			}
		}
		h.Fields = append(h.Fields, f)
	}
	c.last = c.last || end || old && !keep
	switch {
	case h.Status < 200:
		if h.Status == 101 || chunked {
			return errMalformed // nobody asked for another protocol
		}
		c.mode = modeNone
		return nil
	case bodiless || h.Status == 204 || h.Status == 304:
		c.mode = modeDone
	case chunked:
		// A length beside it is wrong, whatever it says: nothing may follow on this connection.
		c.last = c.last || h.Length >= 0
		h.Length, h.Body = -1, true
		c.mode, c.left, c.total = modeSize, 0, 0
	case h.Length >= 0:
		h.Body = h.Length > 0
		c.mode, c.left = modeLength, h.Length
		if c.left == 0 {
			c.mode = modeDone
		}
	default:
		h.Body = true
		c.mode, c.last = modeEnd, true
	}
	return nil
}

// fieldOf reads a field. Refused are lines that go on the one before, and spaces before the
// colon (RFC 9112, section 5).
func fieldOf(line []byte) (f Field, ok bool) {
	colon := bytes.IndexByte(line, ':')
	if colon <= 0 {
		return f, false
	}
	f = Field{line[:colon], bytes.Trim(line[colon+1:], " \t")}
	for _, ch := range f.Name {
		if !token[ch] {
			return f, false
		}
	}
	return f, printable(f.Value)
}

// cutLine cuts the first line off, without its end.
func cutLine(b []byte) (line, rest []byte) {
	i := bytes.IndexByte(b, '\n')
	if i < 0 {
		return b, nil
	}
	line, rest = b[:i], b[i+1:]
	if i > 0 && line[i-1] == '\r' {
		line = line[:i-1]
	}
	return line, rest
}

// printable reports whether nothing in a line could end it for another reader.
func printable(b []byte) bool {
	for _, ch := range b {
		if ch < ' ' && ch != '\t' || ch == 0x7f {
			return false
		}
	}
	return true
}

// number reads a length: digits alone (RFC 9110, section 8.6).
func number(b []byte) (n int64, ok bool) {
	if len(b) == 0 || len(b) > 18 {
		return 0, false
	}
	for _, d := range b {
		if d < '0' || d > '9' {
			return 0, false
		}
		n = 10*n + int64(d-'0')
	}
	return n, true
}

// token holds the characters of field names (RFC 9110, section 5.6.2).
var token = func() (t [256]bool) {
	for _, c := range []byte("!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz") {
		t[c] = true
	}
	return t
}()

// Is reports whether name is lower, but for its case.
func Is(name []byte, lower string) bool {
	if len(name) != len(lower) {
		return false
	}
	for i := range len(lower) {
		ch := name[i]
		if ch >= 'A' && ch <= 'Z' {
			ch |= 0x20
		}
		if ch != lower[i] {
			return false
		}
	}
	return true
}
