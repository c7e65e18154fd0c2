package release

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"slipway/internal/build/rules"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/lazyregexp"
)

// maxPath caps the bytes of a path in a release.
const maxPath = 1024

// checkPath returns why path can't be a path in a release, or "".
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

// Addressable reports whether rules and files of a release can be about a decoded path.
func Addressable(path string) bool {
	if !strings.HasPrefix(path, "/") {
		return false
	}
	name, _, _ := rules.Tidy(path)
	return name == "" || checkPath(name) == ""
}

// Hidden reports whether an element of a path begins with a dot, or is .git in any spelling. Only .well-known at the
// root is public (RFC 8615).
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

// phpSource matches names of PHP source, including editors' backup copies.
var phpSource = lazyregexp.New(`(?i)\.(php[0-9]?|phtml|phps|pht|phar)(\.(bak|old|orig|save|swp|swo))?~?$`)

// PHPSource reports whether a path names PHP source. A release never contains it, because it would be served as text.
func PHPSource(path string) bool {
	last := path[strings.LastIndexByte(path, '/')+1:]
	i := strings.Index(last, ".p")
	if i < 0 {
		i = strings.Index(last, ".P")
	}
	return i >= 0 && phpSource.MatchString(last)
}

// Skips reports whether the file at a path must be skipped because of its name, and records it for Seal. Add would
// refuse the name and fail the whole deployment.
func (w *Writer) Skips(path string) bool {
	if why := checkPath(path); why != "" {
		w.left(why, show(path))
		return true
	}
	if !Hidden(path) {
		return false
	}
	at := 0 // the first hidden element, which hides everything below it
	for s := range strings.SplitSeq(path, "/") {
		at += len(s) + 1
		if strings.HasPrefix(s, ".") {
			if !strings.HasPrefix(s, ".git") { // nobody expects .git to be published
				w.left("names that begin with a dot are not published", show(path[:at-1]))
			}
			break
		}
	}
	return true
}

// left records a skipped name and the reason.
func (w *Writer) left(why, name string) {
	if w.skipped == nil {
		w.skipped = map[string]map[string]bool{}
	}
	if w.skipped[why] == nil {
		w.skipped[why] = map[string]bool{}
	}
	w.skipped[why][name] = true
}

// leftOut returns one sentence per reason for skipping files.
func (w *Writer) leftOut() (list []string) {
	const most = 5 // names listed
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

// show quotes an untrusted path for an error message.
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
