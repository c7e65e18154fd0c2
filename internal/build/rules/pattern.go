package rules

import (
	"net/url"
	"strings"

	"golang.org/x/text/unicode/norm"
)

// pattern is a compiled From or For: path segments with placeholders, and at most one splat. It matches in one pass
// without backtracking, so its cost is bounded: a placeholder matches the text between its neighbors in a segment, the
// splat matches the rest.
type pattern struct {
	head  []segment // before the splat; all segments if there is none
	splat bool
	pre   string    // literal before the splat in its segment
	post  string    // literal after it, up to the end or to the next slash
	tail  []segment // after the splat's segment
	bare  bool      // the splat is the whole last segment, and also matches nothing
}

// segment is pre :name post. A literal has only pre.
type segment struct{ pre, name, post string }

// compilePattern returns the pattern, or why it is invalid.
func compilePattern(text string) (p pattern, why string) {
	if !strings.HasPrefix(text, "/") {
		return p, "the path must begin with /"
	}
	if len(text) > maxLine {
		return p, "the path is too long"
	}
	if strings.Count(text, "*") > 1 {
		return p, "a path may contain only one *"
	}
	before, after, splat := strings.Cut(text, "*")
	names := map[string]bool{"splat": splat}
	segments := func(text string) (list []segment) {
		for s := range strings.SplitSeq(text, "/") {
			if s == "" {
				continue // double and trailing slashes are ignored
			}
			one, bad := compileSegment(s, names)
			if bad != "" {
				why = bad
				return nil
			}
			list = append(list, one)
		}
		return list
	}
	if !splat {
		p.head = segments(text)
		return p, why
	}
	p.splat = true
	cut := strings.LastIndexByte(before, '/')
	p.head = segments(before[:cut])
	p.pre = unescape(before[cut+1:])
	post, rest, more := strings.Cut(after, "/")
	p.post = unescape(post)
	if more {
		p.tail = segments(rest)
	}
	if strings.Contains(p.pre+p.post, ":") {
		return p, "a segment can't contain both a placeholder and *"
	}
	p.bare = p.pre == "" && p.post == "" && len(p.tail) == 0
	return p, why
}

func compileSegment(s string, names map[string]bool) (segment, string) {
	at := strings.IndexByte(s, ':')
	for at >= 0 && (at+1 == len(s) || !wordByte(s[at+1], true)) { // a colon without a name
		next := strings.IndexByte(s[at+1:], ':')
		if next < 0 {
			at = -1
			break
		}
		at += 1 + next
	}
	if at < 0 {
		return segment{pre: unescape(s)}, ""
	}
	end := at + 1
	for end < len(s) && wordByte(s[end], false) {
		end++
	}
	name, post := s[at+1:end], s[end:]
	switch {
	case names[name]:
		return segment{}, "the placeholder :" + name + " is used twice"
	case strings.Contains(post, ":"):
		return segment{}, "a segment may contain only one placeholder"
	case len(names) > maxNames:
		return segment{}, "there are too many placeholders"
	}
	names[name] = true
	return segment{unescape(s[:at]), name, unescape(post)}, ""
}

func wordByte(c byte, first bool) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' || !first && c >= '0' && c <= '9'
}

// unescape decodes a literal of a rule, percent-encoded or not, to Unicode form NFC.
func unescape(s string) string {
	if plain, err := url.PathUnescape(s); err == nil {
		s = plain
	}
	return norm.NFC.String(s)
}

// static returns the only path that matches, without leading and trailing slashes, if there is only one.
func (p *pattern) static() (string, bool) {
	if p.splat {
		return "", false
	}
	parts := make([]string, len(p.head))
	for i, s := range p.head {
		if s.name != "" {
			return "", false
		}
		parts[i] = s.pre
	}
	return strings.Join(parts, "/"), true
}

// first returns the first segment if it is literal, else "".
func (p *pattern) first() string {
	if len(p.head) > 0 && p.head[0].name == "" {
		return p.head[0].pre
	}
	return ""
}

// match reports whether a decoded path, without leading and trailing slashes, matches, and appends the values of the
// placeholders and the splat to into.
func (p *pattern) match(path string, into []Field) ([]Field, bool) {
	rest, done := path, path == ""
	next := func() (string, bool) {
		if done {
			return "", false
		}
		s, after, more := strings.Cut(rest, "/")
		rest, done = after, !more
		return s, true
	}
	for _, want := range p.head {
		s, ok := next()
		if !ok || !want.match(s, &into) {
			return nil, false
		}
	}
	if !p.splat {
		return into, done
	}
	if p.bare {
		return append(into, Field{"splat", rest}), true
	}
	if done {
		return nil, false
	}
	for i := len(p.tail) - 1; i >= 0; i-- {
		cut := strings.LastIndexByte(rest, '/')
		if cut < 0 || !p.tail[i].match(rest[cut+1:], &into) {
			return nil, false
		}
		rest = rest[:cut]
	}
	if len(rest) < len(p.pre)+len(p.post) || !strings.HasPrefix(rest, p.pre) || !strings.HasSuffix(rest, p.post) {
		return nil, false
	}
	return append(into, Field{"splat", rest[len(p.pre) : len(rest)-len(p.post)]}), true
}

func (s segment) match(part string, into *[]Field) bool {
	if s.name == "" {
		return part == s.pre
	}
	if len(part) <= len(s.pre)+len(s.post) || !strings.HasPrefix(part, s.pre) || !strings.HasSuffix(part, s.post) {
		return false
	}
	*into = append(*into, Field{s.name, part[len(s.pre) : len(part)-len(s.post)]})
	return true
}

// expand replaces :names in text by their values, escaped with escape. Unknown names are kept. It stops when the result
// exceeds most bytes: a rule could repeat a placeholder many times.
func expand(text string, values []Field, escape func(string) string, most int) string {
	if !strings.Contains(text, ":") || len(values) == 0 {
		return text
	}
	var b strings.Builder
	for i := 0; i < len(text) && b.Len() <= most; {
		if text[i] != ':' || i+1 == len(text) || !wordByte(text[i+1], true) {
			b.WriteByte(text[i])
			i++
			continue
		}
		end := i + 1
		for end < len(text) && wordByte(text[end], false) {
			end++
		}
		found := false
		for _, v := range values {
			if v.Name == text[i+1:end] {
				b.WriteString(escape(v.Value))
				found = true
				break
			}
		}
		if !found {
			b.WriteString(text[i:end])
		}
		i = end
	}
	return b.String()
}

// escapePath escapes a value for a path, except slashes.
func escapePath(s string) string { return (&url.URL{Path: s}).EscapedPath() }
