package rules

import (
	"crypto/sha256"
	"encoding/hex"
	"net/textproto"
	"slices"
	"strings"

	"slipway/internal/platform/text"

	"golang.org/x/net/http/httpguts"
)

// forbidden lists headers that a site can't set: they frame the answer, belong to the connection, or describe the
// transferred bytes.
var forbidden = []string{
	"Accept-Ranges", "Age", "Allow", "Alt-Svc", "Connection", "Content-Encoding", "Content-Length", "Content-Range",
	"Date", "Etag", "Keep-Alive", "Last-Modified", "Location", "Proxy-Authenticate", "Proxy-Connection", "Server",
	"Set-Cookie", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "Vary", "Www-Authenticate",
}

// headerLines parses a _headers file as Netlify and Cloudflare Pages document it: a path or URL, and below it indented
// "Name: value" lines; "! Name" removes a header.
func (p *parser) headerLines(text string) {
	var rule HeaderRule
	start, n := 0, 0
	end := func() {
		if start > 0 {
			if len(rule.Set)+len(rule.Unset)+len(rule.Auth) == 0 {
				p.problem(start, "no headers follow the path")
			}
			p.addHeaders(start, rule)
		}
		rule, start = HeaderRule{}, 0
	}
	skipping, doubtful := false, false // whether the current path is unknown or uncertain
	for line := range strings.Lines(text) {
		n++
		words := strings.TrimSpace(line)
		switch {
		case words == "" || words[0] == '#':
		case words[0] == '/' || strings.HasPrefix(words, "https://") || strings.HasPrefix(words, "http://"):
			end()
			host, path, why := splitFrom(words)
			if len(words) > maxLine {
				why = "the path is too long"
			}
			skipping, doubtful = why != "", false
			if skipping {
				p.problem(n, "%s; the rule is ignored", why)
				continue
			}
			rule, start = HeaderRule{Host: host, For: path}, n
		case protects(words) && (skipping || doubtful || start == 0):
			p.fail(n, "it isn't known which path the password protects, since a line above it is not understood")
		case skipping:
		case start == 0:
			p.problem(n, "a header comes before the first path and is ignored")
		case !strings.Contains(words, ":") && words[0] != '!':
			doubtful = true // it may be a path
			p.header(n, &rule, words)
		case len(words) > maxLine && !protects(words):
			p.problem(n, "the line is longer than %d bytes and is ignored", maxLine)
		default:
			p.header(n, &rule, words)
		}
	}
	end()
}

const basicAuth = "Basic-Auth"

// protects reports whether a line or a name is meant to be Basic-Auth, in any spelling.
func protects(name string) bool {
	plain := strings.NewReplacer("-", "", "_", "", " ", "", "\t", "").Replace(name[:min(len(name), 40)])
	return len(plain) >= 9 && strings.EqualFold(plain[:9], "basicauth")
}

// ignore records a header rule that is skipped. Skipping a rule that protects a path is fatal.
func (p *parser) ignore(line int, auth bool, why string) {
	if auth {
		p.fail(line, "%s, and the rule protects it with a password", why)
		return
	}
	p.problem(line, "%s; the rule is ignored", why)
}

// header parses a line below a path.
func (p *parser) header(n int, rule *HeaderRule, line string) {
	if name, ok := strings.CutPrefix(line, "!"); ok {
		name = textproto.CanonicalMIMEHeaderKey(strings.TrimSpace(name))
		if !httpguts.ValidHeaderFieldName(name) || slices.Contains(forbidden, name) {
			p.problem(n, "%s can't be removed", text.Line(name, 200))
			return
		}
		rule.Unset = append(rule.Unset, name)
		return
	}
	name, value, ok := strings.Cut(line, ":")
	if !ok {
		if protects(line) {
			p.setHeader(n, rule, line, "")
			return
		}
		p.problem(n, "\"%s\" is no header: a colon is missing", text.Line(line, 200))
		return
	}
	p.setHeader(n, rule, strings.TrimSpace(name), strings.TrimSpace(value))
}

func (p *parser) setHeader(n int, rule *HeaderRule, name, value string) {
	canonical := textproto.CanonicalMIMEHeaderKey(strings.TrimSpace(name))
	switch {
	case canonical != basicAuth && protects(name):
		p.fail(n, "\"%s\" is not understood; visitors are asked for a password by Basic-Auth: user:password", text.Line(name, 200))
	case !httpguts.ValidHeaderFieldName(name):
		p.problem(n, "%q is no name of a header", text.Line(name, 200))
	case canonical != basicAuth && (!httpguts.ValidHeaderFieldValue(value) || len(value) > maxLine):
		p.problem(n, "the value of %s contains control characters or is too long; it is ignored", canonical)
	case canonical == basicAuth:
		for _, pair := range strings.Fields(value) {
			if user, password, ok := strings.Cut(pair, ":"); !ok || user == "" || password == "" || len(rule.Auth) >= 4*maxNames {
				p.problem(n, "Basic-Auth takes pairs of user:password; one is ignored")
				continue
			}
			sum := sha256.Sum256([]byte(pair))
			rule.Auth = append(rule.Auth, hex.EncodeToString(sum[:]))
		}
		if len(rule.Auth) == 0 {
			rule.Auth = []string{"none"} // keep the path protected
		}
	case slices.Contains(forbidden, canonical):
		p.problem(n, "%s can't be set", canonical)
	default:
		rule.Set = append(rule.Set, Field{canonical, value})
	}
}
