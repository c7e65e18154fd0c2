package buildlog

import (
	"io"
	"strings"
	"time"
	"unicode/utf8"
)

// stream is a build's output and the screen of its terminal, which has a single line: earlier lines were passed on.
// Log.mu guards it.
//
// Text is redacted when it is passed on. Scanned bytes never change, and bytes that may be the beginning of a secret
// are held back.
type stream struct {
	log   *Log
	term  terminal
	now   time.Time // time of the current write or timer
	timer *time.Timer

	line    []byte
	marks   []mark // colors in line
	markLen int    // bytes of their sequences
	cr      bool   // the cursor is at the start of the line: new text replaces it
	early   int    // number of marks before cr; later ones belong to the new text
	limit   int    // length at which the line is cut

	state   int32 // of the automaton, after the scanned bytes
	scanned int   // number of scanned bytes of line
	spans   []span

	begun     bool      // part of this line was passed on, so an empty rest isn't a line
	rewritten bool      // the line replaced another
	progress  time.Time // when a state of a rewritten line was last passed on
}

// mark is a color change before line[at].
type mark struct {
	at  int
	sgr string
}

// redacted replaces secrets.
const redacted = "[secret]"

// minTail is how many bytes of a secret's beginning at the end of a line are hidden, because the rest may follow on the
// next line.
const minTail = 8

// Write implements io.Writer.
func (s *stream) Write(p []byte) (int, error) {
	s.log.mu.Lock()
	defer s.log.mu.Unlock()
	if s.log.closed {
		return 0, io.ErrClosedPipe
	}
	s.now = time.Now()
	s.term.write(p, s)
	if len(s.line) > 0 {
		s.wake(s.log.c.Silence)
	} else if s.timer != nil {
		s.timer.Stop()
	}
	return len(p), nil
}

// wake schedules silence; every write postpones it.
func (s *stream) wake(after time.Duration) {
	if s.timer == nil {
		s.timer = time.AfterFunc(after, s.silence)
	} else {
		s.timer.Reset(after)
	}
}

// silence passes the unfinished line on. A line that rewrites itself waits until its interval has passed.
func (s *stream) silence() {
	s.log.mu.Lock()
	defer s.log.mu.Unlock()
	if s.log.closed {
		return
	}
	s.now = time.Now()
	if s.rewritten {
		if wait := s.log.c.Progress - s.now.Sub(s.progress); wait > 0 {
			s.wake(wait)
			return
		}
		s.progress = s.now
	}
	s.scan()
	s.emit(s.boundary(len(s.line) - s.held()))
}

// finish ends the line and any incomplete sequence.
func (s *stream) finish(now time.Time) {
	s.now = now
	if s.timer != nil {
		s.timer.Stop()
	}
	if len(s.term.rune) > 0 {
		s.term.broken(s)
	}
	s.term = terminal{}
	if len(s.line) > 0 {
		s.newline()
	}
	s.clear()
	s.begun, s.state = false, 0
}

func (s *stream) text(p []byte) {
	if s.cr {
		s.rewrite()
	}
	for len(p) > 0 {
		n := min(len(p), s.limit-len(s.line))
		for n < len(p) && n > 0 && !utf8.RuneStart(p[n]) {
			n--
		}
		if n <= 0 { // not enough space for a whole character
			n = s.cut(p)
		}
		s.line = append(s.line, p[:n]...)
		p = p[n:]
	}
}

// cut passes on a part of a line that is too long, and returns how many bytes of p fit then: at least one character.
func (s *stream) cut(p []byte) int {
	s.scan()
	for len(s.line)+utf8.UTFMax > s.log.c.MaxLine {
		n := s.boundary(min(s.log.c.MaxLine, len(s.line)-s.held()))
		if n <= 0 {
			break
		}
		s.emit(n)
	}
	s.limit = max(s.log.c.MaxLine, len(s.line)+4<<10)
	_, size := utf8.DecodeRune(p)
	return size
}

func (s *stream) color(sgr string) {
	// A color sequence is kept unchanged, so its numbers must not contain a secret.
	if s.markLen+len(sgr) <= s.log.c.MaxLine && !s.log.hide.contains(sgr) {
		s.marks = append(s.marks, mark{len(s.line), sgr})
		s.markLen += len(sgr)
	}
}

func (s *stream) carriage() {
	if !s.cr {
		s.cr, s.early = true, len(s.marks)
	}
}

func (s *stream) erase() {
	if s.cr {
		s.rewrite()
		s.cr = true // early stays 0: the kept colors belong to the new text
	}
}

// backspace removes a character unless it was passed on or scanned.
func (s *stream) backspace() {
	if n := len(s.line) - lastRune(s.line); !s.cr && n >= s.scanned {
		s.line = s.line[:n]
	}
}

