package shell

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"slipway/internal/platform/id"

	"slipway/internal/platform/fault"
	"slipway/internal/tenant/account"
)

// actForTeam sets the caller to the user in the page's team: the team in the path or the owner of the site in the path,
// otherwise the team of ?team=, otherwise the only one that the session allows. No cookie stores it, so two tabs can
// show different teams. The caller is restricted to the route's scope, as in the API.
func (d *Shell) actForTeam(ctx context.Context, q *Request, rt Route) error {
	if !q.signedIn() || rt.scope == "" {
		return nil
	}
	site, where, name := "", "", ""
	switch {
	case q.PathValue("team") != "":
		where, name = `slug = $2`, q.PathValue("team")
	case rt.ofSite():
		site = q.PathValue("id")
		where, name = `owner_id = (SELECT owner_id FROM open_sites WHERE id = $2)`, site
	case q.Query("team") != "":
		where, name = `slug = $2`, q.Query("team")
	case q.Session.Only != "":
		where, name = `owner_id = $2`, string(q.Session.Only)
	default:
		return nil
	}
	var owner account.OwnerID
	err := d.DB.QueryRow(ctx, `SELECT owner_id FROM memberships WHERE user_id = $1 AND team_id <> '' AND `+where, q.User.ID, name).Scan(&owner)
	if errors.Is(err, sql.ErrNoRows) {
		if site == "" {
			return fault.Missing("team")
		}
		return nil // the user's own, or not found
	}
	if err != nil {
		return fmt.Errorf("find team of page: %w", err)
	}
	c, err := d.Accounts.CallerIn(ctx, q.User, q.Session, owner)
	if fault.Is(err, fault.Unauthorized) { // no longer a member; the session continues
		return fault.Missing("team")
	}
	if err != nil {
		return err
	}
	q.member = c
	q.Caller, err = rt.permit(c, id.Site(site))
	return err
}

// teamLink adds ?team= to a link of a team's page, for pages that use it.
func (d *Shell) teamLink(q *Request, to string) string {
	if q.member.Team == "" || !strings.HasPrefix(to, "/") || strings.HasPrefix(to, "//") {
		return to
	}
	rest, anchor, hash := strings.Cut(to, "#")
	path, query, _ := strings.Cut(rest, "?")
	rt, ok := d.routeOf(q, "GET", path)
	if !ok { // only forms use this path
		rt, ok = d.routeOf(q, "POST", path)
	}
	if !ok || rt.scope == "" || rt.ofSite() || strings.Contains(rt.Path, "{team}") || strings.Contains("&"+query, "&team=") {
		return to
	}
	if query != "" {
		query = "&" + query
	}
	to = path + "?team=" + q.member.Slug + query
	if hash {
		to += "#" + anchor
	}
	return to
}
