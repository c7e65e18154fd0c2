// Package text owns cleaning untrusted texts before they are stored, sent or shown, and writing
// sizes, counts and origins.
package text

import (
	"fmt"
	"net"
	"net/url"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Line returns the first line of s without control characters, valid UTF-8, of at most n characters: what
// is cut ends with an ellipsis.
func Line(s string, n int) string {
	s, _, _ = strings.Cut(strings.TrimSpace(s), "\n")
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
	if r := []rune(s); len(r) > n {
		s = string(r[:n-1]) + "…"
	}
	return s
}

// Clip returns s as valid UTF-8; what is longer than n bytes is cut there and ends with an ellipsis.
func Clip(s string, n int) string {
	if len(s) <= n {
		return strings.ToValidUTF8(s, "\uFFFD")
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return strings.ToValidUTF8(s[:n], "\uFFFD") + "…"
}

// Cut makes a stranger's text fit a column: valid UTF-8 without NUL, of at most n characters: what is cut
// ends with an ellipsis.
func Cut(s string, n int) string {
	s = strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "")
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	return string([]rune(s)[:n-1]) + "…"
}

// Fits reports whether s has at most n bytes and so many lines, without control characters.
func Fits(s string, lines, n int) bool {
	if len(s) > n || strings.Count(s, "\n") >= lines {
		return false
	}
	return strings.IndexFunc(s, func(r rune) bool { return r != '\n' && unicode.IsControl(r) }) < 0
}

// WithHost returns an origin such as https://example.com:8443 with another host, and the same scheme and port. An empty host, or what is no
// origin, gives the origin itself.
func WithHost(origin, host string) string {
	u, err := url.Parse(origin)
	if err != nil || u.Host == "" || host == "" {
		return origin
	}
	if port := u.Port(); port != "" {
		host = net.JoinHostPort(host, port)
	}
	return u.Scheme + "://" + host
}

// Size writes bytes the way limits are spoken of: 512 bytes, 1.5 KiB, 64 MiB, 2 GiB.
func Size(n int64) string {
	for _, u := range []struct {
		n    int64
		name string
	}{{1 << 30, "GiB"}, {1 << 20, "MiB"}, {1 << 10, "KiB"}} {
		if n >= u.n {
			return strings.TrimSuffix(fmt.Sprintf("%.1f", float64(n)/float64(u.n)), ".0") + " " + u.name
		}
	}
	return fmt.Sprintf("%d bytes", n)
}

// Count writes a number and its noun, which has an s where there are several.
func Count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
