package compress

import (
	"bytes"
	"net/http"
	"strconv"
	"strings"
	"time"

	"slipway/internal/build/release"
)

// Serve answers a GET or HEAD with a copy of a file where the visitor likes one better, and
// reports whether it did. Else the caller is to answer with the file itself: what its answers
// have in common has been set. Etag and Content-Type are set before; modified may be zero.
func (c *Copies) Serve(w http.ResponseWriter, r *http.Request, f File, name string, modified time.Time) bool {
	if !c.can(f) {
		return false
	}
	h := w.Header()
	vary(h)
	// A range is a range of the file, not of what a compressor made of it.
	if len(r.Header["Range"]) > 0 {
		return false
	}
	coding := release.Negotiate(r.Header["Accept-Encoding"], true, true, true)
	if coding == "" {
		return false
	}
	tag := tagOf(h.Get("Etag"), coding)
	if match := r.Header["If-Match"]; len(match) > 0 && !lists(match, tag) {
		return false // whether it is the file's own is the caller's business
	}
	if lists(r.Header["If-None-Match"], tag) { // who has a copy needs none to be made
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

// vary adds Accept-Encoding to the field Vary.
func vary(h http.Header) {
	for _, v := range h["Vary"] {
		if strings.Contains(strings.ToLower(v), "accept-encoding") || strings.TrimSpace(v) == "*" {
			return
		}
	}
	h.Add("Vary", "Accept-Encoding")
}

// tagOf returns the entity tag of a copy: two representations of a file are two sequences of
// bytes (RFC 9110, section 8.8.3.3).
func tagOf(tag, coding string) string {
	return strings.TrimSuffix(tag, `"`) + "-" + coding + `"`
}

// lists reports whether a list of entity tags has this one. Our tags have no comma.
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
