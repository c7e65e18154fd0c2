package shell

import (
	"context"
	"net/http"
	"strings"

	"slipway/internal/platform/id"

	"slipway/internal/platform/fault"
	"slipway/internal/tenant/account"
)

// access is the group of people that a route is for.
type access int

const (
	Open      access = iota // everyone
	SignedOut               // people who aren't signed in; others are redirected to the first page
	Halfway                 // people with a pending second factor
	User                    // signed-in people
	Operator                // operators; others get "not found"
)

// handler handles the requests of a route.
type handler func(ctx context.Context, q *Request) (Answer, error)

// Route is a route of the dashboard.
type Route struct {
	Method, Path string
	Access       access
	do           handler
	form         handler  // page with the form, shown again if do fails. Optional.
	receive      receiver // processes the form's file. Optional.

	// The requirements for a team's member, as the API's for a key. A route without a scope never acts for a team.
	scope account.Scope
	least account.Role
	wide  bool // requires access to all of the team's sites

	anyTeam bool // checks access itself in sessions restricted to one team

	main string // page on the installation's own host, for routes that only work there; empty: works at sellers' hosts too
}

func Get(path string, who access, do handler) Route {
	return Route{Method: http.MethodGet, Path: path, Access: who, do: do}
}

func Post(path string, who access, do, form handler) Route {
	return Route{Method: http.MethodPost, Path: path, Access: who, do: do, form: form}
}

// Takes makes the route also act for teams, and require the scope from members.
func (rt Route) Takes(s account.Scope) Route {
	rt.scope = s
	return rt
}

// Least requires at least this role from members.
func (rt Route) Least(r account.Role) Route {
	rt.least = r
	return rt
}

// Wide requires a role on all of the team's sites.
func (rt Route) Wide() Route {
	rt.wide = true
	return rt
}

// AnyTeam allows the route in sessions restricted to one team. The route must check the owner itself.
func (rt Route) AnyTeam() Route {
	rt.anyTeam = true
	return rt
}

// AtMain restricts the route to the installation's own host, on which browsers' passkeys and providers' redirects
// depend. At a seller's host it links to page on the main host.
func (rt Route) AtMain(page string) Route {
	rt.main = page
	return rt
}

// Scope returns the scope required from a team's members; "" means it never acts for a team.
func (rt Route) Scope() account.Scope { return rt.scope }

// Role returns the lowest role that may use the route; "" means any.
func (rt Route) Role() account.Role { return rt.least }

// ofSite reports whether the path contains a site, whose owner the route acts for.
func (rt Route) ofSite() bool { return strings.HasPrefix(rt.Path, "/sites/{id}") }

// permit returns the caller restricted to this route: in a team, with their role there, on one site or all. A site on
// which a guest has no role is not found.
func (rt Route) permit(c account.Caller, site id.Site) (account.Caller, error) {
	if c.Team == "" || rt.scope == "" {
		return c, nil
	}
	if site != "" && c.Role == account.RoleGuest && c.SiteRoles[site] == "" {
		return c, fault.Missing("site")
	}
	as, err := c.For(rt.scope, rt.least)
	if err != nil {
		return c, err
	}
	if site != "" && !as.Allows(site) { // the sufficient role is on another site
		return c, account.ErrRole(rt.scope, rt.least)
	}
	if rt.wide {
		return as, as.RequireAllSites()
	}
	return as, nil
}
