package rules

import (
	"net/url"
	"slices"
	"strings"
)

// Set is an index of Rules. A map finds rules for single paths; those with a splat or placeholders are tried in order
// if their first segment matches.
type Set struct {
	Rules
	redirects []matcher
	headers   []matcher
	static    map[string][]int32 // redirects of single paths, by path
	dynamic   map[string][]int32 // redirects by first segment; "" if that isn't literal
	cookies   map[string]bool    // names in cookie conditions
	Forced    bool               // whether any redirect applies even if a file exists
	Country   bool               // whether any rule depends on the visitor's country
	text      int64
}

type matcher struct {
	pattern
	host []segment // labels; nil matches all
	// inside is the redirect's target up to its splat if it is below the source, such as /he/ for "/* /he/:splat", else
	// "". The redirect doesn't apply to paths that begin with it, which would loop.
	inside string
}

func newSet(r Rules, text int64) (*Set, error) {
	if len(r.Redirects) > maxRedirects || len(r.Headers) > maxHeaders {
		return nil, errRules
	}
	s := &Set{Rules: r, static: map[string][]int32{}, dynamic: map[string][]int32{}, cookies: map[string]bool{}, text: text}
	for i := range r.Redirects {
		m, ok := newMatcher(r.Redirects[i].Host, r.Redirects[i].From)
		if !ok || r.Redirects[i].check() != "" && !r.Redirects[i].Never {
			return nil, errRules
		}
		m.inside = r.Redirects[i].inside()
		s.redirects = append(s.redirects, m)
		for _, name := range r.Redirects[i].Cookie {
			s.cookies[name] = true
		}
		s.Forced = s.Forced || r.Redirects[i].Force
		s.Country = s.Country || len(r.Redirects[i].Country) > 0
		if path, ok := m.static(); ok {
			s.static[path] = append(s.static[path], int32(i))
		} else {
			s.dynamic[m.first()] = append(s.dynamic[m.first()], int32(i))
		}
	}
	for _, h := range r.Headers {
		m, ok := newMatcher(h.Host, h.For)
		if !ok {
			return nil, errRules
		}
		s.headers = append(s.headers, m)
	}
	return s, nil
}

func newMatcher(host, path string) (matcher, bool) {
	p, why := compilePattern(path)
	m := matcher{pattern: p}
	if why != "" {
		return m, false
	}
	if host != "" {
		names := map[string]bool{}
		for label := range strings.SplitSeq(host, ".") {
			one, bad := compileSegment(label, names)
			if bad != "" {
				return m, false
			}
			m.host = append(m.host, one)
		}
	}
	return m, true
}

// inside returns the redirect's target up to its splat if it is on the same site and below the source, else "".
func (r *Redirect) inside() string {
	from, splat := strings.CutSuffix(r.From, "/*")
	to, rest, named := strings.Cut(r.To, ":")
	if !splat || !named || rest != "splat" || r.Status == 200 || r.Status >= 400 || strings.ContainsAny(to, "?#") ||
		strings.Contains(from, ":") {
		return ""
	}
	there, _, _ := Tidy("/" + strings.TrimLeft(unescape(to), "/"))
	here, _, _ := Tidy(unescape(from) + "/")
	if there == here || here != "" && !strings.HasPrefix(there, here+"/") || !strings.HasSuffix(to, "/") {
		return ""
	}
	return there + "/"
}

// onHost reports whether the rule is for the host with these labels, and appends the values of its placeholders to
// into.
func (m *matcher) onHost(labels func() []string, into []Field) ([]Field, bool) {
	if m.host == nil {
		return into, true
	}
	have := labels()
	if len(have) != len(m.host) {
		return nil, false
	}
	for i, want := range m.host {
		if !want.match(have[i], &into) {
			return nil, false
		}
	}
	return into, true
}

// Memory returns about how many bytes the rules take.
func (s *Set) Memory() int64 {
	if s == nil {
		return 0
	}
	return 3*s.text + 300*int64(len(s.redirects)+len(s.headers))
}

// Candidates yields the indexes of redirects that may match a path, in order.
func (s *Set) Candidates(name string) func(yield func(int) bool) {
	first, _, _ := strings.Cut(name, "/")
	lists := [3][]int32{s.static[name], s.dynamic[first], s.dynamic[""]}
	if first == "" {
		lists[1] = nil
	}
	return func(yield func(int) bool) {
		for {
			next := -1
			for i, l := range lists {
				if len(l) > 0 && (next < 0 || l[0] < lists[next][0]) {
					next = i
				}
			}
			if next < 0 || !yield(int(lists[next][0])) {
				return
			}
			lists[next] = lists[next][1:]
		}
	}
}

// Query holds a request's parameters, parsed at the first use.
type Query struct {
	Raw    string
	parsed url.Values
}

func (q *Query) get(name string) (string, bool) {
	if q.parsed == nil {
		q.parsed, _ = url.ParseQuery(q.Raw) // invalid parameters are dropped
	}
	v, ok := q.parsed[name]
	if !ok {
		return "", false
	}
	return v[0], true
}

// Matches reports whether a redirect matches the request, returns the values of its placeholders, and adds the headers
// that this depends on to vary. The values are in buf if they fit.
func (s *Set) Matches(i int, name string, q *Request, v *Visitor, params *Query, vary *Vary, buf []Field) ([]Field, bool) {
	r, m := &s.Redirects[i], &s.redirects[i]
	if r.Never {
		return nil, false
	}
	values, ok := m.onHost(func() []string { return v.on(q) }, buf[:0])
	if !ok {
		return nil, false
	}
	if values, ok = m.match(name, values); !ok || m.inside != "" && strings.HasPrefix(name+"/", m.inside) {
		return nil, false
	}
	for _, want := range r.Query {
		got, ok := params.get(want.Name)
		capture, isName := strings.CutPrefix(want.Value, ":")
		switch {
		case !ok, !isName && got != want.Value:
			return nil, false
		case isName:
			values = append(values, Field{capture, got})
		}
	}
	if len(r.Country) > 0 {
		vary.Country = true
		if !slices.Contains(r.Country, q.Country) {
			return nil, false
		}
	}
	if len(r.Language) > 0 {
		vary.language = true
		if !v.speaks(q, r.Language) {
			return nil, false
		}
	}
	if len(r.Cookie) > 0 {
		vary.cookie = true
		if !v.sends(q, r.Cookie, s.cookies) {
			return nil, false
		}
	}
	return values, true
}

// Vary says on which request headers an answer depends, and whether on the visitor's country.
type Vary struct {
	language, cookie bool
	Country          bool
}

// Names returns the names of the headers.
func (v Vary) Names() []string {
	switch {
	case v.language && v.cookie:
		return []string{"Accept-Language", "Cookie"}
	case v.language:
		return []string{"Accept-Language"}
	case v.cookie:
		return []string{"Cookie"}
	}
	return nil
}
