package folder

import (
	"bytes"
	"errors"
	"strings"
)

// pattern is one line of an ignore file (gitignore(5)).
type pattern struct {
	glob    string
	negated bool // "!" pattern
	dir     bool // matches only folders
	base    bool // has no slash, so it matches names in any folder
}

// patterns holds one ignore file. at is its folder: "" or a path with a trailing slash.
type patterns struct {
	at   string
	list []pattern
}

// maxIgnore caps an ignore file, in bytes.
const maxIgnore = 1 << 20

// parseIgnore reads an ignore file.
func parseIgnore(at string, text []byte) (patterns, error) {
	p := patterns{at: at}
	if len(text) > maxIgnore {
		return p, errors.New("it is larger than 1 MiB")
	}
	text = bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutSuffix(line, "\n"); ok {
			line = strings.TrimSuffix(rest, "\r")
		}
		line = trimSpaces(line)
		if line == "" || line[0] == '#' {
			continue
		}
		var x pattern
		if line[0] == '!' {
			x.negated, line = true, line[1:]
		}
		if n := len(line); n > 0 && line[n-1] == '/' {
			x.dir, line = true, line[:n-1]
		}
		x.base = !strings.Contains(line, "/")
		x.glob = strings.TrimPrefix(line, "/")
		if x.glob == "" {
			continue
		}
		p.list = append(p.list, x)
	}
	return p, nil
}

// trimSpaces removes trailing spaces that aren't escaped.
func trimSpaces(s string) string {
	end := 0
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case ' ':
			continue
		case '\\':
			i++
		}
		end = min(i+1, len(s))
	}
	return s[:end]
}

// match returns the effect of the last matching pattern; ok is false if none matches.
func (p patterns) match(name string, dir bool) (ignored, ok bool) {
	rest, below := strings.CutPrefix(name, p.at)
	if !below {
		return false, false
	}
	for i := len(p.list) - 1; i >= 0; i-- {
		x := p.list[i]
		if x.dir && !dir {
			continue
		}
		subject := rest
		if x.base {
			subject = rest[strings.LastIndexByte(rest, '/')+1:]
		}
		glob := x.glob
		if !x.base { // as in Git, the part after the literal prefix is matched separately
			n := strings.IndexAny(glob, `*?[\`)
			if n < 0 {
				n = len(glob)
			}
			if !strings.HasPrefix(subject, glob[:n]) {
				continue
			}
			glob, subject = glob[n:], subject[n:]
		}
		if wildmatch(glob, subject) {
			return !x.negated, true
		}
	}
	return false, false
}

// matchAll applies the ignore files of the path's parent folders, nearest first.
func matchAll(all []patterns, name string, dir bool) bool {
	for i := len(all) - 1; i >= 0; i-- {
		if ignored, ok := all[i].match(name, dir); ok {
			return ignored
		}
	}
	return false
}

// wildmatch implements Git's path matching: * and ? don't match a slash, ** between slashes does.
func wildmatch(p, s string) bool { return wild(p, s, true) == matched }

type result int

const (
	failed result = iota
	matched
	stopped // no match, and an earlier star can't help
	ended   // the text is too short, so a longer star can't help
)

// wild is wildmatch; first says that p is at its beginning or after a slash.
func wild(p, s string, first bool) result {
	for p != "" {
		c := p[0]
		if s == "" && c != '*' {
			return ended
		}
		switch c {
		case '\\':
			if len(p) < 2 || p[1] != s[0] {
				return failed
			}
			first, p, s = p[1] == '/', p[2:], s[1:]
		case '?':
			if s[0] == '/' {
				return failed
			}
			first, p, s = false, p[1:], s[1:]
		case '[':
			rest, ok := class(p[1:], s[0])
			if !ok || s[0] == '/' {
				return failed
			}
			first, p, s = false, rest, s[1:]
		case '*':
			return star(p, s, first)
		default:
			if c != s[0] {
				return failed
			}
			first, p, s = c == '/', p[1:], s[1:]
		}
	}
	if s == "" {
		return matched
	}
	return failed
}

func star(p, s string, first bool) result {
	n := 1
	for n < len(p) && p[n] == '*' {
		n++
	}
	rest := p[n:]
	across := false
	if n > 1 && first && (rest == "" || rest[0] == '/' || strings.HasPrefix(rest, `\/`)) {
		if rest != "" && rest[0] == '/' && wild(rest[1:], s, true) == matched {
			return matched
		}
		across = true
	}
	if rest == "" {
		if !across && strings.Contains(s, "/") {
			return stopped
		}
		return matched
	}
	if !across && rest[0] == '/' {
		i := strings.IndexByte(s, '/')
		if i < 0 {
			return failed
		}
		return wild(rest[1:], s[i+1:], true)
	}
	for ; s != ""; s = s[1:] {
		switch r := wild(rest, s, false); {
		case r == matched, r == ended:
			return r
		case r == stopped && !across:
			return r
		case r == failed && !across && s[0] == '/':
			return stopped
		}
	}
	return ended
}

var classes = map[string]func(c byte) bool{
	"alnum":  func(c byte) bool { return letter(c) || digit(c) },
	"alpha":  letter,
	"blank":  func(c byte) bool { return c == ' ' || c == '\t' },
	"cntrl":  func(c byte) bool { return c < ' ' || c == 0x7f },
	"digit":  digit,
	"graph":  func(c byte) bool { return c > ' ' && c < 0x7f },
	"lower":  func(c byte) bool { return c >= 'a' && c <= 'z' },
	"print":  func(c byte) bool { return c >= ' ' && c < 0x7f },
	"punct":  func(c byte) bool { return c > ' ' && c < 0x7f && !letter(c) && !digit(c) },
	"space":  func(c byte) bool { return c == ' ' || c >= '\t' && c <= '\r' },
	"upper":  func(c byte) bool { return c >= 'A' && c <= 'Z' },
	"xdigit": func(c byte) bool { return digit(c) || c|0x20 >= 'a' && c|0x20 <= 'f' },
}

func letter(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' }
func digit(c byte) bool  { return c >= '0' && c <= '9' }

// class matches a character against the set after a bracket and returns the rest of the pattern.
func class(p string, c byte) (rest string, ok bool) {
	negated := false
	if p != "" && (p[0] == '!' || p[0] == '^') {
		negated, p = true, p[1:]
	}
	found := false
	var before byte // start of a possible range; 0: none
	for i := 0; ; i++ {
		if i >= len(p) {
			return "", false
		}
		x := p[i]
		switch {
		case x == ']' && i > 0:
			return p[i+1:], found != negated
		case x == '\\':
			i++
			if i >= len(p) {
				return "", false
			}
			x = p[i]
			found = found || x == c
			before = x
		case x == '-' && before != 0 && i+1 < len(p) && p[i+1] != ']':
			i++
			to := p[i]
			if to == '\\' {
				i++
				if i >= len(p) {
					return "", false
				}
				to = p[i]
			}
			found = found || before <= c && c <= to
			before = 0
		case x == '[' && i+1 < len(p) && p[i+1] == ':':
			end := strings.IndexByte(p[i+2:], ']')
			if end < 0 {
				return "", false
			}
			name, whole := strings.CutSuffix(p[i+2:i+2+end], ":")
			if !whole { // no closing bracket: match a literal [
				found = found || c == '['
				before = '['
				continue
			}
			is, known := classes[name]
			if !known {
				return "", false
			}
			found = found || is(c)
			before = 0
			i += 2 + end
		default:
			found = found || x == c
			before = x
		}
	}
}
