package account

import (
	"context"

	"slipway/internal/platform/db"
	"slipway/internal/tenant/account"
	"slipway/internal/web/dashboard/shell"
	"slipway/internal/web/requestinfo"
)

// A passkey ceremony has two requests. A script fetches the JSON for the browser to sign, and the result is submitted
// in a form.

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
		if err := d.Accounts.MayChangeFactors(ctx, tx, q.Actor()); err != nil {
			return "", err
		}
		return string(id), d.Accounts.RemovePasskeyTx(ctx, tx, q.User.ID, id, q.Session.ID)
	})
	return shell.GoTo("/account/security", "Passkey removed. Other sessions that began with it have ended."), err
}

// A session begun without the second factor can confirm it later if a team requires it.

type stepUpData struct {
	Next     string
	Code     bool   // whether the user has an authenticator app
	Passkeys bool   // whether the user has a passkey for this host
	Main     string // host of the user's passkeys if it isn't this one
}

func (d *Pages) stepUpPage(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	factor, err := d.Accounts.SecondFactor(ctx, q.User.ID)
	if err != nil {
		return shell.Answer{}, err
	}
	list, err := d.Accounts.ListPasskeys(ctx, q.User.ID)
	return shell.Page("step_up", "Two-factor authentication", stepUpData{
		Next: shell.Local(q.Query("next")), Code: factor.On, Passkeys: len(list) > 0 && d.Accounts.Passkeys(), Main: d.Elsewhere(q),
	}), err
}

func (d *Pages) stepUp(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	if err := d.Throttle(ctx, shell.Guesses{Key: "login-code:" + string(q.User.ID), Limit: shell.PerFactor}); err != nil {
		return shell.Answer{}, err
	}
	if err := d.Accounts.StepUp(ctx, q.Actor(), q.Value("code")); err != nil {
		return shell.Answer{}, shell.At("code", err)
	}
	return shell.GoTo(shell.Local(q.Query("next")), ""), nil
}

func (d *Pages) stepUpPasskey(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	err := d.Accounts.StepUpPasskey(ctx, q.Actor(), q.Value("token"), []byte(q.Value("response")))
	return shell.GoTo(shell.Local(q.Query("next")), ""), err
}
