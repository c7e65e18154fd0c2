// Package rules owns redirects, rewrites and headers: parsing them from _redirects, _headers, netlify.toml, vercel.json
// and slipway.toml, and finding those that match a request.
//
// Sources parses the files and compiles them to the text that a release's manifest contains; a Set is that text indexed
// for lookups. docs/redirects.md describes the files. The package doesn't know a site's files: package release combines
// files and rules.
package rules

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"slipway/internal/build/configfile"
	"slipway/internal/platform/text"
)

// Limits of a release's rules. Rules beyond them are skipped and reported as a [Problem].
const (
	maxRedirects = 10_000
	maxDynamic   = 1_000 // redirects with a splat or placeholders
	maxSame      = 1_000 // redirects of one path with neither
	maxHeaders   = 500   // header rules
	maxFields    = 5_000 // headers of all rules
	maxLine      = 2_000 // bytes
	maxNames     = 16    // placeholders, query conditions, or values of a condition, per rule
	maxProblems  = 100
)

// MaxBytes caps the bytes of a release's compiled rules.
const MaxBytes = 2 << 20

// MaxFile caps the bytes of a rule file.
const MaxFile = configfile.MaxConfig

// Rules holds the redirect and header rules of a release. They are immutable.
type Rules struct {
	Redirects []Redirect   `json:"redirects,omitempty"`
	Headers   []HeaderRule `json:"headers,omitempty"`
	Slash     Slash        `json:"slash,omitempty"`
}

// Slash says whether URLs of pages end with a slash.
type Slash string

// With AsFiles, a page about.html is at /about, and about/index.html is at /about/.
const (
	AsFiles Slash = ""
	Always  Slash = "always"
	Never   Slash = "never"
)

// Redirect is a redirect, a rewrite or an error page for paths that match From, as Netlify defines it. The first match
// answers.
type Redirect struct {
	Source   string   `json:"source"`         // file and line, such as "_redirects:3"
	Host     string   `json:"host,omitempty"` // of the request; "" matches all
	From     string   `json:"from"`           // with * and :placeholders
	To       string   `json:"to,omitempty"`   // path or URL; "" means the requested path
	Status   int      `json:"status"`
	Force    bool     `json:"force,omitempty"` // also if a file exists
	Query    []Field  `json:"query,omitempty"` // parameters that the request must have; a value ":name" matches any value
	Language []string `json:"language,omitempty"`
	Cookie   []string `json:"cookie,omitempty"`  // the request must have one of these
	Country  []string `json:"country,omitempty"` // ISO 3166 codes; the visitor must be in one of these countries
	Never    bool     `json:"never,omitempty"`   // never applies, because it needs a role, which isn't known; in old releases also a country
}

// HeaderRule adds headers to answers for paths that match For.
type HeaderRule struct {
	Source string   `json:"source"`
	Host   string   `json:"host,omitempty"`
	For    string   `json:"for"`
	Set    []Field  `json:"set,omitempty"`
	Unset  []string `json:"unset,omitempty"`
	Auth   []string `json:"auth,omitempty"` // SHA-256, in hex, of each "user:password" with access
}

// Field is a name and a value.
type Field struct {
	Name  string `json:"name"`
	Value string `json:"value,omitempty"`
}

// Problem is a rule, or part of a file, that is skipped.
type Problem struct {
	File  string
	Line  int // from 1; 0 means the whole file
	Text  string
	Fatal bool // skipping it would open a protected path, or the whole file is unreadable
}

// String returns the problem as a log line.
func (p Problem) String() string {
	if p.Line == 0 {
		return p.File + ": " + p.Text
	}
	return fmt.Sprintf("%s line %d: %s", p.File, p.Line, p.Text)
}

// IsFile reports whether a path is a rule file, which is read but not served.
func IsFile(path string) bool { return path == "_redirects" || path == "_headers" }

// Sources collects the rules of a release's files. Their precedence is: slipway.toml, _redirects and _headers,
// netlify.toml, vercel.json.
type Sources struct {
	byFile   map[string]*parser
	fallback *bool

	spare     *parser  // the repository's own _headers, see Spare
	Forward   []string // hosts that rules may proxy to
	Countries bool     // whether visitors' countries are known
}

// order lists the files by precedence.
var order = []string{"slipway.toml", "_redirects", "_headers", "netlify.toml", "vercel.json"}

