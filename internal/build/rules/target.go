package rules

import (
	"fmt"
	"net/url"
	"strings"
	"unicode"

	"golang.org/x/net/idna"
)

// maxLocation caps the bytes of a rule's target.
const maxLocation = 4 << 10

// IsAddress reports whether a target is a URL rather than a path.
func IsAddress(to string) bool {
	return strings.HasPrefix(to, "https://") || strings.HasPrefix(to, "http://")
}

// Target returns the location of a redirect. Request parameters are passed on, except those that are conditions of the
// rule or set in the target.
func (r *Redirect) Target(values []Field, q Request) (string, bool) {
	to, fragment, hasFragment := strings.Cut(r.To, "#")
	path, own, hasQuery := strings.Cut(to, "?")
	if IsAddress(path) {
		scheme, rest, _ := strings.Cut(path, "://")
		host, at, _ := strings.Cut(rest, "/")
		safe := true
		host = expand(host, values, func(v string) string {
			safe = safe && hostLabel(v)
			return v
		}, maxLocation)
		if strings.ContainsFunc(host, func(c rune) bool { return c > unicode.MaxASCII }) {
			ascii, err := idna.Lookup.ToASCII(host)
			if err != nil {
				return "", false
			}
			host = ascii
		}
		if !safe {
			return "", false
		}
		path = scheme + "://" + host + "/" + strings.TrimLeft(expand(at, values, escapePath, maxLocation), "/")
	} else {
		// Two slashes at the beginning would be a host.
		path = "/" + strings.TrimLeft(expand(path, values, escapePath, maxLocation), "/")
	}
	own = expand(own, values, url.QueryEscape, maxLocation)
	passed := passedOn(q.Query, r.Query, own)
	switch {
	case hasQuery && own != "" && passed != "":
		path += "?" + own + "&" + passed
	case hasQuery && own != "":
		path += "?" + own
	case passed != "":
		path += "?" + passed
	}
	if hasFragment {
		path += "#" + expand(fragment, values, escapePath, maxLocation)
	}
	path = escapeRaw(path)
	return path, len(path) <= maxLocation
}

// Path returns the unescaped path of the file that a rewrite serves; false if it is invalid.
func (r *Redirect) Path(values []Field) (string, bool) {
	at := expand(pathOf(r.To), values, escapePath, maxLocation)
	to, err := url.PathUnescape(at)
	return to, err == nil && len(at) <= maxLocation
}

// passedOn returns the request parameters that are passed on with a redirect.
func passedOn(raw string, asked []Field, own string) string {
	if raw == "" || len(asked) == 0 && own == "" {
		return CleanQuery(raw)
	}
	named, _ := url.ParseQuery(own)
	for _, f := range asked {
		named.Set(f.Name, "")
	}
	var rest []string
	for part := range strings.SplitSeq(raw, "&") {
		key, _, _ := strings.Cut(part, "=")
		if plain, err := url.QueryUnescape(key); part != "" && (err != nil || !named.Has(plain)) {
			rest = append(rest, part)
		}
	}
	return CleanQuery(strings.Join(rest, "&"))
}

// CleanQuery escapes bytes that aren't allowed in a header.
func CleanQuery(raw string) string { return escapeRaw(raw) }

// escapeRaw percent-encodes bytes that aren't allowed in URLs: control characters, blanks and non-ASCII (RFC 3986
// §2.1).
func escapeRaw(s string) string {
	raw := func(c byte) bool { return c <= ' ' || c >= 0x7f }
	i := 0
	for i < len(s) && !raw(s[i]) {
		i++
	}
	if i == len(s) {
		return s
	}
	var b strings.Builder
	b.WriteString(s[:i])
	for ; i < len(s); i++ {
		if raw(s[i]) {
			fmt.Fprintf(&b, "%%%02X", s[i])
		} else {
			b.WriteByte(s[i])
		}
	}
	return b.String()
}

// hostLabel reports whether a value can be part of a host name without changing its domain.
func hostLabel(v string) bool {
	return v != "" && len(v) <= 63 && strings.Trim(v, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") == ""
}

// Tidy splits a path into its name without leading and trailing slashes, whether it ended in a slash, and whether it
// had double slashes.
func Tidy(path string) (name string, slash, doubled bool) {
	doubled = strings.Contains(path, "//")
	if doubled {
		var names []string
		for s := range strings.SplitSeq(path, "/") {
			if s != "" {
				names = append(names, s)
			}
		}
		return strings.Join(names, "/"), strings.HasSuffix(path, "/"), true
	}
	return strings.TrimSuffix(path[1:], "/"), strings.HasSuffix(path, "/"), false
}
