package buildlog

import (
	"strings"
	"unicode/utf8"
)

// terminal reads bytes as a terminal would (ECMA-48, xterm), as far as a log needs it:
// it tells text, colors, line ends and erasures to its screen and drops all else. A
// line feed ends every unfinished sequence, so that none can swallow what follows.
// docs/adr/0028-small-readers.md says why no library does it.
type terminal struct {
	in   mode
	seq  []byte // parameters of the CSI sequence being read
	rune []byte // the beginning of a character whose end has not come
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
	text([]byte)  // valid UTF-8 without control characters but tab; not kept
	color(string) // a whole SGR sequence
	newline()
	carriage() // return to the line's start
	erase()    // the line, or what of it is right of the cursor
	backspace()
}

const maxSequence = 64 // parameter bytes; no honest color needs more

// printable says which bytes are text on their own.
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

// wide takes one character that is not ASCII, or one byte of it when the rest is to come.
func (t *terminal) wide(p []byte, on screen) []byte {
	if len(t.rune) == 0 { // the usual case: characters that are whole
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
	case r < 0xa0: // C1 controls, which are ESC and a byte in one character
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

// csi acts on a control sequence with its final byte.
func (t *terminal) csi(final byte, on screen) {
	p := string(t.seq)
	switch final {
	case 'm':
		if len(p) <= maxSequence && strings.Trim(p, "0123456789;:") == "" {
			on.color("\x1b[" + p + "m")
		}
	case 'K':
		if p == "2" { // yarn and others erase all of a line, then go to its start
			on.carriage()
		}
		on.erase()
	case 'G':
		if p == "" || p == "0" || p == "1" {
			on.carriage()
		}
	}
}

// shown is a text as it stands in a Message: the first line of it.
func shown(s string) string {
	var c copyist
	var t terminal
	t.write([]byte(s), &c)
	if len(t.rune) > 0 {
		t.broken(&c)
	}
	return string(c)
}

// copyist is a screen that keeps text only.
type copyist []byte

func (c *copyist) text(p []byte) { *c = append(*c, p...) }
func (c *copyist) color(string)  {}
func (c *copyist) newline()      {}
func (c *copyist) carriage()     {}
func (c *copyist) erase()        {}
func (c *copyist) backspace()    { *c = (*c)[:len(*c)-lastRune(*c)] }

// lastRune is the length of the last character of valid UTF-8.
func lastRune(p []byte) int {
	if len(p) == 0 {
		return 0
	}
	_, n := utf8.DecodeLastRune(p)
	return n
}
