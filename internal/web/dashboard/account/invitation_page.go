package account

import (
	"cmp"
	"context"
	"net/url"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/audit"
	"slipway/internal/tenant/team"
	"slipway/internal/web/dashboard/shell"
	"slipway/internal/web/requestinfo"
)

// invitationRoutes lists the routes of the page linked from invitation emails. Opening it accepts nothing, since link
// previews open it too.
func (d *Pages) invitationRoutes() []shell.Route {
	return []shell.Route{
		shell.Get("/invitations/{token}", shell.Open, d.invitationPage),
		shell.Post("/invitations/{token}", shell.Open, d.acceptInvitation, d.invitationPage),
	}
}

type invitationData struct {
	Team, Email, Role string
	Sites             int
	SignedInAs        string // address signed in with, if it isn't the invited one
	Accept            bool   // whether the invited address is signed in
	SignIn            string // sign-in URL for users with a password
	NeedsAccount      bool   // the address has no user, and only operators can create one
}

func (d *Pages) invitationPage(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	i, data, err := d.invitation(ctx, q)
	if err != nil {
		return shell.Answer{}, err
	}
	return shell.Page("invitation", "Invitation to "+i.Team, data), nil
}

func (d *Pages) invitation(ctx context.Context, q *shell.Request) (team.Invitation, invitationData, error) {
	i, err := d.Teams.Invitation(ctx, q.PathValue("token"))
	if err == nil && q.Session.Only != "" { // the session only vouches for a member of another team
		err = account.ErrTeamSession
	}
	if err != nil {
		return i, invitationData{}, err
	}
	data := invitationData{Team: i.Team, Email: i.Email, Role: cmp.Or(string(i.Role), "guest"), Sites: len(i.Sites)}
	if q.User.ID != "" && !q.Session.Pending {
		own, err := team.Address(q.User.Email)
		data.Accept = err == nil && own == i.Email
		if !data.Accept {
			data.SignedInAs = q.User.Email
		}
		return i, data, nil
	}
	u, err := d.Accounts.UserByEmail(ctx, i.Email)
	switch {
	case err != nil && !fault.Is(err, fault.NotFound):
		return i, data, err
	// The page sets no password for users with another way to sign in, nor for existing users if links are passed on by
	// hand.
	case err == nil && (!u.Invited || !d.Accounts.Mails()):
		data.SignIn = "/sign-in?next=" + url.QueryEscape("/invitations/"+q.PathValue("token"))
	case err != nil && !d.Accounts.Mails():
		// Without email the inviter has the link too. Only operators create accounts for other people's addresses, and
		// not through an app.
		by, err := d.Accounts.User(ctx, i.By)
		if err != nil && !fault.Is(err, fault.NotFound) {
			return i, data, err
		}
		data.NeedsAccount = !by.Admin || by.Suspended != 0 || !i.InPerson
	}
	return i, data, nil
}

func (d *Pages) acceptInvitation(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	if err := d.Throttle(ctx, shell.Guesses{Key: "setup-net:" + requestinfo.Network(q.Addr), Limit: shell.PerNetwork}); err != nil {
		return shell.Answer{}, err
	}
	i, data, err := d.invitation(ctx, q)
	if err != nil {
		return shell.Answer{}, err
	}
	switch {
	case data.Accept:
		to, err := d.joinTeam(ctx, q.User, q)
		return shell.GoTo(to, "You joined the team "+i.Team), err
	case data.SignedInAs != "":
		return shell.Answer{}, fault.New(fault.Forbidden, "other_address", "This invitation is for another email address",
			"sign out, then open the link again")
	case data.SignIn != "":
		return shell.GoTo(data.SignIn, ""), nil
	case data.NeedsAccount:
		return shell.Answer{}, fault.New(fault.Forbidden, "needs_account",
			"This server sends no email, so an operator must create your account first",
			"ask them, then open this link again")
	}
	return d.setUpInvited(ctx, q, i)
}

// setUpInvited creates the invited user with the chosen password and signs them in. It works even if sign-up is closed;
// the caller has checked NeedsAccount. If the user exists without any way to sign in, the emailed link sets a password.
func (d *Pages) setUpInvited(ctx context.Context, q *shell.Request, i team.Invitation) (shell.Answer, error) {
	u, err := d.Accounts.UserByEmail(ctx, i.Email)
	there := err == nil
	if fault.Is(err, fault.NotFound) {
		u, err = d.Accounts.CreateUser(ctx, i.Email, q.Value("password"), false)
	}
	if err != nil {
		return shell.Answer{}, err
	}
	var s account.Session
	var token string
	if there {
		var link string
		if link, err = d.Accounts.NewSetupLink(ctx, u.ID, time.Minute); err == nil {
			s, token, err = d.Accounts.SetUp(ctx, link, u.Email, q.Value("password"), q.Device())
		}
	} else {
		s, token, err = d.Accounts.SignIn(ctx, u.Email, q.Value("password"), q.Device())
	}
	if err != nil {
		return shell.Answer{}, err
	}
	to, err := d.joinTeam(ctx, u, q)
	if err != nil {
		return shell.Answer{}, err
	}
	a := d.enterAt(s, token, to)
	a.Flash = "Welcome to " + d.NameAt(q) + ". You joined the team " + i.Team
	return a, nil
}

// joinTeam accepts the invitation for a user, writes the team's audit log, and returns the team's first page: its
// sites, or its members for a role without access to sites.
func (d *Pages) joinTeam(ctx context.Context, u account.User, q *shell.Request) (to string, err error) {
	err = d.DB.Write(ctx, func(tx *db.Tx) error {
		m, t, err := d.Teams.AcceptTx(ctx, tx, u, q.PathValue("token"))
		if err != nil {
			return err
		}
		to = "/?team=" + t.Slug
		if m.Role == account.RoleBilling {
			to = "/teams/" + t.Slug + "/members"
		}
		return d.Accounts.AuditTx(ctx, tx, audit.Actor{User: u.ID, Owner: t.Owner, Session: q.Session.ID, Addr: q.Addr}, audit.Event{
			Action: "member.added", Subject: string(m.User), Detail: "as " + cmp.Or(string(m.Role), "guest"),
		})
	})
	return to, err
}
