package text

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Printable makes untrusted text safe for one line of a terminal: control characters, and those that change the
// direction of text or end a line, become JSON escapes.
func Printable(s string) string { return escaped(strings.ReplaceAll(s, "\t", " "), "") }

// colors matches a color escape sequence (SGR).
var colors = regexp.MustCompile(`^\x1b\[[0-9;]{0,32}m`)

// Screen makes untrusted text safe for a terminal but keeps lines, tabs and colors. Other characters are treated as by
// [Printable].
func Screen(s string) string {
	if strings.IndexFunc(s, func(r rune) bool { return harmful(r) && r != '\n' && r != '\t' }) < 0 && utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	for s != "" {
		if color := colors.FindString(s); color != "" {
			b.WriteString(color)
			s = s[len(color):]
			continue
		}
		next := strings.IndexByte(s[1:], '\x1b') + 1
		if next == 0 {
			next = len(s)
		}
		b.WriteString(escaped(s[:next], "\n\t"))
		s = s[next:]
	}
	return b.String()
}

// escaped escapes harmful characters except those in except.
func escaped(s, except string) string {
	var b strings.Builder
	for _, r := range s {
		if harmful(r) && !strings.ContainsRune(except, r) {
			fmt.Fprintf(&b, `\u%04x`, r)
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// harmful reports whether a character can move a terminal's cursor or change text around it.
func harmful(r rune) bool {
	return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || r == 0x2028 || r == 0x2029
}
