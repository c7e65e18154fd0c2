package rules

import (
	"bytes"
	"encoding/json"
	"net/http"
	"regexp"
	"strings"

	"slipway/internal/build/configfile"
	"slipway/internal/platform/text"
)

// vercel parses redirects, rewrites, headers and trailingSlash of vercel.json. There, redirects come before files,
// rewrites after them. Of path-to-regexp's patterns, it supports paths with parameters and reports the others.
func (p *parser) vercel(written string) {
	if !json.Valid([]byte(written)) {
		written = configfile.Plain(written)
	}
	b := []byte(written)
	var f struct {
		Redirects     []json.RawMessage `json:"redirects"`
		Rewrites      []json.RawMessage `json:"rewrites"`
		Headers       []json.RawMessage `json:"headers"`
		TrailingSlash *bool             `json:"trailingSlash"`
		Routes        []json.RawMessage `json:"routes"`
	}
	if err := json.Unmarshal(b, &f); err != nil {
		p.fail(0, "it is not a valid vercel.json: %s", text.Line(err.Error(), 200))
		return
	}
	if len(f.Routes) > 0 {
		p.problem(lineOf(b, f.Routes[0]), "routes are not supported; use redirects, rewrites and headers")
	}
	if f.TrailingSlash != nil {
		p.rules.Slash = Never
		if *f.TrailingSlash {
			p.rules.Slash = Always
		}
	}
	for _, raw := range f.Redirects {
		p.vercelRoute(lineOf(b, raw), raw, true)
	}
	for _, raw := range f.Rewrites {
		p.vercelRoute(lineOf(b, raw), raw, false)
	}
	for _, raw := range f.Headers {
		p.vercelHeaders(lineOf(b, raw), raw)
	}
}

type vercelRoute struct {
	Source      string            `json:"source"`
	Destination string            `json:"destination"`
	Permanent   *bool             `json:"permanent"`
	StatusCode  int               `json:"statusCode"`
	Has         []vercelCondition `json:"has"`
	Missing     []vercelCondition `json:"missing"`
	Headers     []struct {
		Key   string `json:"key"`
		Value string `json:"value"`
	} `json:"headers"`
}

type vercelCondition struct {
	Type  string          `json:"type"`
	Key   string          `json:"key"`
	Value json.RawMessage `json:"value"`
}

func (p *parser) vercelRoute(line int, raw json.RawMessage, redirect bool) {
	var v vercelRoute
	if json.Unmarshal(raw, &v) != nil {
		p.problem(line, "the rule is not valid and is ignored")
		return
	}
	from, names, why := vercelPattern(v.Source)
	r := Redirect{From: from, To: vercelTarget(v.Destination, names), Status: http.StatusOK}
	if redirect {
		r.Force = true
		switch {
		case v.StatusCode != 0:
			r.Status = v.StatusCode
		case v.Permanent != nil && !*v.Permanent:
			r.Status = http.StatusTemporaryRedirect
		default:
			r.Status = http.StatusPermanentRedirect
		}
	}
	if why == "" {
		why = p.vercelConditions(&r, v)
	}
	if why != "" {
		p.problem(line, "%s; the rule is ignored", why)
		return
	}
	p.add(line, r)
}

func (p *parser) vercelConditions(r *Redirect, v vercelRoute) string {
	if len(v.Missing) > 0 {
		return "conditions under missing are not supported"
	}
	for _, c := range v.Has {
		var value string
		json.Unmarshal(c.Value, &value)
		plain := !strings.ContainsAny(value, `()[]{}*+?|^$\`)
		switch {
		case c.Type == "host" && plain && r.Host == "" && value != "":
			r.Host = strings.ToLower(value)
		case c.Type == "query" && c.Key != "" && plain && len(r.Query) < maxNames:
			if value == "" {
				value = ":" + c.Key
			}
			r.Query = append(r.Query, Field{c.Key, value})
		case c.Type == "cookie" && c.Key != "" && value == "" && len(r.Cookie) == 0:
			r.Cookie = []string{c.Key}
		default:
			return "the condition on " + text.Line(c.Type, 200) + " is not supported"
		}
	}
	return ""
}

func (p *parser) vercelHeaders(line int, raw json.RawMessage) {
	var v vercelRoute
	if json.Unmarshal(raw, &v) != nil {
		p.problem(line, "the rule is not valid and is ignored")
		return
	}
	from, _, why := vercelPattern(v.Source)
	if why == "" && len(v.Has)+len(v.Missing) > 0 {
		why = "conditions of headers are not supported"
	}
	rule := HeaderRule{For: from}
	for _, h := range v.Headers {
		p.setHeader(line, &rule, h.Key, h.Value)
	}
	if why != "" {
		p.ignore(line, rule.Auth != nil, why)
		return
	}
	p.addHeaders(line, rule)
}

var (
	vercelAny  = regexp.MustCompile(`\(\.[*+]\)`)                  // (.*)
	vercelMany = regexp.MustCompile(`:([A-Za-z_][A-Za-z0-9_]*)\*`) // :path*
	vercelPlus = regexp.MustCompile(`:([A-Za-z_][A-Za-z0-9_]*)(?:\(\.[*+]\)|\+)`)
)

// vercelPattern converts a source to a pattern, and returns the names of its parameters.
func vercelPattern(source string) (pattern string, names []string, why string) {
	if len(source) > maxLine {
		return "", nil, "the source is too long"
	}
	pattern = source
	for _, many := range []*regexp.Regexp{vercelMany, vercelPlus} {
		for _, m := range many.FindAllStringSubmatch(pattern, 2) {
			names = append(names, m[1])
		}
		pattern = many.ReplaceAllString(pattern, "*")
	}
	if vercelAny.MatchString(pattern) {
		names = append(names, "1")
	}
	pattern = vercelAny.ReplaceAllString(pattern, "*")
	if strings.ContainsAny(pattern, `()[]{}+?|^$\`) || strings.Count(pattern, "*") > 1 {
		return "", nil, "the source holds a regular expression, which is not supported"
	}
	return pattern, names, ""
}

// vercelTarget converts a destination: :path* and $1 become the splat.
func vercelTarget(to string, names []string) string {
	for _, n := range names {
		if n == "1" {
			to = strings.ReplaceAll(to, "$1", ":splat")
			continue
		}
		to = regexp.MustCompile(`:`+n+`(?:\*|\+|\b)`).ReplaceAllString(to, ":splat")
	}
	return to
}

// lineOf returns the line at which a part of a file begins.
func lineOf(b, part []byte) int {
	at := bytes.Index(b, part)
	if at < 0 {
		return 0
	}
	return 1 + bytes.Count(b[:at], []byte("\n"))
}
