package release

import (
	"slices"
	"strings"
)

// WithRules returns the release as it would answer if these rule files (name → content)
// stood in the place of its own of the same names, and what of them would not be obeyed.
func (t *Tree) WithRules(files map[string]string) (*Tree, []Problem) {
	s := ruleSources{byFile: map[string]*ruleParser{}}
	of := func(source string) *ruleParser {
		file, _, _ := strings.Cut(source, ":")
		if _, replaced := files[file]; replaced {
			return nil
		}
		if s.byFile[file] == nil {
			s.byFile[file] = &ruleParser{file: file}
		}
		return s.byFile[file]
	}
	form := AsFiles
	if t.rules != nil {
		form = t.rules.Slash
		for _, r := range t.rules.Redirects {
			if p := of(r.Source); p != nil {
				p.rules.Redirects = append(p.rules.Redirects, r)
			}
		}
		for _, h := range t.rules.Headers {
			if p := of(h.Source); p != nil {
				p.rules.Headers = append(p.rules.Headers, h)
			}
		}
	}
	for file, text := range files {
		s.take(file, []byte(text))
	}
	all, problems := s.merge()
	if all.Slash == AsFiles {
		all.Slash = form
	}
	n := *t
	text, tooMuch := encodeRules(all)
	if tooMuch != nil {
		problems = append(problems, *tooMuch)
	}
	n.rules, _ = decodeRules(text) // what was just written
	return &n, problems
}

// Served returns the release as the settings of its site want it served. singlePage is
// "on" or "off", slash "always" or "never"; anything else leaves what the release says.
func (t *Tree) Served(singlePage, slash string) *Tree {
	form := Slash(slash)
	if singlePage != "on" && singlePage != "off" && form != Always && form != Never {
		return t
	}
	n := *t
	if form == Always || form == Never {
		n.slash = form
	}
	switch singlePage {
	case "off":
		n.fallback = ""
	case "on":
		for _, page := range []string{"200.html", "index.html"} {
			if n.fallback == "" && t.has(page) {
				n.fallback = page
			}
		}
	}
	return &n
}

// RuleFiles are the names of the files that may hold rules, in the order in which they count.
func RuleFiles() []string { return slices.Clone(ruleOrder) }

// Rules returns the release's rules. They are not to be changed.
func (t *Tree) Rules() Rules {
	if t.rules == nil {
		return Rules{}
	}
	return t.rules.Rules
}
