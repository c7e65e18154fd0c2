package account

import (
	"context"

	"slipway/internal/platform/fault"
	"slipway/internal/tenant/billing/seller"
	"slipway/internal/web/dashboard/shell"
	"slipway/internal/web/requestinfo"
)

// Limits of sign-up emails per window, per address and per network.
const (
	PerSignUp     = 3
	SignUpNetwork = 10
)

type signUpData struct {
	Mails bool
	Sent  string // the entered address; empty: none yet
	Email string // verified by the link
	Plans bool   // whether a plan is chosen next
}

// signUpRoutes lists the sign-up pages, which exist if the operator allows sign-up.
func (d *Pages) signUpRoutes() []shell.Route {
	if !d.SignUp {
		return nil
	}
	return []shell.Route{
		shell.Get("/sign-up", shell.SignedOut, d.signUpPage),
		shell.Post("/sign-up", shell.SignedOut, d.askSignUp, d.signUpPage),
		shell.Get("/sign-up/{token}", shell.SignedOut, d.signUpLinkPage),
		shell.Post("/sign-up/{token}", shell.SignedOut, d.signUp, d.signUpLinkPage),
	}
}

func (d *Pages) signUpPage(context.Context, *shell.Request) (shell.Answer, error) {
	return shell.Page("sign_up", "Create an account", signUpData{Mails: d.Accounts.Mails()}), nil
}

// askSignUp gives the same answer for every address, so that it doesn't reveal who has an account.
func (d *Pages) askSignUp(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	email := shell.TypedEmail(q.Value("email"))
	if err := d.Throttle(ctx,
		shell.Guesses{Key: "sign-up-net:" + requestinfo.Network(q.Addr), Limit: SignUpNetwork},
		shell.Guesses{Key: "sign-up:" + email, Limit: PerSignUp}); err != nil {
		return shell.Answer{}, err
	}
	at, _ := d.Sellers.At(q.Host)
	if err := d.Accounts.AskSignUp(ctx, q.Value("email"), at.Seller, q.Device()); err != nil {
		if fault.Is(err, fault.Invalid) {
			err = shell.At("email", err)
		}
		return shell.Answer{}, err
	}
	return shell.Page("sign_up", "Check your email", signUpData{Mails: true, Sent: email}), nil
}

func (d *Pages) signUpLinkPage(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	email, err := d.Accounts.SignUpLink(ctx, q.PathValue("token"))
	return shell.Page("sign_up", "Choose a password", signUpData{Mails: true, Email: email, Plans: d.Plans}), err
}

func (d *Pages) signUp(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	if err := d.Throttle(ctx, shell.Guesses{Key: "setup-net:" + requestinfo.Network(q.Addr), Limit: shell.PerNetwork}); err != nil {
		return shell.Answer{}, err
	}
	s, token, err := d.Accounts.SignUp(ctx, q.PathValue("token"), q.Value("password"), q.Device(), seller.AssignTx)
	if err != nil {
		return shell.Answer{}, err
	}
	next := "/"
	if d.Plans {
		next = "/account/plan"
	}
	a := d.enterAt(s, token, next)
	a.Flash = "Welcome to " + d.NameAt(q)
	return a, nil
}
