package account

import (
	"context"

	"slipway/internal/web/dashboard/shell"
	"slipway/internal/web/requestinfo"
)

// How many mails with a link a window lets somebody ask for: for one address from
// everywhere, and from one network. They are counted also for addresses that nobody has.
const (
	PerForgotten  = 3
	ForgotNetwork = 20
)

type forgotData struct {
	Mails bool
	Sent  string // the address that was typed; empty: nothing was asked for yet
}

func (d *Pages) forgotPage(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	return shell.Page("sign_forgot", "Forgot your password?", forgotData{Mails: d.Accounts.Mails()}), nil
}

// askReset answers the same for every address: who has an account here is nobody's
// business.
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
