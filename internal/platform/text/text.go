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

// Line returns the first line of s as valid UTF-8 without control characters. Text beyond n characters is replaced by
// an ellipsis.
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

// Clip returns s as valid UTF-8. Text beyond n bytes is replaced by an ellipsis.
func Clip(s string, n int) string {
	if len(s) <= n {
		return strings.ToValidUTF8(s, "\uFFFD")
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return strings.ToValidUTF8(s[:n], "\uFFFD") + "…"
}

// Cut returns s as valid UTF-8 without NUL, fit for a database column. Text beyond n characters is replaced by an
// ellipsis.
func Cut(s string, n int) string {
	s = strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "")
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	return string([]rune(s)[:n-1]) + "…"
}

// Fits reports whether s has no control characters, at most n bytes and at most the given number of lines.
func Fits(s string, lines, n int) bool {
	if len(s) > n || strings.Count(s, "\n") >= lines {
		return false
	}
	return strings.IndexFunc(s, func(r rune) bool { return r != '\n' && unicode.IsControl(r) }) < 0
}

// WithHost replaces the host of an origin such as https://example.com:8443. If host is empty or origin invalid, it
// returns origin.
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

// Size formats bytes with binary units: 512 bytes, 1.5 KiB, 64 MiB, 2 GiB.
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

// Count formats a number and its noun, with a plural s.
func Count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
