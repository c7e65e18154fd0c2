// Package rules owns redirects, rewrites and headers: reading them from _redirects, _headers,
// netlify.toml, vercel.json and slipway.toml, and finding those that are for a request.
//
// Sources takes the files in and compiles them to the text that a release's manifest has; a Set
// is that text made ready to be asked. docs/redirects.md says what the files mean. The package
// knows no files of a site: package release puts files and rules together.
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

// The limits of a release's rules. Rules beyond them are skipped, and reported as a [Problem].
const (
	maxRedirects = 10_000
	maxDynamic   = 1_000 // redirects with a splat or placeholders
	maxSame      = 1_000 // redirects for one path without either
	maxHeaders   = 500   // header rules
	maxFields    = 5_000 // headers of all rules
	maxLine      = 2_000 // bytes
	maxNames     = 16    // placeholders, query conditions or values of a condition, each, of one rule
	maxProblems  = 100
)

// MaxBytes is how many bytes all rules of a release may have, as Compile returns them.
const MaxBytes = 2 << 20

// MaxFile is how many bytes a file with rules may have.
const MaxFile = configfile.MaxConfig

// Rules hold what a release answers beyond its files. They are immutable like the files.
type Rules struct {
	Redirects []Redirect   `json:"redirects,omitempty"`
	Headers   []HeaderRule `json:"headers,omitempty"`
	Slash     Slash        `json:"slash,omitempty"`
}

// Slash says how the addresses of pages end.
type Slash string

// With AsFiles a page about.html is at /about and about/index.html is at /about/.
const (
	AsFiles Slash = ""
	Always  Slash = "always"
	Never   Slash = "never"
)

// Redirect is a redirect, a rewrite or an error page for the paths that match From, as
// Netlify defines it. The first one that matches answers.
type Redirect struct {
	Source   string   `json:"source"`         // file and line, "_redirects:3"
	Host     string   `json:"host,omitempty"` // of the request; "" is any
	From     string   `json:"from"`           // with * and :placeholders
	To       string   `json:"to,omitempty"`   // a path or an address; "" stays where it is
	Status   int      `json:"status"`
	Force    bool     `json:"force,omitempty"` // also where a file is
	Query    []Field  `json:"query,omitempty"` // parameters the request must have; a value ":name" takes any
	Language []string `json:"language,omitempty"`
	Cookie   []string `json:"cookie,omitempty"`  // any of these must be sent
	Country  []string `json:"country,omitempty"` // of the visitor, one of these ISO 3166 codes
	Never    bool     `json:"never,omitempty"`   // needs a role, which nobody tells us; in old releases also a country
}

// HeaderRule sets headers of the answers to paths that match For.
type HeaderRule struct {
	Source string   `json:"source"`
	Host   string   `json:"host,omitempty"`
	For    string   `json:"for"`
	Set    []Field  `json:"set,omitempty"`
	Unset  []string `json:"unset,omitempty"`
	Auth   []string `json:"auth,omitempty"` // SHA-256, in hex, of each "user:password" that may pass
}

// Field is a name and a value.
type Field struct {
	Name  string `json:"name"`
	Value string `json:"value,omitempty"`
}

// Problem is something in a rule file that is not obeyed.
type Problem struct {
	File  string
	Line  int // from 1; 0 is the whole file
	Text  string
	Fatal bool // without it a path would be open that the file closes, or nothing of the file is known
}

// String returns the problem as a line of a log.
func (p Problem) String() string {
	if p.Line == 0 {
		return p.File + ": " + p.Text
	}
	return fmt.Sprintf("%s line %d: %s", p.File, p.Line, p.Text)
}

// IsFile reports whether a path holds rules: it is read and not served.
func IsFile(path string) bool { return path == "_redirects" || path == "_headers" }

// Sources gathers what a release's files say, in the order of their precedence:
// slipway.toml, _redirects and _headers, netlify.toml, vercel.json.
type Sources struct {
	byFile   map[string]*parser
	fallback *bool

	spare     *parser  // _headers of the repository, where the published folder may have one
	Forward   []string // hosts that rules may forward to
	Countries bool     // whether visitors' countries are known
}

// order is that in which files count.
var order = []string{"slipway.toml", "_redirects", "_headers", "netlify.toml", "vercel.json"}

// parser takes the rules out of one file.
type parser struct {
	file     string
	rules    Rules
	problems []Problem
	fatal    *Problem // the first one
	spa      *bool
}

// fail notes that a release must not be made.
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

// source names a line.
func (p *parser) source(line int) string { return fmt.Sprintf("%s:%d", p.file, line) }

// add notes a redirect, or says why not.
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

// Read takes a _redirects or _headers file in.
func (s *Sources) Read(path string, r io.Reader) error {
	b, err := io.ReadAll(io.LimitReader(r, MaxFile+1))
	if err != nil {
		return err
	}
	s.Take(path, b)
	return nil
}

// Take takes the rules of a file in, by its name.
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

// Spare takes in the _headers of the repository. It counts where the published folder has none, as soon
// as it protects a path: what it closes must not be open because a build left it out.
func (s *Sources) Spare(b []byte) { s.spare = parse("_headers", b) }

// useSpare puts the spare file in its place, or finds out that the published one protects as much.
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

// parse reads a file by its name.
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

// Compile merges all rules. What does not fit is a problem. One that is fatal is the first.
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

// merge puts the rules of all files in the order in which they count.
func (s *Sources) merge() (Rules, []Problem) {
	var all Rules
	var problems []Problem
	for _, name := range order {
		p := s.byFile[name]
		if p == nil {
			continue
		}
		if p.fatal != nil { // first, so that no limit cuts it off
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

// encode returns rules as a manifest holds them, "" for none.
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

// fit cuts what is over a limit.
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

// crowded returns the source of the first header rule that sets more of one path than an
// answer may carry, "" for none. The rules of different paths that meet in one answer are
// not told of.
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

// specificFirst moves a rule that asks for more query parameters to before the rule for
// the same path that would otherwise always answer in its stead: in Netlify's grammar
// their order doesn't matter.
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

// shadows reports whether r, for the same path, answers whatever more would, although
// more asks for more parameters.
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

// Decode returns what Compile wrote, made ready to be asked; nil for no rules.
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

// Fallback returns what rule files say of single-page applications; nil: nothing.
func (s *Sources) Fallback() *bool { return s.fallback }

// Files are the names of the files that may hold rules, in the order in which they count.
func Files() []string { return slices.Clone(order) }