// rewrite clears the line for its next state. First it passes on the current state if the interval has passed.
func (s *stream) rewrite() {
	var kept []mark
	if s.early < len(s.marks) {
		kept = append(kept, s.marks[s.early:]...)
		s.marks = s.marks[:s.early]
	}
	switch {
	case s.progress.IsZero():
		s.progress = s.now
	case len(s.line) > 0 && s.now.Sub(s.progress) >= s.log.c.Progress:
		s.progress = s.now
		s.scan()
		s.emit(len(s.line))
	}
	s.clear()
	for _, m := range kept {
		s.color(m.sgr)
	}
	s.state = 0
	s.rewritten = true
}

// clear empties the line.
func (s *stream) clear() {
	s.line, s.marks, s.markLen, s.spans = s.line[:0], s.marks[:0], 0, s.spans[:0]
	s.scanned, s.cr, s.early, s.limit = 0, false, 0, s.log.c.MaxLine
	if cap(s.line) > 4*s.log.c.MaxLine {
		s.line = nil
	}
}

func (s *stream) newline() {
	s.scan()
	// An encoded secret may continue after the line break. Its beginning is hidden, too, and the search continues in
	// the next line.
	s.state = s.log.hide.wrapped(s.state)
	if tail := s.log.hide.pending(s.state); tail >= minTail && len(s.line) > 0 {
		s.spans = join(s.spans, span{max(0, len(s.line)-tail), len(s.line)})
	}
	s.emit(len(s.line))
	if !s.begun {
		s.piece(0) // an empty line
	}
	s.clear()
	s.begun, s.rewritten, s.progress = false, false, time.Time{}
}

func (s *stream) scan() {
	s.state, s.spans = s.log.hide.scan(s.state, s.line, s.scanned, s.spans)
	s.scanned = len(s.line)
}

// held returns how many of line's last bytes may begin a secret.
func (s *stream) held() int { return min(len(s.line), s.log.hide.pending(s.state)) }

// boundary reduces n to a place where a line may be cut: between characters, and not within a secret unless the line
// begins with it.
func (s *stream) boundary(n int) int {
	for n > 0 && n < len(s.line) && !utf8.RuneStart(s.line[n]) {
		n--
	}
	for _, x := range s.spans {
		if x.start > 0 && x.start < n && n < x.end {
			return x.start
		}
	}
	return n
}

// emit passes line[:n] on, in pieces if necessary, and keeps the rest.
func (s *stream) emit(n int) {
	for n > s.log.c.MaxLine {
		c := s.boundary(s.log.c.MaxLine)
		s.piece(c)
		n -= c
	}
	if n > 0 {
		s.piece(n)
	}
}

func (s *stream) piece(n int) {
	message, raw := s.render(n)
	if raw != "" && s.log.hide.contains(raw) {
		raw = "" // the color codes and the text together contain a secret
	}
	s.log.emit(s.now, Line{Level: level(message), Message: message, Raw: raw})
	s.begun = true
	s.drop(n)
}

// drop removes line[:n]. If it ends within a secret, the rest is still treated as one.
func (s *stream) drop(n int) {
	s.line = append(s.line[:0], s.line[n:]...)
	s.scanned -= n
	spans := s.spans[:0]
	for _, x := range s.spans {
		if x.end > n {
			spans = append(spans, span{max(0, x.start-n), x.end - n})
		}
	}
	s.spans = spans
	marks := s.marks[:0]
	s.markLen = 0
	for _, m := range s.marks {
		if m.at >= n && len(s.line) > 0 {
			marks = append(marks, mark{m.at - n, m.sgr})
			s.markLen += len(m.sgr)
		}
	}
	s.marks = marks
}

// render returns line[:n] with secrets replaced, plain and with colors.
func (s *stream) render(n int) (message, raw string) {
	colored := len(s.marks) > 0 && (s.marks[0].at < n || n == len(s.line))
	if len(s.spans) == 0 && !colored {
		return string(s.line[:n]), ""
	}
	var plain, colors strings.Builder
	marks, last := s.marks, ""
	// put writes the line up to end. Colors within a secret are written after it.
	put := func(start, end int, secret bool) {
		if secret {
			plain.WriteString(redacted)
			colors.WriteString(redacted)
		}
		for len(marks) > 0 && (marks[0].at < end || end == len(s.line)) {
			at := min(max(marks[0].at, start), end)
			if !secret {
				colors.Write(s.line[start:at])
				plain.Write(s.line[start:at])
				start = at
			}
			last = marks[0].sgr
			colors.WriteString(last)
			marks = marks[1:]
		}
		if !secret {
			colors.Write(s.line[start:end])
			plain.Write(s.line[start:end])
		}
	}
	at := 0
	for _, x := range s.spans {
		if x.start >= n {
			break
		}
		put(at, x.start, false)
		at = min(x.end, n)
		put(x.start, at, true)
	}
	put(at, n, false)
	if !colored || plain.Len() == 0 {
		return plain.String(), ""
	}
	if last != "" && last != "\x1b[0m" && last != "\x1b[m" {
		colors.WriteString("\x1b[0m") // colors end with the line
	}
	return plain.String(), colors.String()
}
