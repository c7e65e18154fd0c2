package compress

import (
	"bytes"
	"net/http"
	"strconv"
	"strings"
	"time"

	"slipway/internal/build/release"
)

// Serve answers a GET or HEAD with a compressed copy if the visitor prefers one, and reports whether it did. Otherwise
// the caller sends the file itself; Vary is already set. The caller sets Etag and Content-Type before; modified may be
// zero.
func (c *Copies) Serve(w http.ResponseWriter, r *http.Request, f File, name string, modified time.Time) bool {
	if !c.can(f) {
		return false
	}
	h := w.Header()
	vary(h)
	// A range refers to the uncompressed file.
	if len(r.Header["Range"]) > 0 {
		return false
	}
	coding := release.Negotiate(r.Header["Accept-Encoding"], true, true, true)
	if coding == "" {
		return false
	}
	tag := tagOf(h.Get("Etag"), coding)
	if match := r.Header["If-Match"]; len(match) > 0 && !lists(match, tag) {
		return false // the caller compares the file's own tag
	}
	if lists(r.Header["If-None-Match"], tag) { // a 304 needs no copy
		h["Etag"] = []string{tag}
		delete(h, "Content-Type")
		w.WriteHeader(http.StatusNotModified)
		return true
	}
	body := c.get(r.Context(), f, coding)
	if body == nil {
		return false
	}
	h["Etag"] = []string{tag}
	h["Content-Encoding"] = []string{coding}
	h["Content-Length"] = []string{strconv.Itoa(len(body))}
	http.ServeContent(w, r, name, modified, bytes.NewReader(body))
	return true
}

// vary adds Accept-Encoding to the Vary header.
func vary(h http.Header) {
	for _, v := range h["Vary"] {
		if strings.Contains(strings.ToLower(v), "accept-encoding") || strings.TrimSpace(v) == "*" {
			return
		}
	}
	h.Add("Vary", "Accept-Encoding")
}

// tagOf returns the entity tag of a copy: each representation of a file needs its own (RFC 9110 §8.8.3.3).
func tagOf(tag, coding string) string {
	return strings.TrimSuffix(tag, `"`) + "-" + coding + `"`
}

// lists reports whether a list of entity tags contains tag. Our tags contain no comma.
func lists(values []string, tag string) bool {
	for _, v := range values {
		for item := range strings.SplitSeq(v, ",") {
			if strings.TrimPrefix(strings.Trim(item, " \t"), "W/") == tag {
				return true
			}
		}
	}
	return false
}
