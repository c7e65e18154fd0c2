package shell

import (
	"context"
	"net/http"
	"strings"

	"slipway/internal/platform/id"

	"slipway/internal/platform/fault"
	"slipway/internal/tenant/account"
)

// access says whom a route lets in.
type access int

const (
	Open      access = iota // anybody
	SignedOut               // who is not signed in; others are sent home
	Halfway                 // who owes the second factor
	User                    // who is signed in
	Operator                // who runs the installation; for others the page does not exist
)

// handler does one thing of one page.
type handler func(ctx context.Context, q *Request) (Answer, error)

// Route is one line of the list.
type Route struct {
	Method, Path string
	Access       access
	do           handler
	form         handler  // the page that holds the form: it is shown again when do fails. Optional.
	receive      receiver // takes the form's file. Optional.

	// What it takes of a member of a team, as the API asks of a key. A route without a scope never acts for a team.
	scope account.Scope
	least account.Role
	wide  bool // concerns all sites of the team

	anyTeam bool // checks itself what a session that opens one team alone may do

	main string // the page to be on at the installation's own host, where alone the route works; empty: it works at sellers' hosts too
}

func Get(path string, who access, do handler) Route {
	return Route{Method: http.MethodGet, Path: path, Access: who, do: do}
}

func Post(path string, who access, do, form handler) Route {
	return Route{Method: http.MethodPost, Path: path, Access: who, do: do, form: form}
}

// Takes returns the route as one that also acts for teams, and for which a member needs the scope.
func (rt Route) Takes(s account.Scope) Route {
	rt.scope = s
	return rt
}

// Least returns the route for members with at least this role.
func (rt Route) Least(r account.Role) Route {
	rt.least = r
	return rt
}

// Wide returns the route for members with a role on all sites of the team.
func (rt Route) Wide() Route {
	rt.wide = true
	return rt
}

// AnyTeam returns the route as one that sessions that open one team alone may use. It must check the owner itself.
func (rt Route) AnyTeam() Route {
	rt.anyTeam = true
	return rt
}

// AtMain returns the route as one that works at the installation's own host alone, because somebody else knows that host: a browser that
// keeps passkeys, a provider that sends people back. At a seller's host it leads there, to a page from which it can be done.
func (rt Route) AtMain(page string) Route {
	rt.main = page
	return rt
}

// Scope returns what the route takes of a member of a team; empty: it never acts for one.
func (rt Route) Scope() account.Scope { return rt.scope }

// Role returns the lowest role that the route is for; empty: any.
func (rt Route) Role() account.Role { return rt.least }

// ofSite reports whether the route's path names a site, and with it the owner that it acts for.
func (rt Route) ofSite() bool { return strings.HasPrefix(rt.Path, "/sites/{id}") }

// permit returns the caller as this route is for them: in a team, with their role there, on one site or on all. A site on
// which a guest has no role doesn't exist for them.
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
	if site != "" && !as.Allows(site) { // the role that suffices is one on another site
		return c, account.ErrRole(rt.scope, rt.least)
	}
	if rt.wide {
		return as, as.RequireAllSites()
	}
	return as, nil
}
