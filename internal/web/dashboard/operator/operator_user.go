package operator

import (
	"context"

	"slipway/internal/platform/db"
	"slipway/internal/platform/text"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/audit"
	"slipway/internal/web/dashboard/shell"
)

type userData struct {
	Who      account.User
	Sites    int
	Keys     int
	Sessions int
	Factor   account.Factor
	Passkeys int
	Link     string // one-time link, shown once
	Invited  bool   // whether the link is an invitation
	Mailed   bool   // whether it was also emailed

	Customer string // page with the user's plan; empty if there are no plans

	LastOwnerOf []string // slugs of teams without another active owner
}

// whose returns the page's user.
func (d *Pages) whose(ctx context.Context, q *shell.Request) (account.User, error) {
	return d.Accounts.User(ctx, shell.PathID[account.UserID](q, "user"))
}

func (d *Pages) userPage(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	u, err := d.whose(ctx, q)
	if err != nil {
		return shell.Answer{}, err
	}
	data, err := d.userData(ctx, u)
	return shell.Page("operator_user", u.Email, data), err
}

func (d *Pages) userData(ctx context.Context, u account.User) (data userData, err error) {
	data.Who = u
	if d.Billing {
		data.Customer = "/operator/customers/" + string(u.Owner)
	}
	if _, data.Sites, err = d.Sites.List(ctx, u.Owner, shell.OneSite); err != nil {
		return data, err
	}
	keys, err := d.Accounts.ListKeys(ctx, u.Caller())
	if err != nil {
		return data, err
	}
	sessions, err := d.Accounts.Sessions(ctx, u.ID)
	if err != nil {
		return data, err
	}
	data.Keys, data.Sessions = len(keys), len(sessions)
	if data.LastOwnerOf, err = account.LastOwnerOf(ctx, d.DB, u.ID); err != nil {
		return data, err
	}
	passkeys, err := d.Accounts.ListPasskeys(ctx, u.ID)
	if err != nil {
		return data, err
	}
	data.Passkeys = len(passkeys)
	data.Factor, err = d.Accounts.SecondFactor(ctx, u.ID)
	return data, err
}

// showLink shows a one-time link, which isn't stored.
func (d *Pages) showLink(ctx context.Context, u account.User, token string) (shell.Answer, error) {
	data, err := d.userData(ctx, u)
	data.Link, data.Invited = d.BaseURL+"/setup/"+token, u.Invited
	data.Mailed = data.Invited && d.Accounts.Mails()
	return shell.Page("operator_user", u.Email, data), err
}

func (d *Pages) invite(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	if err := d.Prove(ctx, q); err != nil {
		return shell.Answer{}, err
	}
	var u account.User
	var token string
	err := d.ActOn(ctx, q, func(tx *db.Tx) (deed audit.Event, err error) {
		if u, token, err = d.Accounts.InviteTx(ctx, tx, q.Value("email"), q.Value("role") == "operator"); err == nil {
			err = d.Accounts.MailInvitationTx(ctx, tx, u, token)
		}
		return audit.Event{Action: "user.invited", Subject: string(u.ID), About: u.ID, Detail: u.Email}, err
	})
	if err != nil {
		return shell.Answer{}, err
	}
	return d.showLink(ctx, u, token)
}

func (d *Pages) makeLink(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	if err := d.Prove(ctx, q); err != nil {
		return shell.Answer{}, err
	}
	u, err := d.whose(ctx, q)
	if err != nil {
		return shell.Answer{}, err
	}
	var token string
	err = d.ActOn(ctx, q, func(tx *db.Tx) (deed audit.Event, err error) {
		// The operator hands over the link of a new password, since the user may have lost access to the mailbox.
		if token, err = d.Accounts.NewSetupLinkTx(ctx, tx, u.ID, account.LinkLife); err == nil && u.Invited {
			err = d.Accounts.MailInvitationTx(ctx, tx, u, token)
		}
		return audit.Event{Action: "password.link", Subject: string(u.ID), About: u.ID, Detail: u.Email}, err
	})
	if err != nil {
		return shell.Answer{}, err
	}
	return d.showLink(ctx, u, token)
}

func (d *Pages) uninvite(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	u, err := d.whose(ctx, q)
	if err != nil {
		return shell.Answer{}, err
	}
	err = d.ActOn(ctx, q, func(tx *db.Tx) (audit.Event, error) {
		return audit.Event{
			Action:  "user.uninvited",
			Subject: string(u.ID),
			About:   u.ID,
			Detail:  u.Email,
		}, d.Accounts.UninviteTx(ctx, tx, u.ID)
	})
	return shell.GoTo("/operator/users", "Invite revoked"), err
}

func (d *Pages) signOutUser(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	u, err := d.whose(ctx, q)
	if err != nil {
		return shell.Answer{}, err
	}
	var n int64
	err = d.ActOn(ctx, q, func(tx *db.Tx) (audit.Event, error) {
		n, err = d.Accounts.EndSessionsTx(ctx, tx, u.ID, q.Session.ID)
		return audit.Event{
			Action:  "sessions.ended",
			Subject: string(u.ID),
			About:   u.ID,
			Detail:  text.Count(int(n), "session") + " of " + u.Email,
		}, err
	})
	return shell.GoTo("/operator/users/"+string(u.ID), "Ended "+text.Count(int(n), "session")), err
}

func (d *Pages) dropFactor(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	if err := d.Prove(ctx, q); err != nil {
		return shell.Answer{}, err
	}
	u, err := d.whose(ctx, q)
	if err != nil {
		return shell.Answer{}, err
	}
	err = d.ActOn(ctx, q, func(tx *db.Tx) (audit.Event, error) {
		did := audit.Event{Action: "second_factor.disabled", Subject: string(u.ID), About: u.ID, Detail: "of " + u.Email}
		if err := d.Accounts.DropTOTPTx(ctx, tx, u.ID, q.Session.ID); err != nil {
			return did, err
		}
		return did, d.tellLost(ctx, tx, u, "Two-factor authentication disabled", "disabled two-factor authentication of your account")
	})
	return shell.GoTo("/operator/users/"+string(u.ID), "Two-factor authentication disabled"), err
}

func (d *Pages) dropPasskeys(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	if err := d.Prove(ctx, q); err != nil {
		return shell.Answer{}, err
	}
	u, err := d.whose(ctx, q)
	if err != nil {
		return shell.Answer{}, err
	}
	removed := ""
	err = d.ActOn(ctx, q, func(tx *db.Tx) (audit.Event, error) {
		n, err := d.Accounts.DropPasskeysTx(ctx, tx, u.ID)
		removed = text.Count(int(n), "passkey")
		if err == nil && n > 0 {
			err = d.tellLost(ctx, tx, u, "Passkeys removed", "removed "+removed+" from your account")
		}
		return audit.Event{Action: "passkey.removed", Subject: string(u.ID), About: u.ID, Detail: removed + " of " + u.Email}, err
	})
	return shell.GoTo("/operator/users/"+string(u.ID), "Removed "+removed), err
}

// tellLost emails a user that an operator removed a lost authentication method.
func (d *Pages) tellLost(ctx context.Context, tx *db.Tx, u account.User, subject, what string) error {
	return d.Accounts.TellOwnerTx(ctx, tx, u.Owner, subject, "The operator of this installation "+what+
		". If you didn't ask for it, change your password and reply to the operator.", "/account/security")
}
