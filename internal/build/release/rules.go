package release

import (
	"slipway/internal/build/rules"
	"slipway/internal/platform/fault"
)

// RuleFile takes the rules of a configuration file in: slipway.toml, netlify.toml or
// vercel.json. _redirects and _headers come with Add.
func (w *Writer) RuleFile(name string, content []byte) { w.rules.Take(name, content) }

// SpareHeaders takes in a _headers that is not in the published folder, see rules.Sources.
func (w *Writer) SpareHeaders(content []byte) { w.rules.Spare(content) }

// refusal returns the fault of rules that a release can't be made with.
func refusal(problems []rules.Problem) error {
	if len(problems) == 0 || !problems[0].Fatal {
		return nil
	}
	return fault.New(fault.Invalid, "release_rules", "The site's rules can't be read, so paths that they close might be open",
		problems[0].String()).Got(problems[0].File)
}

// SinglePage says that the release looks like a single-page application: unless a rule
// file says otherwise, or there is a 404.html, index.html becomes its Fallback.
func (w *Writer) SinglePage() { w.spa = true }

// decideFallback chooses the page of a single-page application. 200.html is how static
// generators name it.
func (w *Writer) decideFallback() {
	said := w.rules.Fallback()
	if w.fallback != "" || said != nil && !*said {
		return
	}
	for _, page := range []string{"200.html", "index.html"} {
		if w.entries[page] == nil {
			continue
		}
		if page == "200.html" || said != nil || w.spa && w.entries["404.html"] == nil {
			w.fallback = page
			return
		}
	}
}

// Forwarding says to which hosts the site's settings let rules forward requests. A rule
// that names another one is compiled, and a Problem: the settings may change later.
func (w *Writer) Forwarding(hosts []string) { w.rules.Forward = hosts }

// Countries says that visitors' countries are known here. Where they are not, a rule that
// asks for one never applies, and is a Problem.
func (w *Writer) Countries() { w.rules.Countries = true }
