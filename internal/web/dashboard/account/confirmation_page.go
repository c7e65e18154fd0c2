package account

import (
	"context"

	"slipway/internal/platform/db"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/audit"
	"slipway/internal/tenant/confirmation"
	"slipway/internal/web/dashboard/shell"
)

func (d *Pages) confirmation(ctx context.Context, q *shell.Request) (confirmation.Confirmation, error) {
	c, err := d.Confirmations.Find(ctx, q.User.ID, shell.PathID[confirmation.ID](q, "confirmation"))
	if err == nil { // the session must have access to the call's account
		_, err = d.Accounts.CallerIn(ctx, q.User, q.Session, c.Owner)
	}
	return c, err
}

// confirmationPage shows an agent's call to the person who decides, or the decision.
func (d *Pages) confirmationPage(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	c, err := d.confirmation(ctx, q)
	return shell.Page("confirmation", "Confirm a call", c), err
}

// confirmCall records the person's decision. Approval requires the password unless the sign-in is recent, since an
// agent may control the browser.
func (d *Pages) confirmCall(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	c, err := d.confirmation(ctx, q)
	if err != nil {
		return shell.Answer{}, err
	}
	decision := confirmation.Declined
	if q.Value("decision") == "approve" {
		decision = confirmation.Approved
		if err := d.Prove(ctx, q); err != nil {
			return shell.Answer{}, err
		}
	}
	by, err := d.Accounts.CallerIn(ctx, q.User, q.Session, c.Owner)
	if err != nil {
		return shell.Answer{}, err
	}
	err = d.DB.Write(ctx, func(tx *db.Tx) error {
		if err := account.HoldTx(ctx, tx, q.Actor()); err != nil {
			return err
		}
		if err := d.Confirmations.DecideTx(ctx, tx, q.User.ID, c.ID, decision); err != nil {
			return err
		}
		actor := by.Actor(q.Addr)
		actor.Session = q.Session.ID
		// A person who has left the team can't decide for it.
		return d.Accounts.AuditTx(ctx, tx, actor, audit.Event{
			Action: "agent_call." + string(decision), Subject: string(c.ID), Detail: c.Title + ", " + c.Via,
		})
	})
	return shell.GoTo("/confirmations/"+string(c.ID), ""), err
}
