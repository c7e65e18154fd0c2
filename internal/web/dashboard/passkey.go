package dashboard

import (
	"context"

	"slipway/internal/platform/db"
	"slipway/internal/tenant/account"
	"slipway/internal/web/requestinfo"
)

// A passkey's ceremony has two requests. A script asks for what the browser must sign
// (JSON); the browser's answer comes back in an ordinary form.

func (d *Dashboard) askPasskey(ctx context.Context, q *request) (answer, error) {
	if err := d.throttle(ctx, guesses{"login-net:" + requestinfo.Network(q.addr), perNetwork}); err != nil {
		return answer{}, err
	}
	c, err := d.Accounts.AskPasskey(ctx)
	return answer{json: c}, err
}

func (d *Dashboard) signInPasskey(ctx context.Context, q *request) (answer, error) {
	s, token, err := d.Accounts.SignInPasskey(ctx, q.value("token"), []byte(q.value("response")), q.device())
	if err != nil {
		return answer{}, err
	}
	return d.enter(q, s, token), nil
}

func (d *Dashboard) offerPasskey(ctx context.Context, q *request) (answer, error) {
	c, err := d.Accounts.OfferPasskey(ctx, q.user.ID)
	return answer{json: c}, err
}

func (d *Dashboard) addPasskey(ctx context.Context, q *request) (answer, error) {
	if err := d.prove(ctx, q); err != nil {
		return answer{}, err
	}
	err := d.Accounts.AddPasskey(ctx, q.actor(), q.value("name"), q.value("token"), []byte(q.value("response")))
	return goTo("/account/security", "Passkey added"), err
}

func (d *Dashboard) removePasskey(ctx context.Context, q *request) (answer, error) {
	if err := d.prove(ctx, q); err != nil {
		return answer{}, err
	}
	id := account.PasskeyID(q.PathValue("passkey"))
	err := d.act(ctx, q, "passkey.removed", func(tx *db.Tx) (string, error) {
		return string(id), d.Accounts.RemovePasskeyTx(ctx, tx, q.user.ID, id)
	})
	return goTo("/account/security", "Passkey removed"), err
}
