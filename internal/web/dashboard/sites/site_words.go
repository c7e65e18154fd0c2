package sites

import (
	"net/url"

	"slipway/internal/tenant/site"
)

// VarPath is where one variable is edited.
func (h SiteHead) VarPath(v site.Var) string {
	name := v.Key
	if v.Scope() != "" { // there may be two
		name = v.ID
	}
	return h.Base() + "/env/var/" + url.PathEscape(name)
}

// Scopes are the choices of scopeOf in people's words.
func (h SiteHead) Scopes() [][2]string {
	return [][2]string{
		{"all", "Production and previews"},
		{"production", "Production"},
		{"preview", "Previews"},
		{"branch", "Previews of branches"},
	}
}

// ScopeOf is which of Scopes a variable has.
func (h SiteHead) ScopeOf(v site.Var) string {
	switch {
	case v.Branch != "":
		return "branch"
	case v.Scope() == "":
		return "all"
	}
	return v.Scope()
}

// ScopeTag says which deployments see a variable; empty where all do.
func (h SiteHead) ScopeTag(v site.Var) string {
	switch {
	case v.Branch != "":
		return "Previews of " + v.Branch
	case v.Scope() == "production":
		return "Production"
	case v.Scope() == "preview":
		return "Previews"
	}
	return ""
}

// IsWordPress reports whether the site is a WordPress.
func (h SiteHead) IsWordPress() bool { return h.Site.Type == site.WordPress }
