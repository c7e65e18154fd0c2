package account

import (
	"strings"
	"unicode"
)

// blank are letters and symbols that nothing is drawn for, although Unicode counts them
// among those that are visible: fillers of Hangul, the empty Braille pattern.
const blank = "\u115f\u1160\u3164\uffa0\u2800"

// Visible reports whether a name has a character that people can see. Spaces, joiners,
// marks without a letter and fillers are not seen.
func Visible(name string) bool {
	return strings.ContainsFunc(name, func(r rune) bool {
		return unicode.In(r, unicode.L, unicode.N, unicode.P, unicode.S) && !strings.ContainsRune(blank, r)
	})
}
