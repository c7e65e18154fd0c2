package pushes

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"slipway/internal/platform/fault"
)

// Limits of watch.
const (
	maxGlobs = 50
	maxGlob  = 200 // bytes
	// maxWork caps the bytes of paths times the bytes of patterns that are compared per push, within a transaction. The
	// worst pattern takes 35 ns per unit.
	maxWork = 4 << 20
)

func checkWatch(globs []string) error {
	bad := func(details, received string) error {
		return fault.New(fault.Invalid, "invalid_watch", "Invalid watch", details).Got(received)
	}
	if len(globs) > maxGlobs {
		return bad(fmt.Sprintf("watch has at most %d patterns", maxGlobs), "")
	}
	for _, g := range globs {
		p := strings.TrimPrefix(g, "!")
		switch {
		case len(g) > maxGlob || !utf8.ValidString(g) || strings.ContainsRune(g, 0):
			return bad("a pattern has at most 200 bytes of text", "")
		case strings.Trim(p, "/") == "" || strings.HasPrefix(path.Clean(strings.TrimLeft(p, "/")), ".."):
			return bad("a pattern is a path from the repository's root such as src/**, docs or !**/*.md", g)
		}
	}
	return nil
}

// compile turns a glob into a regular expression: ** matches any folders, * and ? stay within one name. A pattern that
// matches a folder matches everything in it.
func compile(glob string) *regexp.Regexp {
	glob = strings.Trim(glob, "/")
	var b strings.Builder
	b.WriteString(`(?s)^`)
	for glob != "" {
		switch {
		case strings.HasPrefix(glob, "**/"):
			b.WriteString(`(?:.*/)?`)
			glob = glob[3:]
		case strings.HasPrefix(glob, "**"):
			b.WriteString(`.*`)
			glob = glob[2:]
		case glob[0] == '*':
			b.WriteString(`[^/]*`)
			glob = glob[1:]
		case glob[0] == '?':
			b.WriteString(`[^/]`)
			glob = glob[1:]
		default:
			_, n := utf8.DecodeRuneInString(glob)
			b.WriteString(regexp.QuoteMeta(glob[:n]))
			glob = glob[n:]
		}
	}
	b.WriteString(`(?:/.*)?$`)
	return regexp.MustCompile(b.String())
}

// watched reports whether any file matches. For each file the last matching pattern counts; patterns that begin with !
// exclude. If all patterns exclude, everything else matches. Comparisons that would take too long count as a match.
func watched(globs, files []string) bool {
	type rule struct {
		re     *regexp.Regexp
		prefix string // literal prefix that a file must have
		size   int
		not    bool
	}
	rules, others := make([]rule, len(globs)), true
	for i, g := range globs {
		p, not := strings.CutPrefix(g, "!")
		prefix := strings.Trim(p, "/")
		if at := strings.IndexAny(prefix, "*?"); at >= 0 {
			prefix = prefix[:at]
		}
		rules[i] = rule{compile(p), prefix, len(p), not}
		others = others && not
	}
	work, seen := 0, map[string]bool{}
	for _, f := range files {
		if seen[f] { // several commits of a push may change the same file
			continue
		}
		seen[f] = true
		match := others
		for _, r := range rules {
			work++
			if !strings.HasPrefix(f, r.prefix) {
				continue
			}
			work += len(f) * r.size
			if work > maxWork {
				return true
			}
			if r.re.MatchString(f) {
				match = !r.not
			}
		}
		if match {
			return true
		}
	}
	return false
}

// concerns reports whether changed files may affect the project in the folder root. These are files in the folder,
// files directly in its parent folders (lock files, workspace definitions), and files of shared packages: in uses if
// that is known, else in packages and libs, as is the custom.
func concerns(root string, uses, files []string) bool {
	root = strings.Trim(path.Clean("/"+root), "/")
	if root == "" {
		return true
	}
	shared := uses
	if len(shared) == 0 {
		shared = []string{"packages", "libs"}
	}
	below := make([]string, len(shared))
	for i, s := range shared {
		below[i] = s + "/"
	}
	for _, f := range files {
		dir := path.Dir(f)
		if strings.HasPrefix(f, root+"/") || dir == "." || strings.HasPrefix(root, dir+"/") ||
			slices.ContainsFunc(below, func(s string) bool { return strings.HasPrefix(f, s) }) {
			return true
		}
	}
	return false
}
