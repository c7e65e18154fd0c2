package rules

import "strings"

// With returns the rules with these files (name → content) instead of those of the same names, and their problems. s
// may be nil.
func (s *Set) With(files map[string]string) (*Set, []Problem) {
	n := Sources{byFile: map[string]*parser{}}
	of := func(source string) *parser {
		file, _, _ := strings.Cut(source, ":")
		if _, replaced := files[file]; replaced {
			return nil
		}
		if n.byFile[file] == nil {
			n.byFile[file] = &parser{file: file}
		}
		return n.byFile[file]
	}
	form := AsFiles
	if s != nil {
		form = s.Slash
		for _, r := range s.Redirects {
			if p := of(r.Source); p != nil {
				p.rules.Redirects = append(p.rules.Redirects, r)
			}
		}
		for _, h := range s.Headers {
			if p := of(h.Source); p != nil {
				p.rules.Headers = append(p.rules.Headers, h)
			}
		}
	}
	for file, text := range files {
		n.Take(file, []byte(text))
	}
	all, problems := n.merge()
	if all.Slash == AsFiles {
		all.Slash = form
	}
	text, tooMuch := encode(all)
	if tooMuch != nil {
		problems = append(problems, *tooMuch)
	}
	set, _ := Decode(text) // Compile just wrote it
	return set, problems
}
