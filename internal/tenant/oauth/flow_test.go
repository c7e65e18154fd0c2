package oauth_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/id"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/audit"
	"slipway/internal/tenant/oauth"
)

func TestCodeGrant(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	got, err := w.Redeem(t.Context(), w.app, w.codeFor(oauth.Consent{
		Scopes: account.Scopes{account.SitesRead}, Sites: []id.Site{"site_one"}, Expires: db.Now().Add(24 * time.Hour),
	}), callback, verifier)
	must(t, err)
	c, err := w.Authenticate(t.Context(), got.Access, here)
	must(t, err)
	switch {
	case c.User != w.ada.ID || c.Owner != w.ada.Owner || c.Admin || c.Key != "" || c.Grant == "" || oauth.AppID(c.App) != w.app.ID:
		t.Errorf("the caller is %+v", c)
	case c.Require(account.SitesRead) != nil || c.Require(account.DeploymentsWrite) == nil || c.Allows("site_two") || !c.Allows("site_one"):
		t.Errorf("the caller may do something else: %+v", c)
	}
	grants, err := w.Grants(t.Context(), w.ada.Caller())
	if err != nil || len(grants) != 1 || grants[0].AppName != "Acme Deploys" || grants[0].UsedAddr != here.String() {
		t.Errorf("the grants are %+v, %v", grants, err)
	}
	if eve := w.user("eve@example.test"); eve.ID != "" {
		if list, err := w.Grants(t.Context(), eve.Caller()); err != nil || len(list) != 0 {
			t.Errorf("another user sees %v, %v", list, err)
		}
		err := w.db.Write(t.Context(), func(tx *db.Tx) error {
			_, err := w.RevokeGrantTx(t.Context(), tx, eve.Caller(), grants[0].ID)
			return err
		})
		if !fault.Is(err, fault.NotFound) {
			t.Errorf("another user revokes it: %v", err)
		}
	}
	must(t, w.db.Write(t.Context(), func(tx *db.Tx) error {
		_, err := w.RevokeGrantTx(t.Context(), tx, w.ada.Caller(), grants[0].ID)
		return err
	}))
	if w.works(got) || w.Holds(t.Context(), c) == nil {
		t.Error("a revoked grant's token works")
	}
}

// A code works once, and only for its app, redirect URI and verifier. A failed exchange uses it up too.
func TestCodeIsSpent(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	other, _ := w.create(oauth.NewApp{Name: "Other", RedirectURIs: []string{callback}})
	for name, try := range map[string]func(code string) error{
		"another app":     func(c string) error { _, err := w.Redeem(t.Context(), other, c, callback, verifier); return err },
		"another address": func(c string) error { _, err := w.Redeem(t.Context(), w.app, c, callback+"/", verifier); return err },
		"wrong verifier":  func(c string) error { _, err := w.Redeem(t.Context(), w.app, c, callback, verifier+"x"); return err },
		"no verifier":     func(c string) error { _, err := w.Redeem(t.Context(), w.app, c, callback, ""); return err },
	} {
		code := w.code()
		wantCode(t, name, try(code), "invalid_grant")
		_, err := w.Redeem(t.Context(), w.app, code, callback, verifier)
		wantCode(t, name+", then right", err, "invalid_grant")
	}
	code := w.code()
	first, err := w.Redeem(t.Context(), w.app, code, callback, verifier)
	must(t, err)
	_, err = w.Redeem(t.Context(), w.app, code, callback, verifier)
	wantCode(t, "second use", err, "invalid_grant")
	if w.works(first) {
		t.Error("after a second use of the code its first tokens work")
	}
	code = w.code()
	w.later(2 * time.Minute)
	_, err = w.Redeem(t.Context(), w.app, code, callback, verifier)
	wantCode(t, "expired", err, "invalid_grant")
}

