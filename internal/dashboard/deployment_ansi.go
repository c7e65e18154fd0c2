package dashboard

import (
	"html/template"
	"strconv"
	"strings"
	"unicode/utf8"
)

// ink is how a terminal would draw text: SGR of ECMA-48 8.3.117, and the colours that
// terminals added to it. Colours are 1 to 16, of the palette in site.css; 0 is none.
type ink struct {
	fore, back                                  int
	bold, faint, italic, under, inverse, struck bool
}

// class is the ink in class names of site.css.
func (k ink) class() string {
	fore, back := k.fore, k.back
	if k.inverse {
		fore, back = back, fore
		if fore == 0 && back == 0 {
			return "inv" // the page's own colours, swapped
		}
	}
	var out []string
	if fore > 0 {
		out = append(out, "f"+strconv.Itoa(fore-1))
	}
	if back > 0 {
		out = append(out, "b"+strconv.Itoa(back-1))
	}
	for _, x := range []struct {
		on   bool
		name string
	}{{k.bold, "bo"}, {k.faint, "fa"}, {k.italic, "it"}, {k.under, "un"}, {k.struck, "st"}} {
		if x.on {
			out = append(out, x.name)
		}
	}
	return strings.Join(out, " ")
}

// writePlain writes text without any markup of its own: control characters but tab go.
func writePlain(b *strings.Builder, text string) {
	b.WriteString(template.HTMLEscapeString(clean(text)))
}

// clean keeps what can be shown: valid UTF-8 without control characters but tab.
func clean(text string) string {
	return strings.Map(func(r rune) rune {
		if r != '\t' && (r < ' ' || r >= 0x7f && r < 0xa0) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(text, string(utf8.RuneError)))
}

// writeANSI writes a line with its terminal colours as spans with classes. Concealed text
// is shown: a log hides nothing from its reader. Every other escape sequence is dropped.
func writeANSI(b *strings.Builder, raw string) {
	var k ink
	put := func(text string) {
		if text = clean(text); text == "" {
			return
		}
		class := k.class()
		if class == "" {
			b.WriteString(template.HTMLEscapeString(text))
			return
		}
		b.WriteString(`<span class="` + class + `">` + template.HTMLEscapeString(text) + `</span>`)
	}
	for raw != "" {
		i := strings.IndexByte(raw, 0x1b)
		if i < 0 {
			put(raw)
			return
		}
		put(raw[:i])
		raw = raw[i+1:]
		if !strings.HasPrefix(raw, "[") { // not a control sequence: the escape alone goes
			continue
		}
		end := 1
		for end < len(raw) && raw[end] >= 0x20 && raw[end] <= 0x3f { // parameters and intermediates
			end++
		}
		if end == len(raw) {
			return // cut in the middle
		}
		if raw[end] == 'm' {
			k.apply(raw[1:end])
		}
		if raw[end] < 0x40 || raw[end] > 0x7e { // no final byte: what follows is text again
			raw = raw[end:]
			continue
		}
		raw = raw[end+1:]
	}
}

// apply changes the ink by the parameters of one SGR sequence.
func (k *ink) apply(params string) {
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
				k.fore = c
			} else {
				k.back = c
			}
			continue
		}
		k.set(n, rest)
	}
}

func (k *ink) set(n int, rest string) {
	switch {
	case n == 0:
		*k = ink{}
	case n == 1:
		k.bold = true
	case n == 2:
		k.faint = true
	case n == 3:
		k.italic = true
	case n == 4:
		k.under = rest != "0"
	case n == 7:
		k.inverse = true
	case n == 9:
		k.struck = true
	case n == 21:
		k.under = true
	case n == 22:
		k.bold, k.faint = false, false
	case n == 23:
		k.italic = false
	case n == 24:
		k.under = false
	case n == 27:
		k.inverse = false
	case n == 29:
		k.struck = false
	case n >= 30 && n <= 37:
		k.fore = n - 30 + 1
	case n == 39:
		k.fore = 0
	case n >= 40 && n <= 47:
		k.back = n - 40 + 1
	case n == 49:
		k.back = 0
	case n >= 90 && n <= 97:
		k.fore = n - 90 + 9
	case n >= 100 && n <= 107:
		k.back = n - 100 + 9
	}
}

// extended reads the rest of a colour of 256 (5;n) or of 24 bits (2;r;g;b; with colons
// the space for a colour space may stand before them) as the nearest of the palette, and
// says how many fields it took. 0 is no colour.
func extended(f []string, colons bool) (colour, used int) {
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
		grey := 8 + (n-232)*10
		return nearest(grey, grey, grey), 2
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

// palette is what terminals draw the sixteen colours as, by default.
var palette = [16][3]int{{0, 0, 0}, {205, 0, 0}, {0, 205, 0}, {205, 205, 0}, {0, 0, 238}, {205, 0, 205}, {0, 205, 205}, {229, 229, 229},
	{127, 127, 127}, {255, 0, 0}, {0, 255, 0}, {255, 255, 0}, {92, 92, 255}, {255, 0, 255}, {0, 255, 255}, {255, 255, 255}}

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