// parser parses the rules of one file.
type parser struct {
	file     string
	rules    Rules
	problems []Problem
	fatal    *Problem // the first fatal one
	spa      *bool
}

// fail records a fatal problem: the release must not be made.
func (p *parser) fail(line int, format string, args ...any) {
	if p.fatal == nil {
		p.fatal = &Problem{p.file, line, fmt.Sprintf(format, args...), true}
	}
}

func (p *parser) problem(line int, format string, args ...any) {
	if len(p.problems) <= maxProblems {
		p.problems = append(p.problems, Problem{p.file, line, fmt.Sprintf(format, args...), false})
	}
}

// source names a line of the file.
func (p *parser) source(line int) string { return fmt.Sprintf("%s:%d", p.file, line) }

// add adds a redirect, or records why not.
func (p *parser) add(line int, r Redirect) {
	if len(p.rules.Redirects) >= maxRedirects {
		if len(p.rules.Redirects) == maxRedirects {
			p.problem(line, "more than %d rules: this and the following ones are ignored", maxRedirects)
		}
		return
	}
	r.Source = p.source(line)
	if why := r.check(); why != "" {
		p.problem(line, "%s; the rule is ignored", why)
		return
	}
	p.rules.Redirects = append(p.rules.Redirects, r)
}

func (p *parser) addHeaders(line int, h HeaderRule) {
	h.Source = p.source(line)
	if _, why := compilePattern(h.For); why != "" {
		p.ignore(line, h.Auth != nil, why)
		return
	}
	if len(h.Set)+len(h.Unset)+len(h.Auth) > 0 {
		p.rules.Headers = append(p.rules.Headers, h)
	}
}

// Read parses a _redirects or _headers file.
func (s *Sources) Read(path string, r io.Reader) error {
	b, err := io.ReadAll(io.LimitReader(r, MaxFile+1))
	if err != nil {
		return err
	}
	s.Take(path, b)
	return nil
}

// Take parses a rule file, by its name.
func (s *Sources) Take(file string, b []byte) {
	p := parse(file, b)
	if s.byFile == nil {
		s.byFile = map[string]*parser{}
	}
	s.byFile[file] = p
	if p.spa != nil && (s.fallback == nil || file == "slipway.toml") {
		s.fallback = p.spa
	}
}

// Spare sets the repository's own _headers. It is used if the published folder has none and it protects a path: a
// protected path must not become open because the build didn't copy the file.
func (s *Sources) Spare(b []byte) { s.spare = parse("_headers", b) }

// useSpare uses the spare file, or checks that the published one protects the same paths.
func (s *Sources) useSpare() []Problem {
	if s.spare == nil {
		return nil
	}
	var protects []HeaderRule
	for _, h := range s.spare.rules.Headers {
		if h.Auth != nil {
			protects = append(protects, h)
		}
	}
	own := s.byFile["_headers"]
	if own != nil {
		for _, h := range protects {
			same := func(o HeaderRule) bool { return o.Auth != nil && o.Host == h.Host && o.For == h.For }
			if !slices.ContainsFunc(own.rules.Headers, same) {
				s.spare.fail(0, "the file of the repository protects %s, and that of the published folder doesn't", text.Line(h.For, 200))
			}
		}
	}
	switch {
	case s.spare.fatal != nil:
		return []Problem{*s.spare.fatal}
	case own != nil:
		return nil
	case protects == nil:
		return []Problem{{File: "_headers", Text: "the published folder has no such file, so these rules are not applied"}}
	}
	if s.byFile == nil {
		s.byFile = map[string]*parser{}
	}
	s.byFile["_headers"] = s.spare
	return []Problem{{File: "_headers", Text: "the published folder has no such file, so that of the repository applies"}}
}

// parse parses a file by its name.
func parse(file string, b []byte) *parser {
	p := &parser{file: file}
	written, form := configfile.Decode(b)
	if form != "" {
		p.problem(0, "it is read as %s; save it as UTF-8", form)
	}
	switch first, last := configfile.Conflict(written); {
	case len(b) > MaxFile:
		p.fail(0, "it is larger than %s; shorten it with splats and placeholders", text.Size(MaxFile))
	case first > 0:
		p.fail(first, "lines %d to %d are a merge conflict; keep one side of it", first, last)
	case file == "_redirects":
		p.redirectLines(written)
	case file == "_headers":
		p.headerLines(written)
	case file == "vercel.json":
		p.vercel(written)
	default:
		p.table(written)
	}
	return p
}