// Of 20 concurrent exchanges of a code, exactly one gets tokens.
func TestCodeRace(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	code := w.code()
	var got int
	var mu sync.Mutex
	var wait sync.WaitGroup
	for range 20 {
		wait.Go(func() {
			if _, err := w.Redeem(context.WithoutCancel(t.Context()), w.app, code, callback, verifier); err == nil {
				mu.Lock()
				got++
				mu.Unlock()
			}
		})
	}
	wait.Wait()
	if got != 1 {
		t.Errorf("%d exchanges got tokens", got)
	}
}

// Refreshing rotates the token. All requests within a minute get the same answer, and later reuse ends the grant.
func TestRefresh(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	refresh := func(token, scope string) (oauth.Tokens, error) {
		return w.Refresh(context.WithoutCancel(t.Context()), w.app, token, scope)
	}
	first := w.tokens()
	answers := make([]oauth.Tokens, 8)
	var wait sync.WaitGroup
	for i := range answers {
		wait.Go(func() {
			var err error
			if answers[i], err = refresh(first.Refresh, ""); err != nil {
				t.Error(err)
			}
		})
	}
	wait.Wait()
	for _, a := range answers {
		if a.Access != answers[0].Access || a.Refresh != answers[0].Refresh || !w.works(a) {
			t.Fatalf("two answers differ: %+v, %+v", a, answers[0])
		}
	}
	if answers[0].Refresh == first.Refresh {
		t.Error("the refresh token was not rotated")
	}
	narrow, err := refresh(answers[0].Refresh, "sites:read")
	must(t, err)
	c, err := w.Authenticate(t.Context(), narrow.Access, here)
	if err != nil || c.Require(account.DeploymentsWrite) == nil {
		t.Errorf("a narrowed token may %v, %v", c.Scopes, err)
	}
	_, err = refresh(narrow.Refresh, "sites:read env:read")
	wantCode(t, "wider", err, "invalid_scope")
	wide, err := refresh(narrow.Refresh, "")
	must(t, err)
	// The successor of the first token was used, so the first one's grace period is over even within the minute.
	_, err = refresh(first.Refresh, "")
	wantCode(t, "reuse after the successor's rotation", err, "invalid_grant")
	if w.works(wide) {
		t.Error("the grant outlives a stolen refresh token")
	}
	late := w.tokens()
	next, err := refresh(late.Refresh, "")
	must(t, err)
	w.later(61 * time.Second)
	_, err = refresh(late.Refresh, "")
	wantCode(t, "reuse after a minute", err, "invalid_grant")
	if w.works(next) {
		t.Error("the grant outlives a late reuse")
	}
	other, _ := w.create(oauth.NewApp{Name: "Other", RedirectURIs: []string{callback}})
	mine := w.tokens()
	_, err = w.Refresh(t.Context(), other, mine.Refresh, "")
	wantCode(t, "another app", err, "invalid_grant")
	if _, err := refresh(mine.Access, ""); err == nil {
		t.Error("an access token refreshes")
	}
	log, err := w.accounts.Audit(t.Context(), audit.Filter{Owner: w.ada.Owner, Action: "app.reuse_detected"})
	if err != nil || len(log) != 2 {
		t.Errorf("the audit log has %v, %v", log, err)
	}
}

func TestTokensExpire(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	got := w.tokens()
	w.later(61 * time.Minute)
	if w.works(got) {
		t.Error("an access token works for more than an hour")
	}
	next, err := w.Refresh(t.Context(), w.app, got.Refresh, "")
	must(t, err)
	w.later(31 * 24 * time.Hour)
	_, err = w.Refresh(t.Context(), w.app, next.Refresh, "")
	wantCode(t, "after 31 days", err, "invalid_grant")
}

