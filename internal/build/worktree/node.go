package worktree

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"slipway/internal/build/configfile"
	"slipway/internal/platform/lazyregexp"
)

func SortedKeys(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }

// codenames lists the long-term support lines that .nvmrc may name.
var codenames = map[string]string{
	"argon": "4", "boron": "6", "carbon": "8", "dubnium": "10", "erbium": "12",
	"fermium": "14", "gallium": "16", "hydrogen": "18", "iron": "20", "jod": "22", "krypton": "24",
}

var nodeRange = lazyregexp.New(`^[0-9xX*^~<>=|. v-]+[0-9a-zA-Z.*+ |<>=^~-]*$`)

// NodeVersion converts a version as users write it to a version, an npm range, "lts/*" or "latest". It refuses
// everything else, because the result becomes part of a download's name.
func NodeVersion(s string) (string, bool) {
	s, _, _ = strings.Cut(strings.TrimSpace(s), "#")
	s = strings.TrimSpace(s)
	lower := strings.ToLower(s)
	switch lower {
	case "":
		return "", false
	case "node", "latest", "current", "stable":
		return "latest", true
	case "lts", "lts/*", "--lts", "lts/latest":
		return "lts/*", true
	}
	if v, ok := codenames[strings.TrimPrefix(lower, "lts/")]; ok {
		return v, true
	}
	s = strings.TrimPrefix(s, "node-")
	if v, ok := strings.CutPrefix(s, "v"); ok {
		s = v
	}
	if len(s) > 100 || !nodeRange.MatchString(s) {
		return "", false
	}
	return s, true
}

// Upward lists a folder and its parents, the repository's root last.
func Upward(dir string) []string {
	list := []string{dir}
	for dir != "" {
		dir = Parent(dir)
		list = append(list, dir)
	}
	return list
}

// FirstWord returns the first line that isn't a comment.
func FirstWord(s string) string {
	for line := range strings.Lines(s) {
		line, _, _ = strings.Cut(line, "#")
		line = strings.TrimSpace(line)
		if line != "" {
			return line
		}
	}
	return ""
}

// ToolVersion reads a `.tool-versions` file of asdf or mise: per line a name and versions, the first of which counts.
func ToolVersion(s string, names ...string) string {
	for line := range strings.Lines(s) {
		line, _, _ = strings.Cut(line, "#")
		f := strings.Fields(line)
		if len(f) >= 2 && slices.Contains(names, f[0]) && !strings.Contains(f[1], ":") && f[1] != "system" {
			return f[1]
		}
	}
	return ""
}

// MiseVersion reads a version in mise's own file: a string, a list, whose first element counts, or a table.
func MiseVersion(src, name string) string {
	var f struct{ Tools map[string]any }
	_, _ = configfile.DecodeTOML(src, &f) // mise itself reports an unreadable file
	v := f.Tools[name]
	if list, ok := v.([]any); ok && len(list) > 0 {
		v = list[0]
	}
	if table, ok := v.(map[string]any); ok {
		v = table["version"]
	}
	switch v := v.(type) {
	case string:
		return v
	case int64, float64:
		return fmt.Sprint(v)
	}
	return ""
}
