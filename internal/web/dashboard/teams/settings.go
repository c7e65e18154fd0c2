package teams

import (
	"context"
	"strings"

	"slipway/internal/platform/db"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/audit"
	"slipway/internal/tenant/limits"
	"slipway/internal/tenant/operation"
	"slipway/internal/tenant/team"
	"slipway/internal/web/dashboard/shell"
)

type settingsData struct {
	head
	Limits []limits.Use

	Counting string // period of monthly limits

	Without int // members who would be blocked
	Own     bool
	IsOwner bool
	Sites   int
}

func (d *Pages) settingsPage(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	h, err := d.headOf(ctx, q)
	if err != nil {
		return shell.Answer{}, err
	}
	data := settingsData{head: h, IsOwner: q.Caller.Role == account.RoleOwner}
	if data.Limits, err = d.Accounts.LimitUse(ctx, q.Caller.Owner); err != nil {
		return shell.Answer{}, err
	}
	data.Counting = limits.Counting(data.Limits)
	list, _, err := d.Teams.Members(ctx, q.Caller.Owner, team.MemberFilter{})
	if err != nil {
		return shell.Answer{}, err
	}
	for _, m := range list {
		if !m.TwoFactor {
			data.Without++
		} else if m.User == q.User.ID {
			data.Own = true
		}
	}
	_, data.Sites, err = d.Sites.List(ctx, q.Caller.Owner, shell.OneSite)
	return shell.Page("team_settings", "Settings of "+h.Team.Name, data), err
}

func (d *Pages) update(ctx context.Context, q *shell.Request, p team.Patch, detail string) (t team.Team, err error) {
	err = d.ActOn(ctx, q, func(tx *db.Tx) (_ audit.Event, err error) {
		t, err = d.Teams.UpdateTx(ctx, tx, q.Caller, p)
		return audit.Event{Action: "team.updated", Subject: string(t.ID), Detail: detail}, err
	})
	return t, atTeam(err)
}

func (d *Pages) saveSettings(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	name, slug := q.Value("name"), q.Value("slug")
	t, err := d.update(ctx, q, team.Patch{Name: &name, Slug: &slug}, "")
	return shell.GoTo("/teams/"+t.Slug+"/settings", "Saved"), err
}

func (d *Pages) requireTwoFactor(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	on := q.Value("to") == "on"
	detail, says := "two-factor authentication optional", "Two-factor authentication is optional"
	if on {
		detail, says = "two-factor authentication required", "Two-factor authentication is required"
	}
	t, err := d.update(ctx, q, team.Patch{RequireTwoFactor: &on}, detail)
	return shell.GoTo("/teams/"+t.Slug+"/settings", says), err
}

// saveApps sets which apps members may authorize for the team.
func (d *Pages) saveApps(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	apps := q.Value("apps")
	t, err := d.update(ctx, q, team.Patch{Apps: &apps}, "apps: "+shell.Short(20, apps))
	said := "Saved"
	if len(t.EndedApps) > 0 {
		said += ". Access ended of " + shell.Short(200, strings.Join(t.EndedApps, ", "))
	}
	return shell.GoTo("/teams/"+t.Slug+"/settings", said), err
}

// delete deletes the team after its slug was typed.
func (d *Pages) delete(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	var o *operation.Operation
	err := d.DB.Write(ctx, func(tx *db.Tx) (err error) {
		if err := account.LockOwnerTx(ctx, tx, q.Caller.Owner); err != nil { // serializes with a concurrent removal of the user
			return err
		}
		// Write the log first, since its check needs the membership, which is deleted with the team.
		e := audit.Event{Action: "team.deleted", Subject: q.Caller.Team, Detail: q.Caller.Slug}
		if err := d.Accounts.AuditTx(ctx, tx, q.Actor(), e); err != nil {
			return err
		}
		_, o, err = d.Teams.DeleteTx(ctx, tx, q.Caller, q.Value("confirm"), q.Checked("sites"))
		return err
	})
	if err != nil {
		return shell.Answer{}, err
	}
	if o != nil {
		return shell.GoTo("/?team="+q.Caller.Slug, "Deleting the sites of the team, then the team"), nil
	}
	return shell.GoTo("/", "Team deleted"), nil
}
