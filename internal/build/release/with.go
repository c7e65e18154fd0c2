package release

import "slipway/internal/build/rules"

// WithRules returns the release with these rule files (name → content) instead of its own of the same names, and their
// problems.
func (t *Tree) WithRules(files map[string]string) (*Tree, []rules.Problem) {
	n := *t
	var problems []rules.Problem
	n.rules, problems = t.rules.With(files)
	return &n, problems
}

// Served returns the release as its site's settings want it served. singlePage is "on" or "off", slash "always" or
// "never"; other values keep the release's own setting.
func (t *Tree) Served(singlePage, slash string) *Tree {
	form := rules.Slash(slash)
	if singlePage != "on" && singlePage != "off" && form != rules.Always && form != rules.Never {
		return t
	}
	n := *t
	if form == rules.Always || form == rules.Never {
		n.slash = form
	}
	switch singlePage {
	case "off":
		n.fallback = ""
	case "on":
		for _, page := range []string{"200.html", "index.html"} {
			if n.fallback == "" && t.has(page) {
				n.fallback = page
			}
		}
	}
	return &n
}

// Fallback returns the page for paths without a file; empty if there is none.
func (t *Tree) Fallback() string { return t.fallback }

// Ruled reports whether the release has rules.
func (t *Tree) Ruled() bool { return t.rules != nil }

// Rules returns the release's rules. The caller must not change them.
func (t *Tree) Rules() rules.Rules {
	if t.rules == nil {
		return rules.Rules{}
	}
	return t.rules.Rules
}
