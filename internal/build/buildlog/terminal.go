package buildlog

import (
	"strings"
	"unicode/utf8"
)

// terminal parses bytes as a terminal does (ECMA-48, xterm), as far as a log needs it: it passes text, colors, line
// ends and erasures to its screen and drops everything else. A line feed ends every incomplete sequence, so that none
// can swallow the following text. docs/adr/0028-small-readers.md says why no library does this.
type terminal struct {
	in   mode
	seq  []byte // parameters of the CSI sequence being read
	rune []byte // beginning of an incomplete character
}

type mode byte

const (
	inText   mode = iota
	inEscape      // after ESC
	inCSI         // after ESC [
	inString      // OSC, DCS, SOS, PM, APC: up to BEL or ST
	inStringEscape
)

// screen receives what a terminal writes.
type screen interface {
	text([]byte)  // valid UTF-8 without control characters except tab; must not be kept
	color(string) // a complete SGR sequence
	newline()
	carriage() // return to the line's start
	erase()    // the line, or its part right of the cursor
	backspace()
}

const maxSequence = 64 // parameter bytes; no real color needs more

// printable marks the bytes that are text by themselves.
var printable = func() (t [256]bool) {
	for b := ' '; b <= '~'; b++ {
		t[b] = true
	}
	t['\t'] = true
	return t
}()

func (t *terminal) write(p []byte, on screen) {
	for len(p) > 0 {
		if t.in != inText {
			t.sequence(p[0], on)
			p = p[1:]
			continue
		}
		if len(t.rune) > 0 || p[0] >= utf8.RuneSelf {
			p = t.wide(p, on)
			continue
		}
		n := 0
		for n < len(p) && printable[p[n]] {
			n++
		}
		if n > 0 {
			on.text(p[:n])
			p = p[n:]
			continue
		}
		t.control(p[0], on)
		p = p[1:]
	}
}

// wide handles one non-ASCII character, or one byte of it if the rest is missing.
func (t *terminal) wide(p []byte, on screen) []byte {
	if len(t.rune) == 0 { // usually the whole character is there
		n := 0
		for n < len(p) && p[n] >= utf8.RuneSelf {
			r, size := utf8.DecodeRune(p[n:])
			if r == utf8.RuneError || r < 0xa0 {
				break
			}
			n += size
		}
		if n > 0 {
			on.text(p[:n])
			return p[n:]
		}
	}
	if len(t.rune) > 0 && p[0] < utf8.RuneSelf { // the rest never came
		t.broken(on)
		return p
	}
	t.rune = append(t.rune, p[0])
	if !utf8.FullRune(t.rune) {
		return p[1:]
	}
	r, size := utf8.DecodeRune(t.rune)
	rest := len(t.rune) - size
	switch {
	case r == utf8.RuneError && size == 1:
		if rest > 0 { // the last byte may begin another character
			t.rune = t.rune[:0]
			on.text([]byte("\uFFFD"))
			return p
		}
		t.broken(on)
	case r < 0xa0: // C1 controls: ESC and a byte in one character
		t.rune = t.rune[:0]
		t.in = inEscape
		t.sequence(byte(r)-0x40, on)
	default:
		on.text(t.rune)
		t.rune = t.rune[:0]
	}
	return p[1:]
}

func (t *terminal) broken(on screen) {
	t.rune = t.rune[:0]
	on.text([]byte("\uFFFD"))
}

func (t *terminal) control(b byte, on screen) {
	switch b {
	case '\n':
		on.newline()
	case '\r':
		on.carriage()
	case '\b':
		on.backspace()
	case 0x1b:
		t.in = inEscape
	}
}

func (t *terminal) sequence(b byte, on screen) {
	switch {
	case b == '\n', b == '\r':
		t.in = inText
		t.control(b, on)
		return
	case b == 0x18, b == 0x1a: // CAN, SUB
		t.in = inText
		return
	}
	switch t.in {
	case inEscape:
		switch {
		case b == '[':
			t.in, t.seq = inCSI, t.seq[:0]
		case b == ']', b == 'P', b == 'X', b == '^', b == '_':
			t.in = inString
		case b == 0x1b, b >= 0x20 && b < 0x30: // another ESC, or an intermediate byte
		default:
			t.in = inText
		}
	case inCSI:
		switch {
		case b == 0x1b:
			t.in = inEscape
		case b >= 0x40 && b < 0x7f:
			t.in = inText
			t.csi(b, on)
		case len(t.seq) <= maxSequence && b >= 0x20:
			t.seq = append(t.seq, b)
		}
	case inString:
		if b == 0x07 {
			t.in = inText
		} else if b == 0x1b {
			t.in = inStringEscape
		}
	case inStringEscape:
		switch b {
		case '\\', 0x07:
			t.in = inText
		case 0x1b:
		default:
			t.in = inString
		}
	}
}

// csi handles a control sequence with its final byte.
func (t *terminal) csi(final byte, on screen) {
	p := string(t.seq)
	switch final {
	case 'm':
		if len(p) <= maxSequence && strings.Trim(p, "0123456789;:") == "" {
			on.color("\x1b[" + p + "m")
		}
	case 'K':
		if p == "2" { // yarn and others erase the whole line, then return to its start
			on.carriage()
		}
		on.erase()
	case 'G':
		if p == "" || p == "0" || p == "1" {
			on.carriage()
		}
	}
}

// shown returns the first line of a text as it appears in a Message.
func shown(s string) string {
	var c copyist
	var t terminal
	t.write([]byte(s), &c)
	if len(t.rune) > 0 {
		t.broken(&c)
	}
	return string(c)
}

// copyist is a screen that keeps only text.
type copyist []byte

func (c *copyist) text(p []byte) { *c = append(*c, p...) }
func (c *copyist) color(string)  {}
func (c *copyist) newline()      {}
func (c *copyist) carriage()     {}
func (c *copyist) erase()        {}
func (c *copyist) backspace()    { *c = (*c)[:len(*c)-lastRune(*c)] }

// lastRune returns the length of the last character of valid UTF-8.
func lastRune(p []byte) int {
	if len(p) == 0 {
		return 0
	}
	_, n := utf8.DecodeLastRune(p)
	return n
}
