package htaccess

import (
	"errors"
	"regexp"
	"regexp/syntax"
	"strconv"
	"strings"
	"unicode"
)

var errWeight = errors.New("the patterns of all .htaccess files together are too large")

// newForm compiles a pattern of re2 and adds its weight to that of the others.
func newForm(pattern, but string, noCase bool, limit int, sum *int) (f form, err error) {
	if *sum += weight(pattern) + weight(but); *sum > limit {
		return f, errWeight
	}
	if begins := literal.FindStringSubmatch(pattern); begins != nil && !noCase && !strings.Contains(pattern, "|") {
		f.prefix = begins[1]
	}
	f.steps = 1
	ready := func(text string) (*regexp.Regexp, error) {
		if text == "" {
			return nil, nil
		}
		if noCase {
			text = "(?i)" + text
		}
		n, err := steps(text)
		if err != nil {
			return nil, err
		}
		f.steps += n
		return regexp.Compile(text)
	}
	if f.pattern, err = ready(pattern); err == nil {
		f.but, err = ready(but)
	}
	return f, err
}

// literal matches how a pattern begins that matches only texts with that beginning. The last character may be repeated.
var literal = regexp.MustCompile(`^\^([\w/-]+)[\w/-]`)

// steps estimates, from above, the work of a pattern for each byte of a text. Of a program's states, those can be alive that wait for
// the same character, and those that its branches lead to. Each carries the program's groups.
func steps(pattern string) (int, error) {
	re, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return 0, err
	}
	prog, err := syntax.Compile(re.Simplify())
	if err != nil {
		return 0, err
	}
	branches, most, same := 0, 0, map[rune]int{}
	for i := range prog.Inst {
		switch in := &prog.Inst[i]; in.Op {
		case syntax.InstRune, syntax.InstRune1:
			if len(in.Rune) == 1 {
				r := unicode.ToLower(in.Rune[0])
				same[r]++
				most = max(most, same[r])
				continue
			}
			branches++
		default:
			branches++
		}
	}
	return (branches + most) * (1 + prog.NumCap/32), nil
}

// re2 returns a pattern of PCRE as Go runs it, and what must not match beside: a negative lookahead after a beginning of
// fixed length, or the exception of .well-known. why is empty, or says what Go can't.
func re2(pattern string) (out, but, why string) {
	if len(pattern) > maxRewrite {
		return "", "", "the pattern is too long"
	}
	const end = `(/|$)`
	if i := strings.Index(pattern, `(?!well-known`); i >= 0 && strings.HasSuffix(pattern[:i], `\.`) {
		if j := closing(pattern, i); j > 0 {
			pattern, but = pattern[:i]+pattern[j+1:], `^/?\.well-known`+end
		}
	}
	if at := fixedBefore.FindString(pattern); at != "" && but == "" {
		i := len(at) - len("(?!")
		if j := closing(pattern, i); j > 0 && !alternatives(pattern[j+1:]) {
			but, pattern = pattern[:i]+"(?:"+pattern[len(at):j]+")", pattern[:i]+pattern[j+1:]
		}
	}
	pattern = greedy(pattern)
	if weight(pattern)+weight(but) > maxRewrite*8 {
		return "", "", "the pattern is too large"
	}
	for _, form := range []string{pattern, but} {
		if _, err := regexp.Compile(form); err != nil {
			return "", "", reason(form)
		}
	}
	return pattern, but, ""
}

// reason says what of a pattern Go's regular expressions don't have.
func reason(pattern string) string {
	for _, x := range []struct{ mark, name string }{
		{"(?!", "a lookahead"},
		{"(?=", "a lookahead"},
		{"(?<!", "a lookbehind"},
		{"(?<=", "a lookbehind"},
		{"(?>", "an atomic group"},
		{"(?(", "a conditional group"},
		{"(?R", "recursion"},
	} {
		if strings.Contains(pattern, x.mark) {
			return "the pattern has " + x.name + ", which is not supported"
		}
	}
	if backreference.MatchString(pattern) {
		return "the pattern refers to one of its own groups, which is not supported"
	}
	return "the pattern is not a regular expression that can be run here"
}

var (
	fixedBefore   = regexp.MustCompile(`^\^(?:\\[./_ -]|[\w/ -])*\(\?!`)
	backreference = regexp.MustCompile(`\\[1-9]`)
	assertion     = regexp.MustCompile(`\(\?<?[!=]`)
	repetition    = regexp.MustCompile(`\{(\d+)(?:,(\d*))?\}`)
)

// widened returns a pattern that matches at least what one matches that Go can't run.
func widened(pattern string) (string, bool) {
	for range 20 {
		at := assertion.FindStringIndex(pattern)
		if at == nil {
			break
		}
		end := closing(pattern, at[0])
		if end < 0 {
			return "", false
		}
		pattern = pattern[:at[0]] + pattern[end+1:]
	}
	pattern = strings.ReplaceAll(pattern, "(?>", "(?:")
	pattern = backreference.ReplaceAllString(pattern, ".*")
	out, but, why := re2(pattern)
	return out, why == "" && but == ""
}

// atom returns where the escape or class ends that begins at i; i+1 for any other character.
func atom(pattern string, i int) int {
	switch pattern[i] {
	case '\\':
		return min(i+2, len(pattern))
	case '[':
		i++
		i += len(bracket.FindString(pattern[i:])) // a bracket that is one of the class
		for i < len(pattern) && pattern[i] != ']' {
			if end := strings.Index(pattern[i:], ":]"); end > 0 && strings.HasPrefix(pattern[i:], "[:") {
				i += end + 2
				continue
			}
			i += pick(pattern[i] == '\\', 2, 1)
		}
		return min(i+1, len(pattern))
	}
	return i + 1
}

var bracket = regexp.MustCompile(`^\^?\]?`)

// closing returns where the group ends that begins at i, or -1.
func closing(pattern string, i int) int {
	depth := 0
	for ; i < len(pattern); i = atom(pattern, i) {
		switch pattern[i] {
		case '(':
			depth++
		case ')':
			if depth--; depth == 0 {
				return i
			}
		}
	}
	return -1
}

// alternatives reports whether a pattern has a | outside of its groups.
func alternatives(pattern string) bool {
	depth := 0
	for i := 0; i < len(pattern); i = atom(pattern, i) {
		switch pattern[i] {
		case '(':
			depth++
		case ')':
			depth--
		case '|':
			if depth == 0 {
				return true
			}
		}
	}
	return false
}

// greedy returns a pattern without the + that makes a repetition possessive.
func greedy(pattern string) string {
	var b strings.Builder
	repeated := false
	for i := 0; i < len(pattern); {
		end := atom(pattern, i)
		if repeated && pattern[i] == '+' {
			repeated = false
		} else {
			b.WriteString(pattern[i:end])
			repeated = end == i+1 && strings.IndexByte("*+?}", pattern[i]) >= 0
		}
		i = end
	}
	return b.String()
}

// weight is how large a pattern is when its repetitions are written out.
func weight(pattern string) int {
	n := len(pattern)
	for _, m := range repetition.FindAllStringSubmatch(pattern, -1) {
		least, _ := strconv.Atoi(m[1])
		most, _ := strconv.Atoi(m[2])
		n *= min(max(least, most, 1), 1000)
		n = min(n, 1<<30)
	}
	n += 8 * strings.Count(strings.ToLower(pattern), `\p`) * len(pattern)
	return n
}
