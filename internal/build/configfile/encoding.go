package configfile

import (
	"encoding/binary"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// Encodings of text other than UTF-8.
const (
	UTF16  = "UTF-16"
	Latin1 = "ISO 8859-1"
)

// Decode returns a text file as UTF-8 without a byte order mark, and its encoding if it was another one. Text that
// isn't valid UTF-8 is taken for ISO 8859-1, because ignoring the file would ignore its settings.
func Decode(b []byte) (text, form string) {
	var order binary.ByteOrder
	switch {
	case len(b) >= 2 && b[0] == 0xff && b[1] == 0xfe:
		order = binary.LittleEndian
	case len(b) >= 2 && b[0] == 0xfe && b[1] == 0xff:
		order = binary.BigEndian
	case utf8.Valid(b):
		return strings.TrimPrefix(string(b), "\ufeff"), ""
	default:
		var out strings.Builder
		for rest := strings.TrimPrefix(string(b), "\ufeff"); rest != ""; {
			r, n := utf8.DecodeRuneInString(rest)
			if r == utf8.RuneError && n == 1 {
				r = rune(rest[0])
			}
			out.WriteRune(r)
			rest = rest[n:]
		}
		return out.String(), Latin1
	}
	units := make([]uint16, 0, len(b)/2)
	for i := 2; i+1 < len(b); i += 2 {
		units = append(units, order.Uint16(b[i:]))
	}
	return string(utf16.Decode(units)), UTF16
}