// A suspended user's tokens and a disabled app's tokens fail at the next request.
func TestRightsAreComputedAtEachRequest(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	got := w.tokens()
	must(t, w.db.Write(t.Context(), func(tx *db.Tx) error { return w.SetDisabledTx(t.Context(), tx, w.app.ID, true) }))
	if w.works(got) {
		t.Error("a token of a disabled app works")
	}
	all, err := w.AllApps(t.Context())
	if err != nil || len(all) != 2 || !all[0].Disabled && !all[1].Disabled || all[0].Grants+all[1].Grants != 0 {
		t.Errorf("the apps are %+v, %v", all, err)
	}
	if _, err := w.Authorize(t.Context(), w.ada.Caller(), w.query()); !fault.Is(err, fault.Forbidden) {
		t.Errorf("a disabled app asks: %v", err)
	}
	must(t, w.db.Write(t.Context(), func(tx *db.Tx) error { return w.SetDisabledTx(t.Context(), tx, w.app.ID, false) }))
	if w.works(got) {
		t.Error("a grant came back with its app")
	}
	got = w.tokens()
	w.exec(`UPDATE users SET suspended_at = 1 WHERE id = $1`, w.ada.ID)
	if w.works(got) {
		t.Error("a suspended user's token works")
	}
	if again, _ := w.Refresh(t.Context(), w.app, got.Refresh, ""); w.works(again) {
		t.Error("a suspended user's refreshed token works")
	}
}

func TestRevokeAndIntrospect(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	other, _ := w.create(oauth.NewApp{Name: "Other", RedirectURIs: []string{callback}})
	got := w.tokens()
	i, err := w.Introspect(t.Context(), w.app, got.Access)
	if err != nil || !i.Active || i.Kind != "access" || i.User != w.ada.ID || i.Scopes.String() != "sites:read deployments:write" {
		t.Errorf("introspection is %+v, %v", i, err)
	}
	if i, err := w.Introspect(t.Context(), other, got.Access); err != nil || i.Active {
		t.Errorf("another app sees %+v, %v", i, err)
	}
	must(t, w.Revoke(t.Context(), other, got.Refresh))
	if !w.works(got) {
		t.Fatal("another app revoked the token")
	}
	must(t, w.Revoke(t.Context(), w.app, "slr_unknown"))
	must(t, w.Revoke(t.Context(), w.app, got.Refresh))
	if w.works(got) {
		t.Error("the access token outlives its grant")
	}
}

// Invalid authorization requests are refused, on a page or by a redirect to the app.
func TestAuthorize(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	for name, tt := range map[string]struct {
		changes []string
		page    string // code of the error page; empty if the app gets the error
		sent    string // error in the redirect to the app
	}{
		"unknown app":         {[]string{"client_id", "app_unknown"}, "unknown_client", ""},
		"no app":              {[]string{"client_id", ""}, "invalid_request", ""},
		"unknown address":     {[]string{"redirect_uri", "https://evil.test/callback"}, "invalid_redirect_uri", ""},
		"longer address":      {[]string{"redirect_uri", callback + "/../evil"}, "invalid_redirect_uri", ""},
		"token response":      {[]string{"response_type", "token"}, "", "unsupported_response_type"},
		"no PKCE":             {[]string{"code_challenge", "", "code_challenge_method", ""}, "", "invalid_request"},
		"plain PKCE":          {[]string{"code_challenge_method", "plain"}, "", "invalid_request"},
		"empty PKCE method":   {[]string{"code_challenge_method", ""}, "", "invalid_request"},
		"short challenge":     {[]string{"code_challenge", "abc"}, "", "invalid_request"},
		"unknown scope":       {[]string{"scope", "sites:read root"}, "", "invalid_scope"},
		"all rights":          {[]string{"scope", "*"}, "", "invalid_scope"},
		"keys":                {[]string{"scope", "keys:write"}, "", "invalid_scope"},
		"apps":                {[]string{"scope", "apps:write"}, "", "invalid_scope"},
		"another resource":    {[]string{"resource", "https://other.test/api"}, "", "invalid_target"},
		"silent":              {[]string{"prompt", "none"}, "", "interaction_required"},
		"request object":      {[]string{"request", "eyJ"}, "", "request_not_supported"},
		"overlong state":      {[]string{"state", strings.Repeat("x", 1001)}, "", "invalid_request"},
		"an answer elsewhere": {[]string{"response_mode", "form_post"}, "", "invalid_request"},
	} {
		_, err := w.Authorize(t.Context(), w.ada.Caller(), w.query(tt.changes...))
		var refused *oauth.Refused
		switch {
		case tt.page != "":
			if f := fault.As(err); f == nil || f.Code != tt.page {
				t.Errorf("%s: %v, want a page that says %s", name, err, tt.page)
			}
		case !errors.As(err, &refused) || refused.Err.Code != tt.sent || !strings.HasPrefix(refused.To, callback+"?") ||
			!strings.Contains(refused.To, "iss=https%3A%2F%2Fslipway.test"):
			t.Errorf("%s: %v, want %s at the app", name, err, tt.sent)
		}
	}
	twice := w.query()
	twice["scope"] = []string{"sites:read", "env:read"}
	var refused *oauth.Refused
	if _, err := w.Authorize(t.Context(), w.ada.Caller(), twice); !errors.As(err, &refused) {
		t.Errorf("scope twice: %v", err)
	}
	r, err := w.Authorize(t.Context(), w.ada.Caller(), w.query("scope", "", "redirect_uri", ""))
	if err != nil || r.Scopes.String() != "sites:read" || r.Redirect != callback || r.RedirectHost() != "app.test" {
		t.Errorf("the request is %+v, %v", r, err)
	}
}

