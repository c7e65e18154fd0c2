package release

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"slipway/internal/platform/fault"
	"slipway/internal/platform/lazyregexp"
)

// maxPath is the longest path of a release in bytes.
const maxPath = 1024

// checkPath returns why path cannot be a file's path in a release, or "".
func checkPath(path string) string {
	switch {
	case path == "":
		return "it is empty"
	case len(path) > maxPath:
		return fmt.Sprintf("it is longer than %d bytes", maxPath)
	case !utf8.ValidString(path):
		return "it is not valid UTF-8"
	case path[0] == '/':
		return "it begins with a slash"
	}
	for _, c := range path {
		if c < ' ' || c == 0x7f || c >= 0x80 && c < 0xa0 {
			return "it contains a control character"
		}
		if c == '\\' {
			return "it contains a backslash"
		}
	}
	for s := range strings.SplitSeq(path, "/") {
		switch s {
		case "":
			return "it contains an empty name"
		case ".", "..":
			return "it contains the name " + s
		}
	}
	return ""
}

// Hidden reports whether a path holds a name that begins with a dot, .git in any
// spelling among them. Only .well-known at the top is for the public (RFC 8615).
func Hidden(path string) bool {
	first := true
	for s := range strings.SplitSeq(path, "/") {
		if strings.HasPrefix(s, ".") && !(first && s == ".well-known") {
			return true
		}
		first = false
	}
	return false
}

// phpSource matches names of PHP source, copies of it by editors included.
var phpSource = lazyregexp.New(`(?i)\.(php[0-9]?|phtml|phps|pht|phar)(\.(bak|old|orig|save|swp|swo))?~?$`)

// PHPSource reports whether a path names PHP source, which a release never has: it would be sent as text.
func PHPSource(path string) bool {
	last := path[strings.LastIndexByte(path, '/')+1:]
	i := strings.Index(last, ".p")
	if i < 0 {
		i = strings.Index(last, ".P")
	}
	return i >= 0 && phpSource.MatchString(last)
}

// Skips reports whether the file at a path is left out because of its name, and remembers it for Seal. What
// Add refuses fails a deployment that has thousands of other files.
func (w *Writer) Skips(path string) bool {
	if why := checkPath(path); why != "" {
		w.left(why, show(path))
		return true
	}
	if !Hidden(path) {
		return false
	}
	at := 0 // the first name that is hidden, all of whose files are
	for s := range strings.SplitSeq(path, "/") {
		at += len(s) + 1
		if strings.HasPrefix(s, ".") {
			if !strings.HasPrefix(s, ".git") { // nobody expects those
				w.left("names that begin with a dot are not published", show(path[:at-1]))
			}
			break
		}
	}
	return true
}

// left remembers a name that is left out and why.
func (w *Writer) left(why, name string) {
	if w.skipped == nil {
		w.skipped = map[string]map[string]bool{}
	}
	if w.skipped[why] == nil {
		w.skipped[why] = map[string]bool{}
	}
	w.skipped[why][name] = true
}

// leftOut returns a sentence for each reason why files were left out.
func (w *Writer) leftOut() (list []string) {
	const most = 5 // names
	for _, why := range slices.Sorted(maps.Keys(w.skipped)) {
		names := slices.Sorted(maps.Keys(w.skipped[why]))
		text := strings.Join(names[:min(len(names), most)], ", ")
		if n := len(names) - most; n > 0 {
			text += fmt.Sprintf(" and %d more", n)
		}
		list = append(list, fmt.Sprintf("Skipped %s: %s", text, why))
	}
	return list
}

func badPath(path, why string) error {
	return fault.New(fault.Invalid, "release_path", "A file's path can't be published",
		fmt.Sprintf("%s: %s; rename it", show(path), why)).Got(show(path))
}

// show makes a stranger's path fit for a sentence.
func show(path string) string {
	path = strings.ToValidUTF8(path, "\ufffd")
	path = strings.Map(func(c rune) rune {
		if c < ' ' || c >= 0x7f && c < 0xa0 {
			return '\ufffd'
		}
		return c
	}, path)
	if len(path) > 200 {
		cut := 200
		for !utf8.RuneStart(path[cut]) {
			cut--
		}
		path = path[:cut] + "…"
	}
	return path
}
