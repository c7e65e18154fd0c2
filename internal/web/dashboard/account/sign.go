package account

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"slipway/internal/platform/fault"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/sso"
	"slipway/internal/web/dashboard/shell"
	"slipway/internal/web/requestinfo"
)

// signRoutes lists the routes for people who aren't signed in.
func (d *Pages) signRoutes() []shell.Route {
	return []shell.Route{
		shell.Post("/theme", shell.Open, d.setTheme, nil),
		shell.Get("/setup/{token}", shell.Open, d.setupPage),
		shell.Post("/setup/{token}", shell.Open, d.setUp, d.setupPage),
		shell.Get("/sign-in", shell.SignedOut, d.signInPage),
		shell.Post("/sign-in", shell.SignedOut, d.signIn, d.signInPage),
		shell.Post("/sign-in/passkey/begin", shell.SignedOut, d.askPasskey, nil).AtMain("/sign-in"),
		shell.Post("/sign-in/passkey", shell.SignedOut, d.signInPasskey, d.signInPage).AtMain("/sign-in"),
		shell.Get("/forgot", shell.SignedOut, d.forgotPage),
		shell.Post("/forgot", shell.SignedOut, d.askReset, d.forgotPage),
		shell.Get("/sign-in/code", shell.Halfway, d.codePage),
		shell.Post("/sign-in/code", shell.Halfway, d.passCode, d.codePage),
		shell.Get("/step-up", shell.User, d.stepUpPage).AnyTeam(),
		shell.Post("/step-up", shell.User, d.stepUp, d.stepUpPage).AnyTeam(),
		shell.Post("/step-up/passkey/begin", shell.User, d.askPasskey, nil).AnyTeam().AtMain("/step-up"),
		shell.Post("/step-up/passkey", shell.User, d.stepUpPasskey, d.stepUpPage).AnyTeam().AtMain("/step-up"),
		shell.Post("/sign-out", shell.Open, d.signOut, nil),
		shell.Get("/notifications/confirm/{token}", shell.Open, d.confirmPage),
		shell.Post("/notifications/confirm/{token}", shell.Open, d.confirm, d.confirmPage),
		shell.Get("/notifications/stop/{token}", shell.Open, d.stopPage),
		shell.Post("/notifications/stop/{token}", shell.Open, d.stop, d.stopPage),

		shell.Get("/access", shell.User, d.answerAccess).AnyTeam(),
	}
}

type signInData struct {
	Next      string
	Providers []sso.Provider
	Teams     bool // whether any team has its own provider
	Empty     bool // no user exists yet
	Passkeys  bool
	Mails     bool // whether password reset links can be emailed
	SignUp    bool // whether people can create an account
}

func (d *Pages) signInPage(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	empty, err := d.Accounts.Empty(ctx)
	if err != nil {
		return shell.Answer{}, err
	}
	providers, err := d.providers(ctx)
	if err != nil {
		return shell.Answer{}, err
	}
	teams := false
	if d.SSO != nil {
		if teams, err = d.SSO.TeamsSignIn(ctx); err != nil {
			return shell.Answer{}, err
		}
	}
	return shell.Page("sign_in", "Sign in", signInData{
		Providers: providers,
		Teams:     teams,
		Next:      shell.Local(q.Query("next")),
		Empty:     empty,
		Passkeys:  d.Accounts.Passkeys() && d.Elsewhere(q) == "",
		Mails:     d.Accounts.Mails(),
		SignUp:    d.SignUp,
	}), nil
}

func (d *Pages) signIn(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	if err := d.ThrottlePassword(ctx, q, q.Value("email")); err != nil {
		return shell.Answer{}, err
	}
	s, token, err := d.Accounts.SignIn(ctx, q.Value("email"), q.Value("password"), q.Device())
	if fault.Is(err, fault.Unauthorized) {
		err = shell.At("password", err)
	}
	if err != nil {
		return shell.Answer{}, err
	}
	return d.enter(q, s, token), nil
}

// enter sets the cookie of a new session and redirects to the requested page.
func (d *Pages) enter(q *shell.Request, s account.Session, token string) shell.Answer {
	return d.enterAt(s, token, shell.Local(q.Query("next")))
}

// enterAt sets the cookie of a new session and redirects to next.
func (d *Pages) enterAt(s account.Session, token, next string) shell.Answer {
	a := shell.GoTo(next, "")
	if s.Pending {
		a = shell.GoTo("/sign-in/code", "")
		if next != "/" {
			a.To += "?next=" + url.QueryEscape(next)
		}
	}
	a.Cookies = []*http.Cookie{d.SignedIn(token)}
	return a
}

func (d *Pages) codePage(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	return shell.Page("sign_code", "Two-factor authentication", signInData{Next: shell.Local(q.Query("next"))}), nil
}

func (d *Pages) passCode(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	if err := d.Throttle(ctx, shell.Guesses{Key: "login-code:" + string(q.User.ID), Limit: shell.PerFactor}); err != nil {
		return shell.Answer{}, err
	}
	s, token, err := d.Accounts.PassFactor(ctx, q.Session, q.Value("code"), q.Device())
	if err != nil {
		return shell.Answer{}, shell.At("code", err)
	}
	return d.enter(q, s, token), nil
}

func (d *Pages) signOut(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	a := shell.GoTo("/sign-in", "Signed out")
	a.Cookies = []*http.Cookie{d.NoCookie(shell.SessionCookie)}
	if q.User.ID == "" {
		return a, nil
	}
	return a, d.endSession(ctx, q, q.Session.ID)
}

func (d *Pages) setTheme(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	a := shell.GoTo(shell.Local(q.Value("back")), "")
	switch t := q.Value("theme"); t {
	case "light", "dark":
		a.Cookies = []*http.Cookie{d.Cookie(shell.ThemeCookie, t, 400*24*time.Hour)}
	default:
		a.Cookies = []*http.Cookie{d.NoCookie(shell.ThemeCookie)}
	}
	return a, nil
}

type setupData struct {
	First   bool
	Invited bool // the user has no way to sign in yet
	Email   string
}

func (d *Pages) setupPage(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	u, err := d.Accounts.SetupLink(ctx, q.PathValue("token"))
	if err != nil {
		return shell.Answer{}, err
	}
	title := "Choose a new password"
	switch {
	case u.ID == "":
		title = "Welcome to " + d.NameAt(q)
	case u.Invited:
		title = "Accept your invite"
	}
	return shell.Page("sign_setup", title, setupData{u.ID == "", u.Invited, u.Email}), nil
}

func (d *Pages) setUp(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	if err := d.Throttle(ctx, shell.Guesses{Key: "setup-net:" + requestinfo.Network(q.Addr), Limit: shell.PerNetwork}); err != nil {
		return shell.Answer{}, err
	}
	s, token, err := d.Accounts.SetUp(ctx, q.PathValue("token"), q.Value("email"), q.Value("password"), q.Device())
	if err != nil {
		return shell.Answer{}, err
	}
	a := d.enter(q, s, token)
	if !s.Pending {
		a.Flash = "Welcome to " + d.NameAt(q)
	}
	return a, nil
}

// answerAccess redirects a member back to the protected address.
func (d *Pages) answerAccess(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	if d.Members == nil {
		return shell.Answer{}, fault.Missing("page")
	}
	to, err := d.Members.Answer(ctx, q.User, q.Session, q.Query("ask"))
	if err != nil {
		return shell.Answer{}, err
	}
	return shell.Onward(shell.OnwardData{To: to, Back: true}), nil
}
