package account

import (
	"context"

	"slipway/internal/platform/db"
	"slipway/internal/tenant/audit"
	"slipway/internal/tenant/notify"
	"slipway/internal/web/dashboard/shell"
	"slipway/internal/web/requestinfo"
)

// recipientData is the data of pages for email recipients without an account.
type recipientData struct {
	Stop    bool   // whether the page unsubscribes
	Done    bool   // whether the recipient has decided
	Address string // the recipient's
}

// perRecipient caps the links that a network can open per window.
const perRecipient = 60

func (d *Pages) throttleRecipient(ctx context.Context, q *shell.Request) error {
	return d.Throttle(ctx, shell.Guesses{Key: "recipient-net:" + requestinfo.Network(q.Addr), Limit: perRecipient})
}

// confirmPage asks for confirmation, since mail programs open links automatically.
func (d *Pages) confirmPage(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	c, err := d.Notify.Confirmation(ctx, d.DB, q.PathValue("token"))
	return shell.Page("recipient", "Confirm notifications", recipientData{Address: c.Address, Done: c.ConfirmedAt != 0}), err
}

func (d *Pages) confirm(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	if err := d.throttleRecipient(ctx, q); err != nil {
		return shell.Answer{}, err
	}
	var c notify.Channel
	err := d.DB.Write(ctx, func(tx *db.Tx) (err error) {
		if c, err = d.Notify.ConfirmTx(ctx, tx, q.PathValue("token")); err != nil {
			return err
		}
		return d.Accounts.AuditTx(ctx, tx, audit.Actor{Owner: c.Owner, Via: "the confirmation email", Addr: q.Addr},
			audit.Event{Action: "notification_channel.confirmed", Subject: string(c.ID), Detail: c.Name})
	})
	return shell.Page("recipient", "Notifications confirmed", recipientData{Address: c.Address, Done: true}), err
}

func (d *Pages) stopPage(_ context.Context, q *shell.Request) (shell.Answer, error) {
	return shell.Page("recipient", "Unsubscribe", recipientData{Stop: true}), d.Notify.StopLink(q.PathValue("token"))
}

// stop handles the page's form and mail programs' one-click requests (RFC 8058 §3.1).
func (d *Pages) stop(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	if err := d.throttleRecipient(ctx, q); err != nil {
		return shell.Answer{}, err
	}
	err := d.DB.Write(ctx, func(tx *db.Tx) error {
		theirs, err := d.Notify.StopTx(ctx, tx, q.PathValue("token"))
		if err != nil {
			return err
		}
		for _, c := range theirs {
			err := d.Accounts.AuditTx(ctx, tx, audit.Actor{Owner: c.Owner, Via: "the link in an email", Addr: q.Addr},
				audit.Event{Action: "notification_channel.unsubscribed", Subject: string(c.ID), Detail: c.Name})
			if err != nil {
				return err
			}
		}
		return nil
	})
	return shell.Page("recipient", "Unsubscribed", recipientData{Stop: true, Done: true}), err
}
