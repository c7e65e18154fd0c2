package shell

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"slipway/internal/platform/fault"
	"slipway/internal/tenant/account"
)

// actForTeam makes the caller of a page the team's that it is about: the one that the site in the path belongs to, else the
// one that ?team= names. No cookie remembers it, so two tabs can show two teams. Pages don't know scopes yet: they are for
// owners and admins, who may do all that a page offers, and others use the API.
func (d *Shell) actForTeam(ctx context.Context, q *Request) error {
	if !q.signedIn() {
		return nil
	}
	where, name := "", ""
	switch id := q.PathValue("id"); {
	case strings.HasPrefix(id, "site_"):
		where, name = `owner_id = (SELECT owner_id FROM open_sites WHERE id = $2)`, id
	case q.Query("team") != "":
		where, name = `slug = $2`, q.Query("team")
	default:
		return nil
	}
	var owner account.OwnerID
	err := d.DB.QueryRow(ctx, `SELECT owner_id FROM memberships WHERE user_id = $1 AND team_id <> '' AND `+where, q.User.ID, name).Scan(&owner)
	if errors.Is(err, sql.ErrNoRows) {
		return nil // their own, or not found
	}
	if err != nil {
		return fmt.Errorf("find team of page: %w", err)
	}
	c, err := d.Accounts.CallerFor(ctx, d.DB, q.User, owner)
	if fault.Is(err, fault.Unauthorized) { // no member any more; the session stays
		return nil
	}
	if err != nil {
		return err
	}
	if !c.Role.AtLeast(account.RoleAdmin) {
		return &fault.Error{
			Kind: fault.Forbidden, Message: "Your role doesn't allow this",
			Details: "the dashboard shows a team's sites to its owners and admins; use the API with a key of the team", Code: "role_required",
		}
	}
	q.Caller = c
	return nil
}
