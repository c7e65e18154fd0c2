package oauth_test

import (
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"net/http"
	"net/netip"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/dbtest"
	"slipway/internal/platform/seal"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/oauth"
)

const (
	issuer   = "https://slipway.test"
	callback = "https://app.test/callback"
	verifier = "a-verifier-that-has-at-least-forty-three-characters"
)

var here = netip.MustParseAddr("203.0.113.7")

// world is an authorization server with a user and an app.
type world struct {
	*oauth.Server
	t        *testing.T
	db       *db.DB
	accounts *account.Accounts
	ada      account.User
	app      oauth.App
}

func newWorld(t *testing.T, out *http.Client) *world {
	t.Helper()
	d := dbtest.New(t)
	s, err := seal.Load(filepath.Join(t.TempDir(), "key"))
	must(t, err)
	w := &world{t: t, db: d, accounts: account.New(account.Config{DB: d, HashMemory: 64, Seal: s})}
	w.Server = oauth.New(oauth.Config{DB: d, Accounts: w.accounts, Seal: s, Issuer: issuer, Out: out})
	w.ada = w.user("ada@example.test")
	w.app, _ = w.create(oauth.NewApp{Name: "Acme Deploys", RedirectURIs: []string{callback}})
	return w
}

func (w *world) user(email string) account.User {
	w.t.Helper()
	u, err := w.accounts.CreateUser(w.t.Context(), email, "", false)
	must(w.t, err)
	return u
}

func (w *world) create(n oauth.NewApp) (a oauth.App, secret string) {
	w.t.Helper()
	must(w.t, w.db.Write(w.t.Context(), func(tx *db.Tx) (err error) {
		a, secret, err = w.CreateAppTx(w.t.Context(), tx, w.ada.Owner, n)
		return err
	}))
	return a, secret
}

func challenge(verifier string) string {
	sum := sha256.Sum256([]byte(verifier))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// query returns a valid authorization request with parameters changed. An empty value removes a parameter.
func (w *world) query(changes ...string) url.Values {
	q := url.Values{
		"client_id": {string(w.app.ID)}, "redirect_uri": {callback}, "response_type": {"code"}, "state": {"xyz"},
		"scope": {"sites:read deployments:write"}, "code_challenge": {challenge(verifier)}, "code_challenge_method": {"S256"},
	}
	for i := 0; i < len(changes); i += 2 {
		q.Set(changes[i], changes[i+1])
		if changes[i+1] == "" {
			q.Del(changes[i])
		}
	}
	return q
}

// code returns an authorization code for everything the request asks for.
func (w *world) code(changes ...string) string {
	w.t.Helper()
	return w.codeFor(oauth.Consent{}, changes...)
}

func (w *world) codeFor(c oauth.Consent, changes ...string) string {
	w.t.Helper()
	r, err := w.Authorize(w.t.Context(), w.ada.Caller(), w.query(changes...))
	must(w.t, err)
	if c.Scopes == nil {
		c.Scopes = r.Scopes
	}
	var to string
	must(w.t, w.db.Write(w.t.Context(), func(tx *db.Tx) (err error) {
		to, err = w.ApproveTx(w.t.Context(), tx, w.ada.Caller(), r, c)
		return err
	}))
	u, err := url.Parse(to)
	must(w.t, err)
	if q := u.Query(); q.Get("iss") != issuer || q.Get("state") != "xyz" || !strings.HasPrefix(to, callback+"?") {
		w.t.Fatalf("the answer is %s", to)
	}
	return u.Query().Get("code")
}

// tokens returns a new pair of tokens.
func (w *world) tokens() oauth.Tokens {
	w.t.Helper()
	t, err := w.Redeem(w.t.Context(), w.app, w.code(), callback, verifier)
	must(w.t, err)
	return t
}

// works reports whether an access token is accepted.
func (w *world) works(t oauth.Tokens) bool {
	w.t.Helper()
	_, err := w.Authenticate(w.t.Context(), t.Access, here)
	return err == nil
}

// exec changes the database directly.
func (w *world) exec(query string, args ...any) {
	w.t.Helper()
	must(w.t, w.db.Write(w.t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(w.t.Context(), query, args...)
		return err
	}))
}

// later moves the server's stored times into the past.
func (w *world) later(by time.Duration) {
	w.t.Helper()
	must(w.t, w.db.Write(w.t.Context(), func(tx *db.Tx) error {
		for _, q := range []string{
			`UPDATE oauth_tokens SET rotated_at = CASE WHEN rotated_at > 0 THEN rotated_at - $1 ELSE 0 END, expires_at = expires_at - $1`,
			`UPDATE oauth_codes SET expires_at = expires_at - $1`,
			`UPDATE oauth_devices SET expires_at = expires_at - $1, polled_at = CASE WHEN polled_at > 0 THEN polled_at - $1 ELSE 0 END`,
			`UPDATE oauth_grants SET expires_at = expires_at - $1`,
		} {
			if _, err := tx.Exec(w.t.Context(), q, by.Milliseconds()); err != nil {
				return err
			}
		}
		return nil
	}))
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// wantCode fails the test unless err is a token endpoint error with the code.
func wantCode(t *testing.T, what string, err error, code string) {
	t.Helper()
	var e *oauth.Error
	if !errors.As(err, &e) || e.Code != code {
		t.Errorf("%s: %v, want %s", what, err, code)
	}
}
