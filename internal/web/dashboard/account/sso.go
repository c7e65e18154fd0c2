package account

import (
	"context"
	"net/http"

	"slipway/internal/platform/fault"
	"slipway/internal/tenant/sso"
	"slipway/internal/web/dashboard/shell"
	"slipway/internal/web/requestinfo"
)

// ssoCookie binds a sign-in at a provider to the browser that began it.
const ssoCookie = "slipway-sso"

func (d *Pages) ssoRoutes() []shell.Route {
	return []shell.Route{
		shell.Get("/sign-in/sso", shell.SignedOut, d.ssoSignInPage).AtMain("/sign-in/sso"),
		shell.Post("/sign-in/sso", shell.SignedOut, d.findSSO, d.ssoSignInPage).AtMain("/sign-in/sso"),
		shell.Post("/sign-in/sso/{provider}", shell.SignedOut, d.beginSSO, d.signInPage).AtMain("/sign-in"),
		shell.Get("/sign-in/sso/{provider}/callback", shell.Open, d.finishSSO).AtMain("/sign-in"),
		shell.Post("/account/identities/link", shell.User, d.linkIdentity, d.securityPage).AtMain("/account/security"),
		shell.Post("/account/identities/{identity}/unlink", shell.User, d.unlinkIdentity, d.securityPage),
	}
}

// providers returns the providers for everyone.
func (d *Pages) providers(ctx context.Context) ([]sso.Provider, error) {
	if d.SSO == nil {
		return nil, nil
	}
	return d.SSO.List(ctx)
}

type ssoSignInData struct{ Next string }

func (d *Pages) ssoSignInPage(_ context.Context, q *shell.Request) (shell.Answer, error) {
	return shell.Page("sign_sso", "Single sign-on", ssoSignInData{shell.Local(q.Query("next"))}), nil
}

// findSSO redirects to the team provider for an address's domain, whether or not the user exists.
func (d *Pages) findSSO(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	if d.SSO == nil {
		return shell.Answer{}, fault.Missing("page")
	}
	if err := d.Throttle(ctx, shell.Guesses{Key: "sso-find:" + requestinfo.Network(q.Addr), Limit: shell.PerNetwork}); err != nil {
		return shell.Answer{}, err
	}
	p, err := d.SSO.ForEmail(ctx, q.Value("email"))
	if err != nil {
		return shell.Answer{}, shell.AtCode(err, map[string]string{"no_sso_for_domain": "email"})
	}
	return d.leaveFor(ctx, q, p.ID, sso.Start{Next: shell.Local(q.Query("next"))})
}

// leaveFor redirects to a provider, which redirects back to finishSSO.
func (d *Pages) leaveFor(ctx context.Context, q *shell.Request, id sso.ProviderID, from sso.Start) (shell.Answer, error) {
	if d.SSO == nil {
		return shell.Answer{}, fault.Missing("sign-in provider")
	}
	if err := d.Throttle(ctx, shell.Guesses{Key: "sso-net:" + requestinfo.Network(q.Addr), Limit: shell.PerNetwork}); err != nil {
		return shell.Answer{}, err
	}
	from.Browser = d.ReadCookie(q.Request, ssoCookie)
	if len(from.Browser) < 40 {
		from.Browser = sso.NewBrowser()
	}
	to, err := d.SSO.Begin(ctx, id, from)
	if err != nil {
		return shell.Answer{}, err
	}
	a := shell.Onward(shell.OnwardData{To: to})
	a.Cookies = []*http.Cookie{d.Cookie(ssoCookie, from.Browser, sso.SignInTime)}
	return a, nil
}

func (d *Pages) beginSSO(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	return d.leaveFor(ctx, q, shell.PathID[sso.ProviderID](q, "provider"), sso.Start{Next: shell.Local(q.Query("next"))})
}

// finishSSO handles a provider's response: it signs in, or links the external account to the signed-in user.
func (d *Pages) finishSSO(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	if d.SSO == nil {
		return shell.Answer{}, fault.Missing("page")
	}
	if err := d.Throttle(ctx, shell.Guesses{Key: "sso-back:" + requestinfo.Network(q.Addr), Limit: shell.PerNetwork}); err != nil {
		return shell.Answer{}, err
	}
	id := shell.PathID[sso.ProviderID](q, "provider")
	proof, err := d.SSO.Finish(ctx, id, d.ReadCookie(q.Request, ssoCookie), q.URL.Query())
	if err != nil {
		return shell.Answer{}, err
	}
	if proof.Links() {
		if q.Session.Pending {
			return shell.Answer{}, fault.New(fault.Unauthorized, "signed_out", "Signed out", "sign in again")
		}
		err := d.SSO.Link(ctx, proof, q.Actor())
		return shell.GoTo("/account/security", proof.Provider.Name+" account linked"), err
	}
	s, token, err := d.SSO.SignIn(ctx, proof, q.Device())
	if err != nil {
		return shell.Answer{}, err
	}
	return d.enterAt(s, token, shell.Local(proof.Next)), nil
}

func (d *Pages) linkIdentity(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	if err := d.Prove(ctx, q); err != nil {
		return shell.Answer{}, err
	}
	return d.leaveFor(ctx, q, sso.ProviderID(q.Value("provider")), sso.Start{Session: q.Session.ID})
}

func (d *Pages) unlinkIdentity(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	if d.SSO == nil {
		return shell.Answer{}, fault.Missing("linked account")
	}
	if err := d.Prove(ctx, q); err != nil {
		return shell.Answer{}, err
	}
	err := d.SSO.Unlink(ctx, q.Actor(), shell.PathID[sso.IdentityID](q, "identity"))
	return shell.GoTo("/account/security", "Account unlinked"), err
}