// Compile merges all rules. Rules over a limit are reported as problems; a fatal problem comes first.
func (s *Sources) Compile() (string, []Problem) {
	spare := s.useSpare()
	all, problems := s.merge()
	problems = append(problems, spare...)
	problems = append(problems, s.unforwarded(all)...)
	problems = append(problems, s.nowhere(all)...)
	text, tooMuch := encode(all)
	if tooMuch != nil {
		problems = append(problems, *tooMuch)
	}
	slices.SortStableFunc(problems, func(a, b Problem) int {
		switch {
		case a.Fatal == b.Fatal:
			return 0
		case a.Fatal:
			return -1
		}
		return 1
	})
	return text, problems
}

func (s *Sources) nowhere(all Rules) (problems []Problem) {
	for _, r := range all.Redirects {
		if len(r.Country) == 0 || s.Countries || len(problems) >= maxProblems {
			continue
		}
		file, line, _ := strings.Cut(r.Source, ":")
		n, _ := strconv.Atoi(line)
		problems = append(problems, Problem{File: file, Line: n, Text: "no database of countries is configured here, so the rule never applies"})
	}
	return problems
}

func (s *Sources) unforwarded(all Rules) (problems []Problem) {
	for _, r := range all.Redirects {
		if r.Status != 200 || !IsAddress(r.To) || len(problems) >= maxProblems {
			continue
		}
		_, rest, _ := strings.Cut(r.To, "://")
		host, _, _ := strings.Cut(rest, "/")
		if !slices.Contains(s.Forward, strings.ToLower(host)) {
			file, line, _ := strings.Cut(r.Source, ":")
			n, _ := strconv.Atoi(line)
			problems = append(problems, Problem{
				File: file, Line: n,
				Text: fmt.Sprintf("requests are forwarded to %s only when the site's serving settings allow that host", text.Line(host, 200)),
			})
		}
	}
	return problems
}

// merge returns the rules of all files by precedence.
func (s *Sources) merge() (Rules, []Problem) {
	var all Rules
	var problems []Problem
	for _, name := range order {
		p := s.byFile[name]
		if p == nil {
			continue
		}
		if p.fatal != nil { // first, so that no limit drops it
			problems = slices.Insert(problems, 0, *p.fatal)
		}
		problems = append(problems, p.problems...)
		all.Redirects = append(all.Redirects, p.rules.Redirects...)
		all.Headers = append(all.Headers, p.rules.Headers...)
		all.Slash = cmp.Or(all.Slash, p.rules.Slash)
	}
	all.Redirects = specificFirst(all.Redirects)
	all, problems = fit(all, problems)
	problems = append(problems, loops(all)...)
	if len(problems) > maxProblems {
		more := len(problems) - maxProblems
		problems = append(problems[:maxProblems], Problem{File: "Rules", Text: fmt.Sprintf("%d more problems", more)})
	}
	return all, problems
}

// encode returns the form of rules in a manifest; "" if there are none.
func encode(all Rules) (string, *Problem) {
	if len(all.Redirects)+len(all.Headers) == 0 && all.Slash == AsFiles {
		return "", nil
	}
	b, err := json.Marshal(all)
	if err != nil || len(b) > MaxBytes {
		return "", &Problem{
			File: "Rules", Fatal: true,
			Text: fmt.Sprintf("all rules together are larger than %s", text.Size(MaxBytes)),
		}
	}
	return string(b), nil
}

