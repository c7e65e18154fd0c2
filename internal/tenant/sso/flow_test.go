package sso_test

import (
	"net/url"
	"strings"
	"testing"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/wait"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/audit"
	"slipway/internal/tenant/sso"
)

// A user who linked an account signs in with it, and the session records the provider.
func TestSignIn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ada := w.user("ada@example.test", password)
	must(t, w.link(ada))
	s, err := w.signIn()
	must(t, err)
	if s.User != ada.ID || s.Method != account.BySSO || s.Provider != "acme" || s.Pending {
		t.Errorf("session %+v, want Ada's with acme", s)
	}
	list, err := w.Identities(t.Context(), ada.ID)
	must(t, err)
	if len(list) != 1 || list[0].Email != "ada@example.test" || list[0].Issuer != w.issuer.srv.URL || list[0].UsedAt == 0 {
		t.Errorf("identities %+v", list)
	}
}

// For a user with a second factor, a provider's sign-in counts only as the password.
func TestSecondFactorIsOwed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ada := w.user("ada@example.test", password)
	must(t, w.link(ada))
	must(t, w.db.Admin(t.Context(), `INSERT INTO second_factors (user_id, secret, confirmed, last_step, created_at) VALUES ('`+string(ada.ID)+`', 'x', TRUE, 0, 1)`))
	s, err := w.signIn()
	must(t, err)
	if !s.Pending {
		t.Error("the second factor is not asked for")
	}
}

// Begin redirects to the provider's URL, and the redirect URI names this provider.
func TestRequest(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	to, err := w.Begin(t.Context(), "acme", sso.Start{Browser: sso.NewBrowser()})
	must(t, err)
	u, err := url.Parse(to)
	must(t, err)
	q := u.Query()
	if !strings.HasPrefix(to, w.issuer.srv.URL+"/authorize?") || q.Get("redirect_uri") != base+"/sign-in/sso/acme/callback" ||
		q.Get("client_id") != "client" || q.Get("scope") != "openid email profile" || q.Get("client_secret") != "" {
		t.Errorf("the request is %s", to)
	}
}

// A state works once, in the browser that started the sign-in, and for the provider it was started with.
func TestState(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	other := w.add(sso.NewProvider{Kind: sso.OIDC, ID: "other", Issuer: w.issuer.srv.URL, ClientID: "client", Secret: "secret"})
	browser := sso.NewBrowser()
	begin := func() url.Values {
		to, err := w.Begin(t.Context(), "acme", sso.Start{Browser: browser})
		must(t, err)
		return w.issuer.approve(to)
	}
	finish := func(id sso.ProviderID, browser string, q url.Values) error {
		_, err := w.Finish(t.Context(), id, browser, q)
		return err
	}
	q := begin()
	must(t, finish("acme", browser, q))
	wantCode(t, finish("acme", browser, q), "invalid_state")                // replayed
	wantCode(t, finish("acme", sso.NewBrowser(), begin()), "invalid_state") // the response of an attacker's sign-in (CSRF)
	wantCode(t, finish("acme", "", begin()), "invalid_state")               // no cookie
	wantCode(t, finish(other.ID, browser, begin()), "invalid_state")        // mix-up: a response for another provider
	wantCode(t, finish("acme", browser, url.Values{"code": {"x"}}), "invalid_state")
	q = begin()
	must(t, w.db.Admin(t.Context(), `UPDATE sso_sign_ins SET expires_at = 1`))
	wantCode(t, finish("acme", browser, q), "invalid_state") // expired
}

// The number of sign-ins in progress per browser is limited.
func TestSignInsAreBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	browser := sso.NewBrowser()
	for range 15 {
		_, err := w.Begin(t.Context(), "acme", sso.Start{Browser: browser})
		must(t, err)
	}
	var n int
	must(t, w.db.QueryRow(t.Context(), `SELECT count(*) FROM sso_sign_ins`).Scan(&n))
	if n != 10 {
		t.Errorf("%d sign-ins are under way, want 10", n)
	}
}

// A provider's refusal is reported with its error and creates no session.
func TestRefusedByProvider(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	browser := sso.NewBrowser()
	to, err := w.Begin(t.Context(), "acme", sso.Start{Browser: browser})
	must(t, err)
	q := w.issuer.approve(to)
	q.Del("code")
	q.Set("error", "access_denied")
	q.Set("error_description", "You said no")
	_, err = w.Finish(t.Context(), "acme", browser, q)
	wantCode(t, err, "sso_refused")
	if f := fault.As(err); f != nil && f.Details != "You said no" {
		t.Errorf("the details are %q", f.Details)
	}
}

// A sign-in started to link an account creates no session, and links only in the session that started it.
func TestLinkIsTheSessions(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ada, eve := w.user("ada@example.test", password), w.user("eve@example.test", password)
	p, err := w.prove(sso.Start{Session: "ses_ada"})
	must(t, err)
	_, _, err = w.SSO.SignIn(t.Context(), p, device)
	wantCode(t, err, "invalid_state")
	wantCode(t, w.Link(t.Context(), p, audit.Actor{User: eve.ID, Session: "ses_eve"}), "invalid_state")
	p, err = w.prove(sso.Start{})
	must(t, err)
	wantCode(t, w.Link(t.Context(), p, audit.Actor{User: ada.ID, Session: ""}), "invalid_state")
	must(t, w.link(ada))
	wantCode(t, w.link(eve), "identity_taken")
	if s, err := w.signIn(); err != nil || s.User != ada.ID {
		t.Errorf("signed in %v, %v; want Ada", s.User, err)
	}
}

