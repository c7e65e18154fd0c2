package buildlog

import (
	"iter"
	"strconv"
	"strings"
)

// Style is how a terminal draws text: SGR of ECMA-48 8.3.117, and colors that terminals added. Fore and Back are 1 to
// 16 for the standard palette; 0 is none. Concealed text is shown: a log hides nothing.
type Style struct {
	Fore, Back                                  int
	Bold, Faint, Italic, Under, Inverse, Struck bool
}

// Spans yields the text of a line's Raw in pieces with one style each. For any raw, the pieces are valid UTF-8 without
// control characters except tab.
func Spans(raw string) iter.Seq2[Style, string] {
	return func(yield func(Style, string) bool) {
		p := &painter{yield: yield}
		var t terminal
		t.write([]byte(raw), p)
		if len(t.rune) > 0 {
			t.broken(p)
		}
		p.flush()
	}
}

// painter is a screen that keeps text with its style.
type painter struct {
	yield func(Style, string) bool
	style Style
	piece []byte
	done  bool
}

func (p *painter) text(b []byte) { p.piece = append(p.piece, b...) }
func (p *painter) newline()      {}
func (p *painter) carriage()     {}
func (p *painter) erase()        {}
func (p *painter) backspace()    {}

func (p *painter) color(sgr string) {
	p.flush()
	p.style.apply(strings.TrimSuffix(strings.TrimPrefix(sgr, "\x1b["), "m"))
}

func (p *painter) flush() {
	if len(p.piece) > 0 && !p.done {
		p.done = !p.yield(p.style, string(p.piece))
	}
	p.piece = p.piece[:0]
}

// apply changes the style by the parameters of one SGR sequence.
func (k *Style) apply(params string) {
	if len(params) > 256 {
		return
	}
	fields := strings.Split(params, ";")
	for i := 0; i < len(fields); i++ {
		head, rest, colon := strings.Cut(fields[i], ":")
		n, err := strconv.Atoi(head)
		if head == "" {
			n, err = 0, nil
		}
		if err != nil {
			continue
		}
		if n == 38 || n == 48 {
			var c int
			if colon {
				c, _ = extended(strings.Split(rest, ":"), true)
			} else {
				var used int
				c, used = extended(fields[i+1:], false)
				i += used
			}
			if n == 38 {
				k.Fore = c
			} else {
				k.Back = c
			}
			continue
		}
		k.set(n, rest)
	}
}

func (k *Style) set(n int, rest string) {
	switch {
	case n == 0:
		*k = Style{}
	case n == 1:
		k.Bold = true
	case n == 2:
		k.Faint = true
	case n == 3:
		k.Italic = true
	case n == 4:
		k.Under = rest != "0"
	case n == 7:
		k.Inverse = true
	case n == 9:
		k.Struck = true
	case n == 21:
		k.Under = true
	case n == 22:
		k.Bold, k.Faint = false, false
	case n == 23:
		k.Italic = false
	case n == 24:
		k.Under = false
	case n == 27:
		k.Inverse = false
	case n == 29:
		k.Struck = false
	case n >= 30 && n <= 37:
		k.Fore = n - 30 + 1
	case n == 39:
		k.Fore = 0
	case n >= 40 && n <= 47:
		k.Back = n - 40 + 1
	case n == 49:
		k.Back = 0
	case n >= 90 && n <= 97:
		k.Fore = n - 90 + 9
	case n >= 100 && n <= 107:
		k.Back = n - 100 + 9
	}
}

// extended parses the rest of a 256-color (5;n) or 24-bit (2;r;g;b) code, which with colons may have a color space
// before r, and returns the nearest palette color and the number of fields used. 0 is no color.
func extended(f []string, colons bool) (color, used int) {
	at := func(i int) int {
		if i >= len(f) {
			return -1
		}
		if f[i] == "" {
			return 0
		}
		n, err := strconv.Atoi(f[i])
		if err != nil || n < 0 || n > 255 {
			return -1
		}
		return n
	}
	if len(f) == 0 {
		return 0, 0
	}
	switch f[0] {
	case "5":
		n := at(1)
		switch {
		case n < 0:
			return 0, min(2, len(f))
		case n < 16:
			return n + 1, 2
		case n < 232:
			n -= 16
			level := [6]int{0, 95, 135, 175, 215, 255}
			return nearest(level[n/36], level[n/6%6], level[n%6]), 2
		}
		gray := 8 + (n-232)*10
		return nearest(gray, gray, gray), 2
	case "2":
		from := 1
		if colons && len(f) >= 5 {
			from = 2
		}
		r, g, bl := at(from), at(from+1), at(from+2)
		if r < 0 || g < 0 || bl < 0 {
			return 0, min(4, len(f))
		}
		return nearest(r, g, bl), 4
	}
	return 0, 1
}

// palette holds the terminals' default values of the sixteen colors.
var palette = [16][3]int{
	{0, 0, 0},
	{205, 0, 0},
	{0, 205, 0},
	{205, 205, 0},
	{0, 0, 238},
	{205, 0, 205},
	{0, 205, 205},
	{229, 229, 229},
	{127, 127, 127},
	{255, 0, 0},
	{0, 255, 0},
	{255, 255, 0},
	{92, 92, 255},
	{255, 0, 255},
	{0, 255, 255},
	{255, 255, 255},
}

func nearest(r, g, b int) int {
	best, far := 0, 1<<30
	for i, p := range palette {
		dr, dg, db := r-p[0], g-p[1], b-p[2]
		if dist := dr*dr + dg*dg + db*db; dist < far {
			best, far = i, dist
		}
	}
	return best + 1
}
