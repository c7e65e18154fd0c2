package oauth_test

import (
	"fmt"
	"testing"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/oauth"
)

// Apps can register themselves only if the operator allows it, with limits per network and in total. An unused
// registration is deleted after a day; a used one stays.
func TestRegister(t *testing.T) {
	t.Parallel()
	closed := newWorld(t, nil)
	n := oauth.NewApp{Name: "Client", RedirectURIs: []string{callback}}
	_, _, err := closed.Register(t.Context(), n, "203.0.113.7")
	wantCode(t, "closed", err, "access_denied")

	w := newWorld(t, nil)
	w.Open()
	register := func(n oauth.NewApp, network string) (oauth.App, string, error) {
		return w.Register(t.Context(), n, network)
	}
	for name, tt := range map[string]struct {
		n    oauth.NewApp
		code string
	}{
		"no address": {oauth.NewApp{Name: "Client"}, "invalid_redirect_uri"},
		"a script":   {oauth.NewApp{Name: "Client", RedirectURIs: []string{"javascript:alert(1)"}}, "invalid_redirect_uri"},
		"our name":   {oauth.NewApp{Name: "Slipway", RedirectURIs: []string{callback}}, "invalid_client_metadata"},
		"a website":  {oauth.NewApp{Name: "Client", RedirectURIs: []string{callback}, Website: "javascript:alert(1)"}, "invalid_client_metadata"},
	} {
		_, _, err := register(tt.n, "203.0.113.7")
		wantCode(t, name, err, tt.code)
	}
	used, secret, err := register(oauth.NewApp{Name: "Server", RedirectURIs: []string{callback}, Confidential: true}, "203.0.113.7")
	must(t, err)
	if !used.Registered || used.Owner != "" || w.app.Registered {
		t.Errorf("registered %+v", used)
	}
	if _, err := w.Client(t.Context(), used.ID, secret); err != nil {
		t.Error(err)
	}
	wantCode(t, "without its secret", func() error { _, err := w.Client(t.Context(), used.ID, ""); return err }(), "invalid_client")
	own := w.app
	w.app = used
	token := w.tokens()
	w.app = own
	var unused oauth.App
	for range 20 {
		unused, _, err = register(oauth.NewApp{RedirectURIs: []string{callback}}, "203.0.113.7")
		must(t, err)
	}
	_, _, err = register(n, "203.0.113.7")
	wantCode(t, "of one network", err, "temporarily_unavailable")
	if _, _, err := register(n, "203.0.113.8"); err != nil {
		t.Errorf("another network: %v", err)
	}
	must(t, w.db.Write(t.Context(), func(tx *db.Tx) error {
		for i := range 4979 {
			_, err := tx.Exec(t.Context(), `
				INSERT INTO oauth_apps (id, owner_id, name, website, redirect_uris, confidential, secret, secret_hint, old_secret,
				  old_secret_until, disabled_at, fresh_until, created_at, registered_from)
				VALUES ($1, '', 'x', '', '', FALSE, '', '', '', 0, 0, 0, $2, $1)`, fmt.Sprint("app_", i), db.Now())
			if err != nil {
				return err
			}
		}
		return nil
	}))
	_, _, err = register(n, "203.0.113.9")
	wantCode(t, "in all", err, "temporarily_unavailable")

	must(t, w.Expire(t.Context()))
	if _, err := w.Client(t.Context(), unused.ID, ""); err != nil {
		t.Errorf("an unused app on its first day: %v", err)
	}
	w.exec(`UPDATE oauth_apps SET created_at = created_at - $1 WHERE registered_from <> ''`, (25 * time.Hour).Milliseconds())
	w.exec(`UPDATE oauth_apps SET created_at = 1 WHERE id = $1`, own.ID)
	must(t, w.Expire(t.Context()))
	_, err = w.Client(t.Context(), unused.ID, "")
	wantCode(t, "an unused app after a day", err, "invalid_client")
	if _, err := w.Client(t.Context(), own.ID, ""); err != nil {
		t.Errorf("an app that was registered by hand: %v", err)
	}
	if !w.works(token) {
		t.Error("an app that is used was removed")
	}
	if _, _, err := register(n, "203.0.113.7"); err != nil {
		t.Errorf("after a day: %v", err)
	}
	must(t, w.db.Write(t.Context(), func(tx *db.Tx) error {
		return w.EndMemberTx(t.Context(), tx, w.ada.Owner, account.UserID(""))
	}))
	must(t, w.Expire(t.Context()))
	wantCode(t, "an app whose last grant ended", func() error { _, err := w.Client(t.Context(), used.ID, secret); return err }(), "invalid_client")
}