// fit drops rules over the limits.
func fit(all Rules, problems []Problem) (Rules, []Problem) {
	over := func(source, text string) {
		file, _, _ := strings.Cut(source, ":")
		problems = append(problems, Problem{File: file, Text: text})
	}
	if len(all.Redirects) > maxRedirects {
		over(all.Redirects[maxRedirects].Source,
			fmt.Sprintf("more than %d rules in all files: those from %s on are ignored", maxRedirects,
				all.Redirects[maxRedirects].Source))
		all.Redirects = all.Redirects[:maxRedirects]
	}
	dynamic, cut := 0, ""
	all.Redirects = slices.DeleteFunc(all.Redirects, func(r Redirect) bool {
		if strings.ContainsAny(r.From, "*:") {
			dynamic++
		} else {
			return false
		}
		if dynamic > maxDynamic {
			cut = cmp.Or(cut, r.Source)
		}
		return dynamic > maxDynamic
	})
	if cut != "" {
		over(cut, fmt.Sprintf("more than %d rules with * or :placeholders: those from %s on are ignored", maxDynamic, cut))
	}
	same := map[string]int{}
	cut = ""
	all.Redirects = slices.DeleteFunc(all.Redirects, func(r Redirect) bool {
		if p, why := compilePattern(r.From); why == "" {
			if path, only := p.static(); only {
				same[path]++
				if same[path] > maxSame {
					cut = cmp.Or(cut, r.Source)
					return true
				}
			}
		}
		return false
	})
	if cut != "" {
		over(cut, fmt.Sprintf("more than %d rules for one path: those from %s on are ignored", maxSame, cut))
	}
	fields := 0
	for i, h := range all.Headers {
		fields += len(h.Set) + len(h.Unset) + len(h.Auth)
		if i >= maxHeaders || fields > maxFields {
			over(h.Source,
				fmt.Sprintf("more than %d header rules or %d headers: those from %s on are ignored", maxHeaders,
					maxFields, h.Source))
			if i := slices.IndexFunc(all.Headers[i:], func(h HeaderRule) bool { return h.Auth != nil }); i >= 0 {
				problems = append([]Problem{{
					File: h.Source, Fatal: true,
					Text: fmt.Sprintf("more than %d header rules or %d headers: one beyond them protects a path", maxHeaders, maxFields),
				}}, problems...)
			}
			all.Headers = all.Headers[:i]
			break
		}
	}
	if cut := crowded(all.Headers); cut != "" {
		over(cut,
			fmt.Sprintf("more than %d headers or %s for one path: they end before %s", maxAnswerFields,
				text.Size(maxAnswerBytes), cut))
	}
	return all, problems
}

// crowded returns the source of the first header rule that sets too many headers for one path, or "". It doesn't detect
// rules of different paths that match the same request.
func crowded(rules []HeaderRule) string {
	bytes, names := map[string]int{}, map[string]map[string]bool{}
	for _, h := range rules {
		at := h.Host + h.For
		if names[at] == nil {
			names[at] = map[string]bool{}
		}
		for _, f := range h.Set {
			bytes[at] += len(f.Name) + len(f.Value)
			names[at][f.Name] = true
		}
		if bytes[at] > maxAnswerBytes || len(names[at]) > maxAnswerFields {
			return h.Source
		}
	}
	return ""
}

// specificFirst moves a rule with more query parameters before a rule of the same path that would always match first:
// at Netlify their order doesn't matter.
func specificFirst(list []Redirect) []Redirect {
	groups, before := map[string][]int{}, map[int][]Redirect{}
	moved := map[int]bool{}
	for i, r := range list {
		key := r.Host + r.From
		for _, at := range groups[key] {
			if list[at].shadows(r) {
				before[at] = append(before[at], r)
				moved[i] = true
				break
			}
		}
		if g := groups[key]; !moved[i] && len(g) < 32 {
			groups[key] = append(g, i)
		}
	}
	out := make([]Redirect, 0, len(list))
	for i, r := range list {
		slices.SortStableFunc(before[i], func(a, b Redirect) int { return cmp.Compare(len(b.Query), len(a.Query)) })
		out = append(out, before[i]...)
		if !moved[i] {
			out = append(out, r)
		}
	}
	return out
}

// shadows reports whether r, of the same path, matches every request that more matches, although more requires more
// parameters.
func (r Redirect) shadows(more Redirect) bool {
	if len(more.Query) <= len(r.Query) || r.Force != more.Force || r.Never || len(r.Language)+len(r.Cookie)+len(r.Country) > 0 {
		return false
	}
	for _, q := range r.Query {
		if !slices.ContainsFunc(more.Query, func(f Field) bool {
			return f.Name == q.Name && (strings.HasPrefix(q.Value, ":") || f.Value == q.Value)
		}) {
			return false
		}
	}
	return true
}

var errRules = errors.New("malformed rules")

// Decode returns an index of rules that Compile wrote; nil if there are none.
func Decode(text string) (*Set, error) {
	if text == "" {
		return nil, nil
	}
	var r Rules
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return nil, errRules
	}
	return newSet(r, int64(len(text)))
}

// Fallback returns the rule files' setting for single-page applications; nil if it isn't set.
func (s *Sources) Fallback() *bool { return s.fallback }

// Files lists the names of rule files by precedence.
func Files() []string { return slices.Clone(order) }
