package worktree

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"unicode/utf16"
)

// decode returns a file's text as UTF-8 without a byte order mark. UTF-16 is what PowerShell
// writes with `node -v > .nvmrc`; it is read, since a project whose package.json is left out
// would be published without its build, and warned of, since other tools don't read it.
func (t *Tree) decode(name string, b []byte) string {
	var order binary.ByteOrder
	switch {
	case len(b) >= 2 && b[0] == 0xff && b[1] == 0xfe:
		order = binary.LittleEndian
	case len(b) >= 2 && b[0] == 0xfe && b[1] == 0xff:
		order = binary.BigEndian
	default:
		return strings.ToValidUTF8(strings.TrimPrefix(string(b), "\ufeff"), "\ufffd")
	}
	if w := fmt.Sprintf("%s is encoded as UTF-16, which most tools can't read: save it as UTF-8", name); !slices.Contains(t.Warnings, w) {
		t.Warn(w)
	}
	units := make([]uint16, 0, len(b)/2)
	for i := 2; i+1 < len(b); i += 2 {
		units = append(units, order.Uint16(b[i:]))
	}
	return string(utf16.Decode(units))
}
