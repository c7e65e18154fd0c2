package rules

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	"golang.org/x/text/unicode/norm"
)

// Limits of what header rules add to one answer. The rest is left out.
const (
	maxAnswerFields = 100
	maxAnswerBytes  = 16 << 10
)

// Head holds what header rules add to an answer.
type Head struct {
	Set     []Field  // headers
	Unset   []string // headers to remove
	Auth    []string // if not nil: SHA-256 of each user:password with access
	Headers []string // header rules that apply, such as "_headers:3"
}

// HeadOf returns what the header rules add for a path. file is the file that answers, or "". Rules match the requested
// path or the file's path, so that a page is protected under all its URLs. Values of the same name are joined, as at
// Netlify and Cloudflare.
func (s *Set) HeadOf(host, name, file string) (a Head) {
	name, file = norm.NFC.String(name), norm.NFC.String(file) // patterns are in the same form
	bytes := 0
	more := map[string][]string{} // further values of fields in a.Set, joined at the end
	var labels []string
	split := func() []string {
		if labels == nil {
			labels = strings.Split(host, ".")
		}
		return labels
	}
	for i := range s.headers {
		h, m := &s.Headers[i], &s.headers[i]
		values, ok := m.onHost(split, nil)
		if !ok {
			continue
		}
		got, ok := m.match(name, values)
		if !ok && file != "" {
			got, ok = m.match(file, values)
		}
		if !ok {
			continue
		}
		a.Headers = append(a.Headers, h.Source)
		if h.Auth != nil {
			a.Auth = append(a.Auth, h.Auth...)
		}
		for _, name := range h.Unset {
			a.Set = slices.DeleteFunc(a.Set, func(f Field) bool { return f.Name == name })
			delete(more, name)
			if len(a.Unset) < maxAnswerFields {
				a.Unset = append(a.Unset, name)
			}
		}
		for _, f := range h.Set {
			if bytes > maxAnswerBytes {
				break
			}
			value := expand(f.Value, got, escapePath, maxAnswerBytes-bytes)
			bytes += len(f.Name) + len(value)
			if bytes > maxAnswerBytes {
				break
			}
			if slices.ContainsFunc(a.Set, func(have Field) bool { return have.Name == f.Name }) {
				more[f.Name] = append(more[f.Name], value)
			} else if len(a.Set) < maxAnswerFields {
				a.Set = append(a.Set, Field{f.Name, value})
			}
		}
	}
	for i, f := range a.Set {
		if len(more[f.Name]) > 0 {
			a.Set[i].Value = f.Value + ", " + strings.Join(more[f.Name], ", ")
		}
	}
	return a
}

// MaxHops caps consecutive redirects.
const MaxHops = 10

// loops returns warnings about rules for single paths that form a redirect loop. The loop is broken at runtime.
func loops(all Rules) []Problem {
	to := map[string]string{}
	source := map[string]string{}
	for _, r := range all.Redirects {
		p, why := compilePattern(r.From)
		from, single := p.static()
		if why != "" || !single || r.Status == 200 || r.Status >= 400 || r.Host != "" ||
			len(r.Query)+len(r.Language)+len(r.Cookie)+len(r.Country) > 0 ||
			IsAddress(r.To) ||
			strings.Contains(r.To, "?") {
			continue
		}
		if _, seen := to[from]; seen {
			continue
		}
		if plain, err := url.PathUnescape(pathOf(r.To)); err == nil {
			to[from], source[from] = strings.Trim(plain, "/"), r.Source
		}
	}
	var problems []Problem
	for _, r := range all.Redirects { // in the order of the files
		p, _ := compilePattern(r.From)
		begin, single := p.static()
		if !single || source[begin] != r.Source {
			continue
		}
		at := begin
		for range MaxHops {
			next, more := to[at]
			if !more {
				break
			}
			at = next
			if at == begin {
				file, line, _ := strings.Cut(r.Source, ":")
				n := 0
				fmt.Sscan(line, &n)
				problems = append(problems, Problem{File: file, Line: n, Text: "the redirect leads back to itself; it is ignored"})
				break
			}
		}
	}
	return problems
}
