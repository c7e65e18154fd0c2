package rules

import (
	"crypto/sha256"
	"encoding/hex"
	"net/textproto"
	"slices"
	"strings"
	"unicode/utf8"

	"slipway/internal/platform/text"

	"golang.org/x/net/http/httpguts"
)

// forbidden are headers that a site cannot set: they frame the answer, belong to the
// connection, or are the server's own word about the bytes.
var forbidden = []string{
	"Accept-Ranges", "Age", "Allow", "Alt-Svc", "Connection", "Content-Encoding", "Content-Length", "Content-Range",
	"Date", "Etag", "Keep-Alive", "Last-Modified", "Location", "Proxy-Authenticate", "Proxy-Connection", "Server",
	"Set-Cookie", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "Vary", "Www-Authenticate",
}

// headerLines reads a _headers file as Netlify and Cloudflare Pages document it: a path
// or an address, and below it indented "Name: value" lines; "! Name" takes a header away.
func (p *parser) headerLines(text string) {
	text = strings.TrimPrefix(text, "\ufeff")
	if !utf8.ValidString(text) {
		p.problem(0, "the file is not UTF-8; none of its rules are applied")
		return
	}
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
	skipping := false
	for line := range strings.Lines(text) {
		n++
		words := strings.TrimSpace(line)
		switch {
		case words == "" || words[0] == '#':
		case len(words) > maxLine:
			p.problem(n, "the line is longer than %d bytes and is ignored", maxLine)
		case words[0] == '/' || strings.HasPrefix(words, "https://") || strings.HasPrefix(words, "http://"):
			end()
			host, path, why := splitFrom(words)
			if skipping = why != ""; skipping {
				p.problem(n, "%s; the rule is ignored", why)
				continue
			}
			rule, start = HeaderRule{Host: host, For: path}, n
		case skipping:
		case start == 0:
			p.problem(n, "a header comes before the first path and is ignored")
		default:
			p.header(n, &rule, words)
		}
	}
	end()
}

// header adds a line below a path to its rule.
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
		p.problem(n, "\"%s\" is no header: a colon is missing", text.Line(line, 200))
		return
	}
	p.setHeader(n, rule, strings.TrimSpace(name), strings.TrimSpace(value))
}

func (p *parser) setHeader(n int, rule *HeaderRule, name, value string) {
	canonical := textproto.CanonicalMIMEHeaderKey(name)
	switch {
	case !httpguts.ValidHeaderFieldName(name):
		p.problem(n, "%q is no name of a header", text.Line(name, 200))
	case !httpguts.ValidHeaderFieldValue(value) || len(value) > maxLine:
		p.problem(n, "the value of %s contains control characters or is too long; it is ignored", canonical)
	case canonical == "Basic-Auth":
		for _, pair := range strings.Fields(value) {
			if user, password, ok := strings.Cut(pair, ":"); !ok || user == "" || password == "" || len(rule.Auth) >= 4*maxNames {
				p.problem(n, "Basic-Auth takes pairs of user:password; one is ignored")
				continue
			}
			sum := sha256.Sum256([]byte(pair))
			rule.Auth = append(rule.Auth, hex.EncodeToString(sum[:]))
		}
		if len(rule.Auth) == 0 {
			rule.Auth = []string{"none"} // what was to be protected stays so
		}
	case slices.Contains(forbidden, canonical):
		p.problem(n, "%s can't be set", canonical)
	default:
		rule.Set = append(rule.Set, Field{canonical, value})
	}
}
