package dashboard

import (
	"context"

	"slipway/internal/web/requestinfo"
)

// How many mails with a link a window lets somebody ask for: for one address from
// everywhere, and from one network. They are counted also for addresses that nobody has.
const (
	perForgotten  = 3
	forgotNetwork = 20
)

type forgotData struct {
	Mails bool
	Sent  string // the address that was typed; empty: nothing was asked for yet
}

func (d *Dashboard) forgotPage(ctx context.Context, q *request) (answer, error) {
	return page("sign_forgot", "Forgot your password?", forgotData{Mails: d.Accounts.Mails()}), nil
}

// askReset answers the same for every address: who has an account here is nobody's
// business.
func (d *Dashboard) askReset(ctx context.Context, q *request) (answer, error) {
	email := typedEmail(q.value("email"))
	if err := d.throttle(ctx,
		guesses{"forgot-net:" + requestinfo.Network(q.addr), forgotNetwork},
		guesses{"forgot:" + email, perForgotten}); err != nil {
		return answer{}, err
	}
	if err := d.Accounts.AskReset(ctx, q.value("email"), q.device()); err != nil {
		return answer{}, err
	}
	return page("sign_forgot", "Check your email", forgotData{true, email}), nil
}
