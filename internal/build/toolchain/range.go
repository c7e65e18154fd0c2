package toolchain

import "strings"

// versions is a set of versions as npm writes them in engines and dependencies: the
// grammar of node-semver, strict, without its includePrerelease. Each inner list must
// hold whole, one of the outer ones suffices. docs/adr/0028-small-readers.md has the libraries
// that read some ranges in another way than npm.
type versions [][]comparator

type comparator struct {
	op string // "=", "<", "<=", ">", ">="
	version
}

const maxRange = 256 // bytes; longer ones are not written by people

// parseRange reads a range. "" and "*" hold every release.
func parseRange(s string) (versions, bool) {
	if len(s) > maxRange {
		return nil, false
	}
	s = strings.Join(strings.FieldsFunc(s, func(r rune) bool { return r == ' ' || r == '\t' || r == '\n' || r == '\r' }), " ")
	var all versions
	for alternative := range strings.SplitSeq(s, "||") {
		set, ok := parseSet(strings.Trim(alternative, " "))
		if !ok {
			return nil, false
		}
		all = append(all, set)
	}
	return all, true
}

// has reports whether v is in the set. A pre-release is only where a comparator names
// one of the same three numbers: ^20.0.0 does not mean 21.0.0-nightly.
func (r versions) has(v version) bool {
	for _, set := range r {
		if holds(set, v) {
			return true
		}
	}
	return false
}

func holds(set []comparator, v version) bool {
	named := len(v.pre) == 0
	for _, c := range set {
		o := v.compare(c.version)
		ok := false
		switch c.op {
		case "=":
			ok = o == 0
		case "<":
			ok = o < 0
		case "<=":
			ok = o <= 0
		case ">":
			ok = o > 0
		case ">=":
			ok = o >= 0
		}
		if !ok {
			return false
		}
		if len(c.pre) > 0 && c.major == v.major && c.minor == v.minor && c.patch == v.patch {
			named = true
		}
	}
	return named
}

func parseSet(s string) ([]comparator, bool) {
	if from, to, ok := strings.Cut(s, " - "); ok {
		return hyphen(from, to)
	}
	var set []comparator
	for s = strings.TrimLeft(s, " "); s != ""; s = strings.TrimLeft(s, " ") {
		op := ""
		for _, o := range []string{">=", "<=", "~>", ">", "<", "=", "~", "^"} {
			if rest, ok := strings.CutPrefix(s, o); ok {
				op, s = o, strings.TrimLeft(rest, " ")
				break
			}
		}
		word, rest, _ := strings.Cut(s, " ")
		s = rest
		p, ok := parsePartial(word)
		if !ok {
			return nil, false
		}
		set = append(set, expand(op, p)...)
	}
	return set, true
}

// hyphen is "1.2 - 2.3": from the lowest that the left could mean to the highest that
// the right could.
func hyphen(from, to string) ([]comparator, bool) {
	lo, ok1 := parsePartial(strings.Trim(from, " "))
	hi, ok2 := parsePartial(strings.Trim(to, " "))
	if !ok1 || !ok2 {
		return nil, false
	}
	var set []comparator
	if lo.parts > 0 {
		set = append(set, comparator{">=", lo.version})
	}
	switch hi.parts {
	case 0:
	case 3:
		set = append(set, comparator{"<=", hi.version})
	default:
		set = append(set, comparator{"<", hi.next(hi.parts)})
	}
	return set, true
}

// next is the lowest version, pre-releases included, after all that share the first n
// numbers of p.
func (p partial) next(n int) version {
	v := version{pre: []string{"0"}}
	switch n {
	case 1:
		v.major = p.major + 1
	case 2:
		v.major, v.minor = p.major, p.minor+1
	case 3:
		v.major, v.minor, v.patch = p.major, p.minor, p.patch+1
	}
	return v
}

// expand turns one operator with a partial version into plain comparisons.
func expand(op string, p partial) []comparator {
	never := []comparator{{"<", version{pre: []string{"0"}}}}
	low := comparator{">=", p.version}
	if p.parts == 0 {
		if op == ">" || op == "<" {
			return never
		}
		return nil
	}
	switch op {
	case "~", "~>":
		return []comparator{low, {"<", p.next(min(p.parts, 2))}}
	case "^":
		n := 1
		if p.major == 0 && p.parts > 1 {
			n = 2
			if p.minor == 0 && p.parts > 2 {
				n = 3
			}
		}
		return []comparator{low, {"<", p.next(n)}}
	case ">=":
		return []comparator{low}
	}
	if p.parts == 3 {
		if op == "" {
			op = "="
		}
		return []comparator{{op, p.version}}
	}
	after := p.next(p.parts)
	switch op {
	case ">":
		after.pre = nil
		return []comparator{{">=", after}}
	case "<=":
		return []comparator{{"<", after}}
	case "<":
		v := p.version
		v.pre = []string{"0"}
		return []comparator{{"<", v}}
	}
	return []comparator{low, {"<", after}}
}
