package dump

import (
	"bufio"
	"bytes"
	"io"

	"slipway/internal/platform/fault"
)

// maxStatement is the longest statement that the server takes in one packet.
const maxStatement = 64<<20 - 1<<10

// Statements cuts SQL as MariaDB's own client does: at semicolons that stand in no string,
// name or comment, or at what a DELIMITER line says instead.
type Statements struct {
	r     *bufio.Reader
	mark  []byte            // ends a statement
	note  func(line []byte) // gets comments of one line that stand between statements. Optional.
	buf   []byte
	Bytes int64 // bytes of the statements so far

	Literal bool // a backslash in a string is one: sql_mode has NO_BACKSLASH_ESCAPES
}

// NewStatements cuts what r holds; note gets the comments of one line. Optional.
func NewStatements(r io.Reader, note func(line []byte)) *Statements {
	s := &Statements{r: bufio.NewReaderSize(r, 256<<10), mark: []byte(";"), note: note}
	if bom := []byte("\ufeff"); s.at(bom) { // editors write it
		_, _ = s.r.Discard(len(bom))
	}
	return s
}

var errLong = fault.New(fault.TooLarge, "statement_too_long", "A statement of the SQL file is too long",
	"the database takes at most 64 MiB at once")

// runs says for each state which bytes end what is copied without a closer look.
var runs = func() (t map[byte]*[256]bool) {
	t = map[byte]*[256]bool{}
	for state, ends := range map[byte]string{0: "'\"`-#/", '\'': "'\\", '"': "\"\\", '`': "`", '*': "*"} {
		t[state] = &[256]bool{}
		for _, c := range []byte(ends) {
			t[state][c] = true
		}
	}
	return t
}()

// Next returns the next statement without its end, io.EOF after the last. It is valid until
// the next call.
func (s *Statements) Next() ([]byte, error) {
	s.buf = s.buf[:0]
	state := byte(0) // what we are in: a string or a name by its quote, a comment by *
	for {
		if len(s.buf) > maxStatement {
			return nil, errLong
		}
		if err := s.run(runs[state]); err != nil {
			return s.last(err)
		}
		if state == 0 && len(s.buf) == 0 && s.delimiter() {
			continue
		}
		if state == 0 && s.at(s.mark) {
			_, _ = s.r.Discard(len(s.mark))
			if text := bytes.TrimSpace(s.buf); len(text) > 0 {
				s.Bytes += int64(len(text))
				return text, nil
			}
			s.buf = s.buf[:0]
			continue
		}
		c, err := s.r.ReadByte()
		if err != nil {
			return s.last(err)
		}
		switch {
		case state == 0 && (c == '#' || c == '-' && s.dashes()):
			if err := s.comment(c); err != nil {
				return s.last(err)
			}
			continue
		case state == 0 && c == '/' && s.at([]byte("*")):
			s.buf = append(s.buf, '/', '*')
			_, _ = s.r.Discard(1)
			state = '*'
			continue
		case state == '*' && s.at([]byte("/")):
			s.buf = append(s.buf, '*', '/')
			_, _ = s.r.Discard(1)
			state = 0
			continue
		case state == 0 && (c == '\'' || c == '"' || c == '`'):
			state = c
		case c == state && c != '*': // a doubled quote ends and begins again
			state = 0
		case c == '\\' && !s.Literal && (state == '\'' || state == '"'):
			s.buf = append(s.buf, c)
			if c, err = s.r.ReadByte(); err != nil {
				return s.last(err)
			}
		case state == 0 && len(s.buf) == 0 && (c == '\n' || c == ' ' || c == '\r' || c == '\t'):
			continue
		}
		s.buf = append(s.buf, c)
	}
}

// run copies bytes until one that may mean something.
func (s *Statements) run(ends *[256]bool) error {
	for {
		if _, err := s.r.Peek(1); err != nil {
			return err
		}
		b, _ := s.r.Peek(s.r.Buffered())
		n := 0
		for n < len(b) && !ends[b[n]] && !(len(s.buf) == 0 && n == 0) && b[n] != s.mark[0] {
			n++
		}
		s.buf = append(s.buf, b[:n]...)
		_, _ = s.r.Discard(n)
		if n < len(b) || len(s.buf) > maxStatement {
			return nil
		}
	}
}

// last ends the statement that no mark ended.
func (s *Statements) last(err error) ([]byte, error) {
	if err != io.EOF {
		return nil, err
	}
	text := bytes.TrimSpace(s.buf)
	if len(text) == 0 {
		return nil, io.EOF
	}
	s.Bytes += int64(len(text))
	return text, nil
}

func (s *Statements) at(text []byte) bool {
	b, _ := s.r.Peek(len(text))
	return bytes.Equal(b, text)
}

// dashes reports whether a comment goes on after its first dash.
func (s *Statements) dashes() bool {
	b, _ := s.r.Peek(2)
	return len(b) > 0 && b[0] == '-' && (len(b) == 1 || b[1] <= ' ')
}

// comment skips the rest of the line that begins with c.
func (s *Statements) comment(c byte) error {
	line := []byte{c}
	for {
		part, err := s.r.ReadSlice('\n')
		if len(line) < 64<<10 { // a longer one is cut
			line = append(line, part...)
		}
		if err == bufio.ErrBufferFull {
			continue
		}
		if len(s.buf) == 0 && s.note != nil {
			s.note(bytes.TrimSpace(line))
		}
		if len(s.buf) > 0 {
			s.buf = append(s.buf, '\n')
		}
		return err
	}
}

// delimiter reads a line that changes the mark.
func (s *Statements) delimiter() bool {
	const word = "DELIMITER"
	b, _ := s.r.Peek(len(word) + 1)
	if len(b) <= len(word) || !bytes.EqualFold(b[:len(word)], []byte(word)) || b[len(word)] != ' ' && b[len(word)] != '\t' {
		return false
	}
	line, err := s.r.ReadSlice('\n')
	mark := bytes.TrimSpace(line[len(word):])
	if err == bufio.ErrBufferFull || len(mark) == 0 || len(mark) > 16 {
		mark = []byte(";")
	}
	s.mark = bytes.Clone(mark)
	return true
}
