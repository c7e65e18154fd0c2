package buildlog

import (
	"io"
	"strings"
	"time"
	"unicode/utf8"
)

// stream is the output of the build and the screen of its terminal: a single line,
// since what has scrolled away is already passed on. Log.mu guards it.
//
// Text is redacted when it is passed on. What was scanned never changes afterwards, and
// the bytes that may turn out to begin a secret wait until that is known.
type stream struct {
	log   *Log
	term  terminal
	now   time.Time // of the write or timer that is being handled
	timer *time.Timer

	line    []byte
	marks   []mark // colors in line
	markLen int    // bytes of their sequences
	cr      bool   // the cursor is back at the start: text that comes replaces the line
	early   int    // marks that were there before cr: the later ones belong to what comes
	limit   int    // length of line at which it is to be cut

	state   int32 // of the automaton, after scanned
	scanned int   // bytes of line
	spans   []span

	begun     bool      // part of this line was passed on: an empty rest is no line
	rewritten bool      // the line replaced another
	progress  time.Time // when a state of a rewritten line was last passed on
}

// mark is a color that begins before line[at].
type mark struct {
	at  int
	sgr string
}

// redacted stands where a secret stood.
const redacted = "[secret]"

// minTail is how much of the beginning of a secret at a line's end is hidden when the
// rest may follow on the next line.
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

// wake has silence called later; every write puts it off.
func (s *stream) wake(after time.Duration) {
	if s.timer == nil {
		s.timer = time.AfterFunc(after, s.silence)
	} else {
		s.timer.Reset(after)
	}
}

// silence passes the unfinished line on. A line that rewrites itself waits its turn.
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

// finish ends the line and whatever sequence was being read.
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
		if n <= 0 { // no space, or not for a whole character
			n = s.cut(p)
		}
		s.line = append(s.line, p[:n]...)
		p = p[n:]
	}
}

// cut passes on what is certain of a line that has grown too long, and returns how many
// bytes of p then fit: one character at least.
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
	// A color is kept as it came, so its numbers must not tell a secret either.
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
		s.cr = true // early stays 0: the colors kept are those of what comes
	}
}

// backspace takes a character back, unless it was passed on or scanned already.
func (s *stream) backspace() {
	if n := len(s.line) - lastRune(s.line); !s.cr && n >= s.scanned {
		s.line = s.line[:n]
	}
}

// rewrite clears the line for its next state, after passing on the last one when none
// was for a while.
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

// clear forgets the line.
func (s *stream) clear() {
	s.line, s.marks, s.markLen, s.spans = s.line[:0], s.marks[:0], 0, s.spans[:0]
	s.scanned, s.cr, s.early, s.limit = 0, false, 0, s.log.c.MaxLine
	if cap(s.line) > 4*s.log.c.MaxLine {
		s.line = nil
	}
}

func (s *stream) newline() {
	s.scan()
	// An encoded secret may go on after the line break: what of it is here goes too,
	// and the search goes on with the next line.
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

// held is how many of line's last bytes may belong to a secret that is still coming.
func (s *stream) held() int { return min(len(s.line), s.log.hide.pending(s.state)) }

// boundary moves n back to where a line may be cut: between characters, and not within
// a secret unless the line begins with it.
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

// emit passes line[:n] on, in as many pieces as it takes, and keeps the rest.
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
		raw = "" // a color's code and the text together spell a secret
	}
	s.log.emit(s.now, Line{Level: level(message), Message: message, Raw: raw})
	s.begun = true
	s.drop(n)
}

// drop removes line[:n]. A secret that was cut is one of the rest too.
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

// render returns line[:n] without its secrets, plain and with colors.
func (s *stream) render(n int) (message, raw string) {
	colored := len(s.marks) > 0 && (s.marks[0].at < n || n == len(s.line))
	if len(s.spans) == 0 && !colored {
		return string(s.line[:n]), ""
	}
	var plain, colors strings.Builder
	marks, last := s.marks, ""
	// put writes the line up to end; colors within a secret follow it.
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
		colors.WriteString("\x1b[0m") // a line's color does not run into what follows
	}
	return plain.String(), colors.String()
}
