package account

import (
	"context"

	"slipway/internal/web/dashboard/shell"
	"slipway/internal/web/requestinfo"
)

// Limits of reset emails per window, per address and per network. Requests for unknown addresses count too.
const (
	PerForgotten  = 3
	ForgotNetwork = 20
)

type forgotData struct {
	Mails bool
	Sent  string // the entered address; empty: none yet
}

func (d *Pages) forgotPage(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	return shell.Page("sign_forgot", "Forgot your password?", forgotData{Mails: d.Accounts.Mails()}), nil
}

// askReset gives the same answer for every address, so that it doesn't reveal who has an account.
func (d *Pages) askReset(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	email := shell.TypedEmail(q.Value("email"))
	if err := d.Throttle(ctx,
		shell.Guesses{Key: "forgot-net:" + requestinfo.Network(q.Addr), Limit: ForgotNetwork},
		shell.Guesses{Key: "forgot:" + email, Limit: PerForgotten}); err != nil {
		return shell.Answer{}, err
	}
	if err := d.Accounts.AskReset(ctx, q.Value("email"), q.Device()); err != nil {
		return shell.Answer{}, err
	}
	return shell.Page("sign_forgot", "Check your email", forgotData{true, email}), nil
}
