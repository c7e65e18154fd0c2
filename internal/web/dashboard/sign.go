package dashboard

import (
	"context"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"slipway/internal/platform/fault"
	"slipway/internal/tenant/account"
	"slipway/internal/web/requestinfo"
)

// How many guesses a window of 15 minutes lets through: for one account from one
// network, from one network, for one account from everywhere, and of second factors.
// The first is for a forgetful owner; the third keeps a swarm slow without letting
// a single stranger lock an owner out. For IPv6 the first two hold for the /64, the /56 and
// the /48 alike, and the third does not concern networks that the owner is signed in from.
const (
	perAccountHere = 20
	perNetwork     = 60
	perAccount     = 200
	perFactor      = 10
)

// guesses holds a key to count attempts by, and how many are allowed.
type guesses struct {
	key   string
	limit int
}

// throttle counts a guess and refuses it when it is one too many. Keys are counted one
// after another: those behind the first that refuses are spared.
func (d *Dashboard) throttle(ctx context.Context, counts ...guesses) error {
	for _, c := range counts {
		win, err := d.logins.Take(ctx, c.key, c.limit)
		if err != nil {
			return err
		}
		if !win.Allowed {
			wait := time.Duration(win.Wait()) * time.Second
			return &fault.Error{
				Kind:       fault.Limited,
				Message:    "Too many attempts",
				Details:    "try again " + relative(wait),
				Code:       "too_many_attempts",
				RetryAfter: wait,
			}
		}
	}
	return nil
}

func (d *Dashboard) throttlePassword(ctx context.Context, q *request, email string) error {
	email = typedEmail(email)
	networks := requestinfo.Networks(q.addr)
	var counts []guesses
	for _, n := range networks {
		counts = append(counts, guesses{"login-net:" + n, perNetwork}, guesses{"login-here:" + n + "/" + email, perAccountHere})
	}
	known, err := d.Accounts.SignedInFrom(ctx, email, func(a netip.Addr) bool { return requestinfo.Network(a) == networks[0] })
	if err != nil {
		return err
	}
	if !known { // strangers' guesses never lock an owner out where they are signed in
		counts = append(counts, guesses{"login-all:" + email, perAccount})
	}
	return d.throttle(ctx, counts...)
}

// typedEmail is an address as it is counted, whatever was typed.
func typedEmail(s string) string { return short(254, clean(strings.ToLower(strings.TrimSpace(s)))) }

type signInData struct {
	Next     string
	Empty    bool // there is no user yet
	Passkeys bool
	Mails    bool // who forgot their password can be sent a link
}

func (d *Dashboard) signInPage(ctx context.Context, q *request) (answer, error) {
	empty, err := d.Accounts.Empty(ctx)
	if err != nil {
		return answer{}, err
	}
	return page("sign_in", "Sign in", signInData{
		Next:     local(q.query("next")),
		Empty:    empty,
		Passkeys: d.Accounts.Passkeys(),
		Mails:    d.Accounts.Mails(),
	}), nil
}

func (d *Dashboard) signIn(ctx context.Context, q *request) (answer, error) {
	if err := d.throttlePassword(ctx, q, q.value("email")); err != nil {
		return answer{}, err
	}
	s, token, err := d.Accounts.SignIn(ctx, q.value("email"), q.value("password"), q.device())
	if fault.Is(err, fault.Unauthorized) {
		err = at("password", err)
	}
	if err != nil {
		return answer{}, err
	}
	return d.enter(q, s, token), nil
}

// enter gives a new session its cookie and goes where the user wanted to.
func (d *Dashboard) enter(q *request, s account.Session, token string) answer {
	a := goTo(local(q.query("next")), "")
	if s.Pending {
		a = goTo("/sign-in/code"+nextOf(q), "")
	}
	a.cookies = []*http.Cookie{d.signedIn(token)}
	return a
}

func (d *Dashboard) codePage(ctx context.Context, q *request) (answer, error) {
	return page("sign_code", "Two-factor authentication", signInData{Next: local(q.query("next"))}), nil
}

func (d *Dashboard) passCode(ctx context.Context, q *request) (answer, error) {
	if err := d.throttle(ctx, guesses{"login-code:" + string(q.user.ID), perFactor}); err != nil {
		return answer{}, err
	}
	s, token, err := d.Accounts.PassFactor(ctx, q.session, q.value("code"), q.device())
	if err != nil {
		return answer{}, at("code", err)
	}
	return d.enter(q, s, token), nil
}

func (d *Dashboard) signOut(ctx context.Context, q *request) (answer, error) {
	a := goTo("/sign-in", "Signed out")
	a.cookies = []*http.Cookie{d.noCookie(sessionCookie)}
	if q.user.ID == "" {
		return a, nil
	}
	return a, d.endSession(ctx, q, q.session.ID)
}

func (d *Dashboard) setTheme(ctx context.Context, q *request) (answer, error) {
	a := goTo(local(q.value("back")), "")
	switch t := q.value("theme"); t {
	case "light", "dark":
		a.cookies = []*http.Cookie{d.cookie(themeCookie, t, 400*24*time.Hour)}
	default:
		a.cookies = []*http.Cookie{d.noCookie(themeCookie)}
	}
	return a, nil
}

type setupData struct {
	First   bool
	Invited bool // the account has no password yet
	Email   string
}

func (d *Dashboard) setupPage(ctx context.Context, q *request) (answer, error) {
	u, err := d.Accounts.SetupLink(ctx, q.PathValue("token"))
	if err != nil {
		return answer{}, err
	}
	title := "Choose a new password"
	switch {
	case u.ID == "":
		title = "Welcome to Slipway"
	case !u.Password:
		title = "Accept your invite"
	}
	return page("sign_setup", title, setupData{u.ID == "", u.ID != "" && !u.Password, u.Email}), nil
}

func (d *Dashboard) setUp(ctx context.Context, q *request) (answer, error) {
	if err := d.throttle(ctx, guesses{"setup-net:" + requestinfo.Network(q.addr), perNetwork}); err != nil {
		return answer{}, err
	}
	s, token, err := d.Accounts.SetUp(ctx, q.PathValue("token"), q.value("email"), q.value("password"), q.device())
	if err != nil {
		return answer{}, err
	}
	a := d.enter(q, s, token)
	if !s.Pending {
		a.flash = "Welcome to Slipway"
	}
	return a, nil
}
