package worktree

import (
	"fmt"
	"slices"

	"slipway/internal/build/configfile"
)

// decode returns a file's text as UTF-8. PowerShell writes UTF-16 with `node -v > .nvmrc`; it causes a warning, because
// other tools can't read it.
func (t *Tree) decode(name string, b []byte) string {
	text, form := configfile.Decode(b)
	if form != configfile.UTF16 {
		return text
	}
	if w := fmt.Sprintf("%s is encoded as %s, which most tools can't read: save it as UTF-8", name, form); !slices.Contains(t.Warnings, w) {
		t.Warn(w)
	}
	return text
}
