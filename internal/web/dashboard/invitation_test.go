package dashboard

import (
	"strings"
	"testing"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/mail/mailtest"
	"slipway/internal/tenant/team"
)

// The page of an invitation: opening it spends nothing, another account is told to sign out, the invited user accepts with
// a click, and one who has no account yet chooses a password, although sign-up is closed.
func TestInvitationPage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ada := w.user("ada@example.test", false)
	w.user("ben@example.test", false)
	w.user("eve@example.test", false)
	ctx := t.Context()
	var acme team.Team
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
		t.Errorf("somebody with an account, signed out: %s", p)
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

	path = invite("new@example.test")
	b := w.browser()
	if p := b.get(path); p.status != 200 || !p.has("submit") || p.has("sign-in") {
		t.Errorf("without an account: %s", p)
	}
	if p := b.post(path, "password", "short"); p.status != 422 {
		t.Errorf("a weak password: %s", p)
	}
	if _, err := w.dash.Accounts.UserByEmail(ctx, "new@example.test"); !fault.Is(err, fault.NotFound) {
		t.Errorf("a weak password makes a user: %v", err)
	}
	if p := b.post(path, "password", "correct horse battery 9"); p.header.Get("Location") != "/?team=acme" || !member("new@example.test") {
		t.Errorf("a new user: %s", p)
	}
	if p := b.get("/"); p.status != 200 {
		t.Errorf("they are not signed in: %s", p)
	}

	// A link that was passed on by hand sets no password of a user who is there: who sent it knows it too.
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

// An invitation sets no password for a user who signs in another way: it would be a link for a new password that works for
// a week. A user without any way to sign in gets one.
func TestInvitationIsNoPasswordReset(t *testing.T) {
	t.Parallel()
	w, _ := mailWorld(t, mailtest.Config{})
	ctx := t.Context()
	ada := w.user("ada@example.test", false)
	for email, passkey := range map[string]bool{"ben@example.test": true, "new@example.test": false} {
		u, err := w.dash.Accounts.CreateUser(ctx, email, "", false)
		must(t, err)
		if passkey {
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
		if in := strings.HasPrefix(p.header.Get("Location"), "/sign-in?next="); in != passkey {
			t.Errorf("%s: %s", email, p)
		}
		after, err := w.dash.Accounts.User(ctx, u.ID)
		if err != nil || after.Password == passkey {
			t.Errorf("%s is %+v, %v", email, after, err)
		}
	}
}
