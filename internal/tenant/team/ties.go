package team

import (
	"context"
	"fmt"

	"slipway/internal/platform/db"
	"slipway/internal/platform/text"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/connection"
	"slipway/internal/tenant/notify"
	"slipway/internal/tenant/oauth"
	"slipway/internal/tenant/site"
	"slipway/internal/tenant/sso"
	"slipway/internal/tenant/webhook"
)

// Ties are the services that keep what an owner has and that names a site or a member, such as keys that are restricted to a site.
type Ties struct {
	Accounts    *account.Accounts
	Connections *connection.Connections
	Webhooks    *webhook.Webhooks
	Notify      *notify.Notifications
	OAuth       *oauth.Server
	SSO         *sso.SSO // Optional: without it teams have no sign-in providers.
}

// cutTx ends what ties the site to an owner, and says what that was, in words.
func (t Ties) cutTx(ctx context.Context, tx *db.Tx, id site.ID, from account.OwnerID) (cut []string, err error) {
	use, err := t.Connections.UseOf(ctx, tx, id)
	if err != nil {
		return nil, err
	}
	if use.Connection != "" {
		cut = append(cut, "the connected Git account stays with the sender: connect one, or add a credential, to deploy from a "+
			"private repository")
	}
	keys, err := t.Accounts.ForgetSiteTx(ctx, tx, from, id)
	if err != nil {
		return nil, err
	}
	if keys > 0 {
		cut = append(cut, fmt.Sprintf("%d API keys of the sender that are restricted to sites lose this one", keys))
	}
	apps, err := t.OAuth.ForgetSiteTx(ctx, tx, from, id)
	if err != nil {
		return nil, err
	}
	if apps > 0 {
		cut = append(cut, text.Count(apps, "app")+" of the sender with access to some sites: this one is no longer among them")
	}
	if err := t.Connections.ForgetSiteTx(ctx, tx, id); err != nil {
		return nil, err
	}
	if err := t.Webhooks.ForgetSiteTx(ctx, tx, id); err != nil {
		return nil, err
	}
	if err := t.Notify.ForgetSiteTx(ctx, tx, id); err != nil {
		return nil, err
	}
	return append(cut, "webhooks and notifications of the sender no longer cover this site"), nil
}

// closeTx deletes what an owner who goes has with these services: connected Git accounts, notification channels, webhooks,
// sign-in providers, and what apps may do.
func (t Ties) closeTx(ctx context.Context, tx *db.Tx, owner account.OwnerID) error {
	closers := []func(context.Context, *db.Tx, account.OwnerID) error{
		t.OAuth.CloseOwnerTx, t.Connections.CloseOwnerTx, t.Notify.CloseOwnerTx, t.Webhooks.DeleteAllTx,
	}
	if t.SSO != nil {
		closers = append(closers, t.SSO.ForgetTeamTx)
	}
	for _, closeTx := range closers {
		if err := closeTx(ctx, tx, owner); err != nil {
			return err
		}
	}
	return nil
}
