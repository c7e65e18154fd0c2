package fileserver

import (
	"net/http"
	"strings"

	"slipway/internal/build/release"
	"slipway/internal/edge/response"
)

// Fields applies the release's header rules, over the defaults.
func Fields(h http.Header, a *release.Answer) {
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

// Options sets the headers for an OPTIONS request for a file (RFC 9110 §9.3.7). Browsers ask this way whether a page of
// another origin may read the file, which the release's header rules decide.
func Options(h http.Header, a *release.Answer) {
	h["Cache-Control"] = response.Revalidate
	Fields(h, a)
	h["Allow"] = []string{response.Allow}
}

// Vary adds names to the Vary header. The current value may be shared, so it isn't modified.
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
