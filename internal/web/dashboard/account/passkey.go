package account

import (
	"context"

	"slipway/internal/platform/db"
	"slipway/internal/tenant/account"
	"slipway/internal/web/dashboard/shell"
	"slipway/internal/web/requestinfo"
)

// A passkey's ceremony has two requests. A script asks for what the browser must sign
// (JSON); the browser's answer comes back in an ordinary form.

func (d *Pages) askPasskey(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	if err := d.Throttle(ctx, shell.Guesses{Key: "login-net:" + requestinfo.Network(q.Addr), Limit: shell.PerNetwork}); err != nil {
		return shell.Answer{}, err
	}
	c, err := d.Accounts.AskPasskey(ctx)
	return shell.Answer{Json: c}, err
}

func (d *Pages) signInPasskey(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	s, token, err := d.Accounts.SignInPasskey(ctx, q.Value("token"), []byte(q.Value("response")), q.Device())
	if err != nil {
		return shell.Answer{}, err
	}
	return d.enter(q, s, token), nil
}

func (d *Pages) offerPasskey(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	c, err := d.Accounts.OfferPasskey(ctx, q.User.ID)
	return shell.Answer{Json: c}, err
}

func (d *Pages) addPasskey(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	if err := d.Prove(ctx, q); err != nil {
		return shell.Answer{}, err
	}
	err := d.Accounts.AddPasskey(ctx, q.Actor(), q.Value("name"), q.Value("token"), []byte(q.Value("response")))
	return shell.GoTo("/account/security", "Passkey added"), err
}

func (d *Pages) removePasskey(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	if err := d.Prove(ctx, q); err != nil {
		return shell.Answer{}, err
	}
	id := shell.PathID[account.PasskeyID](q, "passkey")
	err := d.Act(ctx, q, "passkey.removed", func(tx *db.Tx) (string, error) {
		return string(id), d.Accounts.RemovePasskeyTx(ctx, tx, q.User.ID, id)
	})
	return shell.GoTo("/account/security", "Passkey removed"), err
}
