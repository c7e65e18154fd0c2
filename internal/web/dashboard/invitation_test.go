package dashboard

import (
	"strings"
	"testing"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/id"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/mail/mailtest"
	"slipway/internal/tenant/team"
)

// Opening an invitation doesn't use it up. Another account is asked to sign out, the invited user accepts with a click,
// and a user without an account chooses a password even if sign-up is closed. Without email the inviter has the link,
// so it creates an account only if an operator made the invitation.
func TestInvitationPage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ada := w.user("ada@example.test", false)
	w.user("root@example.test", true)
	w.user("ben@example.test", false)
	w.user("eve@example.test", false)
	ctx := t.Context()
	var acme team.Team
	var narrow func(*account.Caller) // the inviter's restricted caller; nil: unrestricted
	invite := func(email string) (path string) {
		t.Helper()
		if err := w.db.Write(ctx, func(tx *db.Tx) (err error) {
			if acme.ID == "" {
				if acme, err = w.dash.Teams.CreateTx(ctx, tx, ada, team.NewTeam{Name: "Acme"}); err != nil {
					return err
				}
			}
			c, err := w.dash.Accounts.CallerFor(ctx, tx, ada, acme.Owner)
			if err != nil {
				return err
			}
			if narrow != nil {
				narrow(&c)
			}
			_, token, err := w.dash.Teams.InviteTx(ctx, tx, c, team.NewInvitation{Email: email, Role: account.RoleDeveloper})
			path = "/invitations/" + token
			return err
		}); err != nil {
			t.Fatal(err)
		}
		return path
	}
	member := func(email string) bool {
		t.Helper()
		list, _, err := w.dash.Teams.Members(ctx, acme.Owner, team.MemberFilter{})
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range list {
			if m.Email == email && m.Role == account.RoleDeveloper {
				return true
			}
		}
		return false
	}

	path := invite("ben@example.test")
	if p := w.browser().get(path); p.status != 200 || !p.has("sign-in") || p.has("submit") {
		t.Errorf("a user with an account, signed out: %s", p)
	}
	if p := w.browser().post(path, "password", "a password of a stranger"); p.status != 303 ||
		!strings.HasPrefix(p.header.Get("Location"), "/sign-in?next=") {
		t.Errorf("signed out, posted: %s", p)
	}
	eve := w.as("eve@example.test")
	if p := eve.get(path); p.status != 200 || !p.has("other-address") || p.has("submit") {
		t.Errorf("another account: %s", p)
	}
	if p := eve.post(path); p.status != 403 {
		t.Errorf("another account accepts: %s", p)
	}
	ben := w.as("ben@example.test")
	if p := ben.get(path); !p.has("submit") || member("ben@example.test") {
		t.Errorf("opening it: %s", p)
	}
	if p := ben.post(path); p.header.Get("Location") != "/?team=acme" || !member("ben@example.test") {
		t.Errorf("accepting it: %s", p)
	}
	if p := ben.get(path); p.status != 404 {
		t.Errorf("a spent one: %s", p)
	}

	noUser := func(email string) {
		t.Helper()
		if _, err := w.dash.Accounts.UserByEmail(ctx, email); !fault.Is(err, fault.NotFound) {
			t.Errorf("the user %s is there: %v", email, err)
		}
	}
	path = invite("boss@example.test")
	if p := w.browser().get(path); p.status != 200 || !p.has("needs-account") || p.has("submit") || p.has("sign-in") {
		t.Errorf("without an account, invited by a user: %s", p)
	}
	p := w.browser().post(path, "password", "a password of the inviter")
	if p.status != 403 || !strings.Contains(p.body, "This server sends no email, so an operator must create your account first") {
		t.Errorf("without an account, invited by a user, posted: %s", p)
	}
	noUser("boss@example.test")

	operator := func(is bool) {
		t.Helper()
		must(t, w.db.Write(ctx, func(tx *db.Tx) error {
			_, err := w.dash.Accounts.SetRoleTx(ctx, tx, ada.ID, is)
			return err
		}))
	}
	path = invite("boss@example.test")
	operator(true)
	if p := w.browser().get(path); !p.has("submit") || p.has("needs-account") {
		t.Errorf("without an account, invited by an operator: %s", p)
	}
	operator(false)
	if p := w.browser().post(path, "password", "a password of the inviter"); p.status != 403 {
		t.Errorf("without an account, invited by an operator of the past: %s", p)
	}
	noUser("boss@example.test")
	operator(true)
	for what, with := range map[string]func(*account.Caller){
		"an app":                   func(c *account.Caller) { c.Grant, c.App = "grt_1", "app_1" },
		"a key restricted to site": func(c *account.Caller) { c.Sites = []id.Site{"site_1"} },
		"a service key":            func(c *account.Caller) { c.Service = true },
	} {
		narrow = with
		path = invite("boss@example.test")
		if p := w.browser().get(path); !p.has("needs-account") || p.has("submit") {
			t.Errorf("without an account, invited by an operator through %s: %s", what, p)
		}
		if p := w.browser().post(path, "password", "a password of the app"); p.status != 403 {
			t.Errorf("without an account, invited by an operator through %s, posted: %s", what, p)
		}
		noUser("boss@example.test")
	}
	narrow = nil
	path = invite("new@example.test")
	b := w.browser()
	if p := b.get(path); p.status != 200 || !p.has("submit") || p.has("sign-in") {
		t.Errorf("without an account: %s", p)
	}
	if p := b.post(path, "password", "short"); p.status != 422 {
		t.Errorf("a weak password: %s", p)
	}
	noUser("new@example.test")
	if p := b.post(path, "password", "correct horse battery 9"); p.header.Get("Location") != "/?team=acme" || !member("new@example.test") {
		t.Errorf("a new user: %s", p)
	}
	if p := b.get("/"); p.status != 200 {
		t.Errorf("they are not signed in: %s", p)
	}

	// A link handed over by hand can't set an existing user's password, because the inviter knows the link.
	if _, err := w.dash.Accounts.CreateUser(ctx, "none@example.test", "", false); err != nil {
		t.Fatal(err)
	}
	path = invite("none@example.test")
	if p := w.browser().post(path, "password", "correct horse battery 9"); p.status != 303 || member("none@example.test") {
		t.Errorf("a user without a password: %s", p)
	}
	if u, err := w.dash.Accounts.UserByEmail(ctx, "none@example.test"); err != nil || u.Password {
		t.Errorf("they have a password: %v, %v", u, err)
	}
}

