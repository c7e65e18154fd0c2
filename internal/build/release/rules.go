package release

import (
	"slipway/internal/build/rules"
	"slipway/internal/platform/fault"
)

// RuleFile adds the rules of slipway.toml, netlify.toml or vercel.json. Add handles _redirects and _headers of published files.
func (w *Writer) RuleFile(name string, content []byte) { w.rules.Take(name, content) }

// SpareHeaders adds a _headers file from outside the published folder, see [rules.Sources.Spare].
func (w *Writer) SpareHeaders(content []byte) { w.rules.Spare(content) }

// refusal returns the fault for rules with which a release can't be made.
func refusal(problems []rules.Problem) error {
	if len(problems) == 0 || !problems[0].Fatal {
		return nil
	}
	return fault.New(fault.Invalid, "release_rules", "The site's rules can't be read, so paths that they close might be open",
		problems[0].String()).Got(problems[0].File)
}

// SinglePage marks the release as a single-page application: index.html becomes its Fallback, unless a rule file says
// otherwise or there is a 404.html.
func (w *Writer) SinglePage() { w.spa = true }

// decideFallback chooses the page of a single-page application. Static generators name it 200.html.
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

// Forwarding sets the hosts to which the site's settings let rules proxy requests. A rule with another host is
// compiled, because the settings may change, and reported as a Problem.
func (w *Writer) Forwarding(hosts []string) { w.rules.Forward = hosts }

// Countries says that visitors' countries are known. If it isn't called, rules with a country never apply, and are
// reported as Problems.
func (w *Writer) Countries() { w.rules.Countries = true }
