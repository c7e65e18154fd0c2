package rules

import (
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"slipway/internal/platform/text"
)

// redirectLines parses a _redirects file: lines of "from [query…] [to] [status][!] [Condition=…]", as Netlify and
// Cloudflare Pages document it. The default status is 301.
func (p *parser) redirectLines(text string) {
	n := 0
	for line := range strings.Lines(text) {
		n++
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		if len(line) > maxLine {
			p.problem(n, "the line is longer than %d bytes; the rule is ignored", maxLine)
			continue
		}
		r, why := p.redirectLine(n, line)
		if why != "" {
			p.problem(n, "%s; the rule is ignored", why)
			continue
		}
		p.add(n, r)
	}
}

func (p *parser) redirectLine(n int, line string) (r Redirect, why string) {
	words := strings.Fields(line)
	if i := slices.IndexFunc(words, func(w string) bool { return w[0] == '#' }); i > 0 {
		words = words[:i] // a comment after a rule
	}
	r.Host, r.From, why = splitFrom(words[0])
	if why != "" {
		return r, why
	}
	words = words[1:]
	target := slices.IndexFunc(words, isTarget)
	status := slices.IndexFunc(words, isStatus)
	conditions := words
	if target < 0 || status >= 0 && status < target {
		// "/path 404" and "/admin/* 200! Role=admin" have no target.
		if status < 0 {
			return r, "there is no target"
		}
		target = -1
		conditions = words[:status]
	} else {
		conditions = words[:target]
		r.To = words[target]
	}
	for _, w := range conditions {
		name, value, ok := strings.Cut(w, "=")
		if !ok || name == "" {
			return r, "\"" + text.Line(w, 200) + "\" is neither a query parameter, a target nor a status"
		}
		r.Query = append(r.Query, Field{name, value})
	}
	rest := words[target+1:]
	if target < 0 {
		rest = words[status:]
	}
	for _, w := range rest {
		if isStatus(w) {
			code, force := strings.CutSuffix(w, "!")
			if r.Status != 0 {
				return r, "there are two statuses"
			}
			r.Status, _ = strconv.Atoi(code)
			r.Force = force
			continue
		}
		name, value, ok := strings.Cut(w, "=")
		if !ok || value == "" {
			return r, "\"" + text.Line(w, 200) + "\" is neither a status nor a condition"
		}
		if why := p.condition(n, &r, name, strings.Split(value, ",")); why != "" {
			return r, why
		}
	}
	return r, ""
}

// condition adds a Netlify condition to a rule, and returns an error text or "".
func (p *parser) condition(line int, r *Redirect, name string, values []string) string {
	if len(values) > 4*maxNames {
		return "the condition " + text.Line(name, 200) + " has too many values"
	}
	for i := range values {
		values[i] = strings.TrimSpace(values[i])
		if values[i] == "" {
			return "the condition " + text.Line(name, 200) + " has an empty value"
		}
	}
	switch strings.ToLower(name) {
	case "language":
		for _, v := range values {
			r.Language = append(r.Language, strings.ToLower(v))
		}
	case "cookie":
		r.Cookie = append(r.Cookie, values...)
	case "country":
		for _, v := range values {
			if len(v) != 2 {
				return "the country " + text.Line(v, 200) + " is not a code of two letters"
			}
			r.Country = append(r.Country, strings.ToUpper(v))
		}
	case "role":
		r.Never = true
		p.problem(line, "conditions on roles are not supported, so the rule never applies")
	case "signed":
		return "signed proxy requests are not supported"
	default:
		return "the condition " + text.Line(name, 200) + " is not known"
	}
	return ""
}

// splitFrom splits a rule's path into host and path. The scheme is ignored, because all sites use HTTPS.
func splitFrom(from string) (host, path, why string) {
	if strings.HasPrefix(from, "/") {
		path = from
	} else {
		rest, ok := strings.CutPrefix(from, "https://")
		if !ok {
			rest, ok = strings.CutPrefix(from, "http://")
		}
		if !ok {
			return "", "", "the path must begin with /, http:// or https://"
		}
		var at string
		host, at, _ = strings.Cut(rest, "/")
		path = "/" + at
		if strings.Contains(host, "*") || host == "" || strings.ContainsAny(host, "@?#") {
			return "", "", "the host must be a name"
		}
		if !strings.Contains(host, ":") || host[0] == ':' {
			host = strings.ToLower(host)
		}
		if i := strings.LastIndexByte(host, ':'); i > 0 && strings.Trim(host[i+1:], "0123456789") == "" {
			host = host[:i] // the port is ignored, too
		}
	}
	path, _, _ = strings.Cut(path, "#") // browsers never send fragments
	if strings.Contains(path, "?") {
		return "", "", "query parameters follow the path, as name=value"
	}
	return host, path, ""
}

func isTarget(w string) bool {
	return w[0] == '/' || strings.HasPrefix(w, "http://") || strings.HasPrefix(w, "https://")
}

func isStatus(w string) bool {
	w = strings.TrimSuffix(w, "!")
	return len(w) == 3 && strings.Trim(w, "0123456789") == ""
}

var placeholders = regexp.MustCompile(`:[A-Za-z_][A-Za-z0-9_]*`)

// check completes a redirect and returns why it is invalid, or "".
func (r *Redirect) check() string {
	if r.Status == 0 {
		r.Status = 301
	}
	from, why := compilePattern(r.From)
	switch {
	case why != "":
		return why
	case len(r.To) > maxLine || len(r.Query) > maxNames:
		return "the rule is too long"
	case strings.ContainsFunc(r.To+r.Host, func(c rune) bool { return c <= ' ' || c == 0x7f || c == '\\' }):
		return "the target holds a space, a backslash or a control character"
	}
	external := strings.HasPrefix(r.To, "http://") || strings.HasPrefix(r.To, "https://")
	if external {
		scheme, rest, _ := strings.Cut(r.To, "://")
		u, err := url.Parse(scheme + "://" + placeholders.ReplaceAllString(rest, "x"))
		if err != nil || u.Host == "" || u.User != nil {
			return "the target is not an address"
		}
	}
	switch s := r.Status; {
	case s >= 301 && s <= 303, s == 307, s == 308:
		if r.To == "" {
			return "a redirect needs a target"
		}
	case s == 200:
		if r.To == "" && !r.Never {
			return "a rewrite needs a target"
		}
		if strings.HasPrefix(r.To, "/.netlify/") {
			return "Netlify functions and other Netlify services are not supported"
		}
	case s >= 400 && s < 600:
		if external {
			return "only a page of the site can be served with status " + strconv.Itoa(s)
		}
	default:
		return "the status must be 200, 301, 302, 303, 307, 308 or an error"
	}
	if r.Status != 200 && !external && r.To != "" && !strings.Contains(r.To, ":") && len(r.Query) == 0 && r.Host == "" {
		if only, ok := from.static(); ok {
			if to, err := url.PathUnescape(pathOf(r.To)); err == nil && r.Status < 400 &&
				strings.Trim(to, "/") == only && !strings.Contains(r.To, "?") {
				return "the target is the path itself (a trailing slash makes no difference)"
			}
		}
	}
	return ""
}

// pathOf returns a target without its query and fragment.
func pathOf(to string) string {
	if i := strings.IndexAny(to, "?#"); i >= 0 {
		return to[:i]
	}
	return to
}
