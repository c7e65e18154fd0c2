package site

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// A folded text is one line of valid UTF-8 without capitals that have a lower-case form, and folding it again changes
// nothing, so that stored and typed text compare equal.
func FuzzFold(f *testing.F) {
	for _, s := range []string{"My Blog", "Straße", "İstanbul", "ＷＩＤＥ", "Ёлка", "ﷺ", "a\x00b\xff", "e\u0301", "\u0345", "Ꭰꭰ", "\u1e9e"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := fold(s)
		if !utf8.ValidString(got) || strings.ContainsFunc(got, unicode.IsControl) || got != strings.TrimSpace(got) {
			t.Errorf("fold(%q) = %q", s, got)
		}
		if again := fold(got); again != got {
			t.Errorf("fold(%q) = %q, and folded again %q", s, got, again)
		}
		if upper := fold(strings.ToUpper(got)); got == strings.ToLower(got) && isASCII(got) && upper != got {
			t.Errorf("%q in capitals folds to %q", got, upper)
		}
	})
}

func isASCII(s string) bool { return !strings.ContainsFunc(s, func(r rune) bool { return r >= 0x80 }) }
