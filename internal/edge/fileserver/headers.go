package fileserver

import (
	"net/http"
	"strings"

	"slipway/internal/build/release"
	"slipway/internal/edge/response"
)

// ruleHeaders sets what the release's header rules say, over what is set by default.
func ruleHeaders(h http.Header, a *release.Answer) {
	if a.ByCountry {
		h["Cache-Control"] = response.Private
	}
	for _, name := range a.Unset {
		delete(h, name)
	}
	for _, f := range a.Set {
		h[f.Name] = []string{f.Value}
	}
	if len(a.Vary) > 0 {
		Vary(h, a.Vary...)
	}
}

// Options sets the headers that answer OPTIONS for a file (RFC 9110 §9.3.7): a browser asks so whether a page of another origin may
// have the file, and the release's header rules say it.
func Options(h http.Header, a *release.Answer) {
	h["Cache-Control"] = response.Revalidate
	ruleHeaders(h, a)
	h["Allow"] = []string{response.Allow}
}

// Vary adds names to the field Vary, whose value may be shared and is not written to.
func Vary(h http.Header, names ...string) {
	all := strings.Join(h["Vary"], ", ")
	for _, n := range names {
		if !strings.Contains(all, n) {
			if all != "" {
				all += ", "
			}
			all += n
		}
	}
	h["Vary"] = []string{all}
}