// The last sign-in method can't be unlinked. Unlinking another one ends its sessions.
func TestUnlink(t *testing.T) {
	t.Parallel()
	w := newWorld(t, vouches("example.test"))
	s, err := w.signIn() // creates the account
	must(t, err)
	list, err := w.Identities(t.Context(), s.User)
	must(t, err)
	by := audit.Actor{User: s.User, Session: s.ID}
	wantCode(t, w.Unlink(t.Context(), by, list[0].ID), "last_way_in")
	if err := w.Unlink(t.Context(), audit.Actor{User: w.user("eve@example.test", password).ID}, list[0].ID); !fault.Is(err, fault.NotFound) {
		t.Errorf("another user unlinks it: %v", err)
	}
	must(t, w.db.Admin(t.Context(), `UPDATE users SET password = 'x' WHERE id = '`+string(s.User)+`'`))
	must(t, w.Unlink(t.Context(), by, list[0].ID))
	if left, err := w.accounts.Sessions(t.Context(), s.User); err != nil || len(left) != 0 {
		t.Errorf("%d sessions are left, %v", len(left), err)
	}
	must(t, w.db.Admin(t.Context(), `UPDATE users SET email = 'moved@example.test' WHERE id = '`+string(s.User)+`'`))
	if again, err := w.signIn(); err != nil || again.User == s.User {
		t.Errorf("an unlinked identity signs in %v, %v", again.User, err)
	}
}

// Removing a provider ends the sessions that began with it, and no others.
func TestRemove(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ada := w.user("ada@example.test", password)
	must(t, w.link(ada))
	_, err := w.signIn()
	must(t, err)
	_, _, err = w.accounts.SignIn(t.Context(), ada.Email, password, device)
	must(t, err)
	p, err := w.prove(sso.Start{})
	must(t, err)
	must(t, w.db.Write(t.Context(), func(tx *db.Tx) error {
		_, ended, err := w.DeleteTx(t.Context(), tx, "acme")
		if ended != 1 {
			t.Errorf("%d sessions ended, want 1", ended)
		}
		return err
	}))
	list, err := w.accounts.Sessions(t.Context(), ada.ID)
	must(t, err)
	if len(list) != 1 || list[0].Method != account.ByPassword {
		t.Errorf("sessions left: %+v", list)
	}
	if _, _, err := w.SSO.SignIn(t.Context(), p, device); err == nil {
		t.Error("a removed provider signs in")
	}
}

// A suspended user can't sign in with a provider.
func TestSuspended(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ada := w.user("ada@example.test", password)
	must(t, w.link(ada))
	must(t, w.db.Write(t.Context(), func(tx *db.Tx) error {
		_, err := w.accounts.SuspendTx(t.Context(), tx, audit.Actor{}, ada.ID, "unpaid")
		return err
	}))
	_, err := w.signIn()
	wantCode(t, err, "account_suspended")
}

// A passkey that is the only sign-in method can't be removed. With a linked account it can.
func TestLastPasskey(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ada := w.user("ada@example.test", "")
	must(t, w.db.Admin(t.Context(), `INSERT INTO passkeys (id, user_id, credential, record, name, created_at, used_at)
		VALUES ('psk_1', '`+string(ada.ID)+`', 'c', '{}', 'Laptop', 1, 0)`))
	remove := func() error {
		return w.db.Write(t.Context(), func(tx *db.Tx) error { return w.accounts.RemovePasskeyTx(t.Context(), tx, ada.ID, "psk_1", "") })
	}
	wantCode(t, remove(), "last_way_in")
	must(t, w.link(ada))
	// An account linked to a removed provider doesn't count as a sign-in method.
	must(t, w.db.Admin(t.Context(), `UPDATE sso_providers SET issuer = 'gone ' || issuer`))
	wantCode(t, remove(), "last_way_in")
	must(t, w.db.Admin(t.Context(), `UPDATE sso_providers SET issuer = substr(issuer, 6)`))
	must(t, remove())
}

// When a passkey and a linked account are removed at the same time, one stays.
func TestLastWayInUnderRaces(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ada := w.user("ada@example.test", "")
	must(t, w.db.Admin(t.Context(), `INSERT INTO passkeys (id, user_id, credential, record, name, created_at, used_at)
		VALUES ('psk_1', '`+string(ada.ID)+`', 'c', '{}', 'Laptop', 1, 0)`))
	must(t, w.link(ada))
	list, err := w.Identities(t.Context(), ada.ID)
	must(t, err)
	unlinked := make(chan error, 1)
	must(t, w.db.Write(t.Context(), func(tx *db.Tx) error {
		if err := w.accounts.RemovePasskeyTx(t.Context(), tx, ada.ID, "psk_1", ""); err != nil {
			return err
		}
		locks := w.locks.Load()
		go func() { unlinked <- w.Unlink(t.Context(), audit.Actor{User: ada.ID}, list[0].ID) }()
		if !w.db.Single() { // on SQLite the second transaction starts after the first
			wait.Until(t, "the other one", func() bool { return w.locks.Load() > locks || len(unlinked) > 0 })
		}
		return nil
	}))
	wantCode(t, <-unlinked, "last_way_in")
}
