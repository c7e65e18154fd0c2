// Package teams owns the pages of teams: creation, members and invitations, settings, and the transfer of sites between
// accounts.
//
// The team is in the path. The routes' scopes decide what a member may do, as in the API; everyone else gets "not
// found". A team's API keys, webhooks and notifications are on the pages of package account with ?team=.
package teams

import (
	"context"
	"slices"

	"slipway/internal/platform/db"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/audit"
	"slipway/internal/tenant/site"
	"slipway/internal/tenant/sso"
	"slipway/internal/tenant/team"
	"slipway/internal/web/dashboard/shell"
)

// Config holds the services used by these pages.
type Config struct {
	Teams *team.Teams
	Sites *site.Sites
	SSO   *sso.SSO // Optional: without it, teams have no sign-in providers.
}

// Pages serves the pages of teams.
type Pages struct {
	*shell.Shell
	Config
}

func New(s *shell.Shell, c Config) *Pages { return &Pages{s, c} }

func (d *Pages) Routes() []shell.Route {
	read := func(path string, do shellHandler) shell.Route {
		return shell.Get(path, shell.User, do).Takes(account.TeamRead).Wide()
	}
	write := func(path string, do, form shellHandler) shell.Route {
		return shell.Post(path, shell.User, do, form).Takes(account.TeamWrite).Wide()
	}
	return slices.Concat([]shell.Route{
		shell.Get("/teams/new", shell.User, d.newPage),
		shell.Post("/teams/new", shell.User, d.create, d.newPage),

		read("/teams/{team}/members", d.membersPage),
		shell.Get("/teams/{team}/invite", shell.User, d.invitePage).Takes(account.TeamWrite).Wide(),
		write("/teams/{team}/invite", d.invite, d.invitePage),
		write("/teams/{team}/invitations/{invitation}/resend", d.resend, d.membersPage),
		write("/teams/{team}/invitations/{invitation}/revoke", d.revoke, d.membersPage),
		shell.Get("/teams/{team}/members/{user}", shell.User, d.memberPage).Takes(account.TeamWrite).Wide(),
		write("/teams/{team}/members/{user}/role", d.changeRole, d.memberPage),
		write("/teams/{team}/members/{user}/sites", d.setSiteRole, d.memberPage),
		write("/teams/{team}/members/{user}/sites/remove", d.removeSiteRole, d.memberPage),
		write("/teams/{team}/members/{user}/remove", d.remove, d.memberPage),
		shell.Post("/teams/{team}/leave", shell.User, d.leave, nil), // allowed for every role

		read("/teams/{team}/settings", d.settingsPage),
		write("/teams/{team}/settings", d.saveSettings, d.settingsPage),
		write("/teams/{team}/apps", d.saveApps, d.settingsPage),
		write("/teams/{team}/two-factor", d.requireTwoFactor, d.settingsPage).Least(account.RoleOwner),
		write("/teams/{team}/delete", d.delete, d.settingsPage).Least(account.RoleOwner),
	}, d.ssoRoutes())
}

type shellHandler = func(ctx context.Context, q *shell.Request) (shell.Answer, error)

// head is the team of a page.
type head struct {
	Team team.Team
	May  bool // whether the caller may change members and settings
}

// Base returns the path of the team's pages.
func (h head) Base() string { return "/teams/" + h.Team.Slug }

func (d *Pages) headOf(ctx context.Context, q *shell.Request) (head, error) {
	t, err := d.Teams.Get(ctx, d.DB, q.Caller.Owner)
	t.Role = q.Caller.Role
	return head{t, q.Caller.Require(account.TeamWrite) == nil}, err
}

// actOn is ActOn for changes of a member. Changes of one's own membership are logged first, since the log's check would
// fail afterwards.
func (d *Pages) actOn(
	ctx context.Context, q *shell.Request, user account.UserID, e audit.Event, fn func(tx *db.Tx) (team.Member, error),
) error {
	return d.ActOn(ctx, q, func(tx *db.Tx) (audit.Event, error) {
		e := e
		e.Subject, e.About = string(user), user
		if user == q.User.ID {
			if err := d.Accounts.AuditTx(ctx, tx, q.Actor(), e); err != nil {
				return e, err
			}
			e = audit.Logged
		}
		m, err := fn(tx)
		if e.Action == "member.removed" {
			e.Detail = m.Email
		}
		return e, err
	})
}

type newTeam struct{}

func (d *Pages) newPage(context.Context, *shell.Request) (shell.Answer, error) {
	return shell.Page("team_new", "Create team", newTeam{}), nil
}

func (d *Pages) create(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	var t team.Team
	err := d.DB.Write(ctx, func(tx *db.Tx) (err error) {
		if err := account.HoldTx(ctx, tx, q.Actor()); err != nil {
			return err
		}
		if t, err = d.Teams.CreateTx(ctx, tx, q.User, team.NewTeam{Name: q.Value("name"), Slug: q.Value("slug")}); err != nil {
			return err
		}
		by := q.Actor()
		by.Owner = t.Owner // the first entry in the team's log
		return d.Accounts.AuditTx(ctx, tx, by, audit.Event{Action: "team.created", Subject: string(t.ID), Detail: t.Name})
	})
	return shell.GoTo("/teams/"+t.Slug+"/members", "Team created. Invite its members"), atTeam(err)
}

// atTeam assigns an error to a field of a team's form.
func atTeam(err error) error {
	return shell.AtCode(err,
		map[string]string{"invalid_slug": "slug", "slug_taken": "slug", "invalid_confirm": "confirm", "missing_role": "sites"})
}