// A consent is valid only for the session whose page showed it, and grants no more than the page showed.
func TestConsentIsBound(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	eve := w.user("eve@example.test")
	r, err := w.Authorize(t.Context(), w.ada.Caller(), w.query())
	must(t, err)
	sealed := w.Seal(r, w.ada.Caller(), "ses_ada")
	again, err := w.Unseal(t.Context(), sealed, w.ada.Caller(), "ses_ada")
	if err != nil || again.Redirect != r.Redirect || again.Scopes.String() != r.Scopes.String() || again.App.ID != w.app.ID {
		t.Fatalf("unsealed %+v, %v", again, err)
	}
	for name, try := range map[string]func() error{
		"another user":    func() error { _, err := w.Unseal(t.Context(), sealed, eve.Caller(), "ses_ada"); return err },
		"another session": func() error { _, err := w.Unseal(t.Context(), sealed, w.ada.Caller(), "ses_eve"); return err },
		"changed":         func() error { _, err := w.Unseal(t.Context(), sealed+"A", w.ada.Caller(), "ses_ada"); return err },
	} {
		if err := try(); !fault.Is(err, fault.Conflict) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, c := range map[string]oauth.Consent{
		"nothing": {},
		"wider":   {Scopes: account.Scopes{account.SitesRead, account.EnvRead}},
		"all":     {Scopes: account.Scopes{account.All}},
	} {
		err := w.db.Write(t.Context(), func(tx *db.Tx) error {
			_, err := w.ApproveTx(t.Context(), tx, w.ada.Caller(), r, c)
			return err
		})
		if !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	must(t, w.db.Write(t.Context(), func(tx *db.Tx) error {
		uris := []string{"https://app.test/other"}
		_, err := w.UpdateAppTx(t.Context(), tx, w.ada.Owner, w.app.ID, oauth.AppChange{RedirectURIs: &uris})
		return err
	}))
	if _, err := w.Unseal(t.Context(), sealed, w.ada.Caller(), "ses_ada"); !fault.Is(err, fault.Conflict) {
		t.Errorf("an address that the app gave up: %v", err)
	}
	if to := w.Deny(r); !strings.Contains(to, "error=access_denied") || !strings.Contains(to, "state=xyz") {
		t.Errorf("the refusal leads to %s", to)
	}
}
