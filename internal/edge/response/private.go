package response

import (
	"net/http"
	"strings"
)

// keepPrivate makes a response cacheable by the visitor's own browser only (RFC 9111 §5.2.2.7), whatever the site's
// rules or program say: it is behind a password or a sign-in.
func keepPrivate(h http.Header) {
	var parts []string
	stored := true
	for part := range directives(strings.Join(h["Cache-Control"], ",")) {
		switch name, _, _ := strings.Cut(strings.ToLower(part), "="); strings.TrimSpace(name) {
		case "public", "private", "s-maxage", "proxy-revalidate", "":
		case "no-store":
			stored = false
			fallthrough
		default:
			parts = append(parts, part)
		}
	}
	if stored {
		parts = append([]string{"private"}, parts...)
	}
	h["Cache-Control"] = []string{strings.Join(parts, ", ")}
	dropForCaches(h)
}

// Forbids reports whether Cache-Control keeps a response from shared caches.
func Forbids(said []string) bool {
	v := strings.ToLower(strings.Join(said, ","))
	return strings.Contains(v, "private") || strings.Contains(v, "no-store") || strings.Contains(v, "no-cache")
}

// Keep gives a response the Cache-Control back that it had before rules changed its header.
func Keep(h http.Header, said []string) {
	h["Cache-Control"] = said
	if said == nil {
		delete(h, "Cache-Control")
	}
	dropForCaches(h)
}

// dropForCaches deletes headers for specific caches, which override Cache-Control.
func dropForCaches(h http.Header) {
	for name := range h {
		if low := strings.ToLower(name); strings.HasSuffix(low, "cdn-cache-control") || low == "surrogate-control" ||
			low == "x-accel-expires" {
			delete(h, name)
		}
	}
}

// directives yields the directives of a Cache-Control value, which may contain quoted strings.
func directives(text string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		quoted, from := false, 0
		for i := 0; i <= len(text); i++ {
			switch {
			case i == len(text), text[i] == ',' && !quoted:
				if !yield(strings.TrimSpace(text[from:min(i, len(text))])) {
					return
				}
				from = i + 1
			case text[i] == '"':
				quoted = !quoted
			case text[i] == '\\' && quoted:
				i++
			}
		}
	}
}