// An invitation can't set a password for a user with another sign-in method, because it would act as a week-long
// password reset. A user without a sign-in method and a new user can set one, whoever invites them, because the link
// was emailed.
func TestInvitationIsNoPasswordReset(t *testing.T) {
	t.Parallel()
	w, _ := mailWorld(t, mailtest.Config{})
	ctx := t.Context()
	ada := w.user("ada@example.test", false)
	for email, is := range map[string]struct{ there, passkey bool }{
		"ben@example.test": {true, true}, "new@example.test": {true, false}, "max@example.test": {false, false},
	} {
		if is.there {
			_, err := w.dash.Accounts.CreateUser(ctx, email, "", false)
			must(t, err)
		}
		if is.passkey {
			u, err := w.dash.Accounts.UserByEmail(ctx, email)
			must(t, err)
			must(t, w.db.Admin(ctx, `INSERT INTO passkeys (id, user_id, credential, record, name, created_at, used_at)
				VALUES ('psk_1', '`+string(u.ID)+`', 'c', '{}', 'Key', 1, 0)`))
		}
		var token string
		must(t, w.db.Write(ctx, func(tx *db.Tx) error {
			acme, err := w.dash.Teams.CreateTx(ctx, tx, ada, team.NewTeam{Name: "Acme " + email})
			if err != nil {
				return err
			}
			c, err := w.dash.Accounts.CallerFor(ctx, tx, ada, acme.Owner)
			if err == nil {
				_, token, err = w.dash.Teams.InviteTx(ctx, tx, c, team.NewInvitation{Email: email, Role: account.RoleDeveloper})
			}
			return err
		}))
		p := w.browser().post("/invitations/"+token, "password", "a password of a stranger")
		if in := strings.HasPrefix(p.header.Get("Location"), "/sign-in?next="); in != is.passkey {
			t.Errorf("%s: %s", email, p)
		}
		after, err := w.dash.Accounts.UserByEmail(ctx, email)
		if err != nil || after.Password == is.passkey {
			t.Errorf("%s is %+v, %v", email, after, err)
		}
	}
}
