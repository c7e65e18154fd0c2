package sites

import (
	"net/url"

	"slipway/internal/tenant/site"
)

// VarPath returns the path of the page that edits a variable.
func (h SiteHead) VarPath(v site.Var) string {
	name := v.Key
	if v.Scope() != "" { // the key may have two variables
		name = v.ID
	}
	return h.Base() + "/env/var/" + url.PathEscape(name)
}

// Scopes returns the choices of scopes with their labels.
func (h SiteHead) Scopes() [][2]string {
	return [][2]string{
		{"all", "Production and previews"},
		{"production", "Production"},
		{"preview", "Previews"},
		{"branch", "Previews of branches"},
	}
}

// ScopeOf returns the element of Scopes for a variable.
func (h SiteHead) ScopeOf(v site.Var) string {
	switch {
	case v.Branch != "":
		return "branch"
	case v.Scope() == "":
		return "all"
	}
	return v.Scope()
}

// ScopeTag returns the deployments that see a variable, or "" for all.
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

// IsWordPress reports whether it is a WordPress site.
func (h SiteHead) IsWordPress() bool { return h.Site.Type == site.WordPress }
