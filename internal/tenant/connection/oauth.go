package connection

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"slipway/internal/platform/id"

	"golang.org/x/oauth2"

	"slipway/internal/git/forge"
	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/text"
)

// CallbackPath is the path below the base URL to which providers redirect people.
const CallbackPath = "/account/git/callback"

const (
	signInTime = 15 * time.Minute // how long a sign-in may take
	maxSignIns = 10               // pending sign-ins per session
)

// endpoints holds the paths of a provider's OAuth endpoints.
type endpoints struct {
	authorize, token, revoke string // revoke is empty if the provider has no such endpoint
	style                    oauth2.AuthStyle
	scope                    func(report bool) []string
}

var oauthOf = map[forge.Provider]endpoints{
	forge.GitLab: {"/oauth/authorize", "/oauth/token", "/oauth/revoke", oauth2.AuthStyleInParams, func(report bool) []string {
		if report {
			return []string{"api"}
		}
		return []string{"read_api", "read_repository"}
	}},
	forge.Gitea: {"/login/oauth/authorize", "/login/oauth/access_token", "", oauth2.AuthStyleInParams, func(report bool) []string {
		if report {
			return []string{"read:user", "write:repository", "write:issue"}
		}
		return []string{"read:user", "read:repository"}
	}},
	// Bitbucket sets scopes per consumer.
	forge.Bitbucket: {"/site/oauth2/authorize", "/site/oauth2/access_token", "", oauth2.AuthStyleInHeader, nil},
	// GitHub sets permissions per app.
	forge.GitHub: {"/login/oauth/authorize", "/login/oauth/access_token", "", oauth2.AuthStyleInParams, nil},
}

// callback returns the redirect URL registered with apps.
func (s *Connections) callback() string { return s.c.Base + CallbackPath }

func digest(state string) string {
	sum := sha256.Sum256([]byte(state))
	return hex.EncodeToString(sum[:])
}

// BeginTx begins a sign-in with an app and returns the URL for the browser. The response is accepted once, in the same
// session. report requests the scope needed for reporting deployments from providers that distinguish it.
func (s *Connections) BeginTx(ctx context.Context, tx *db.Tx, session id.Session, id AppID, report bool) (string, error) {
	a, err := s.App(ctx, tx, id)
	if err != nil {
		return "", err
	}
	state, verifier, err := s.signInTx(ctx, tx, session, a.ID, a.Host)
	if err != nil {
		return "", err
	}
	e := oauthOf[a.Provider]
	c := oauth2.Config{
		ClientID:    a.ClientID,
		RedirectURL: s.callback(),
		Endpoint:    oauth2.Endpoint{AuthURL: "https://" + a.Host + e.authorize},
	}
	if e.scope != nil {
		c.Scopes = e.scope(report)
	}
	return c.AuthCodeURL(state, oauth2.S256ChallengeOption(verifier)), nil
}

// signInTx stores a pending sign-in.
func (s *Connections) signInTx(
	ctx context.Context, tx *db.Tx, session id.Session, app AppID, host string,
) (state, verifier string, err error) {
	state, verifier = oauth2.GenerateVerifier(), oauth2.GenerateVerifier()
	now := db.Now()
	if _, err := tx.Exec(ctx, `DELETE FROM git_sign_ins WHERE expires_at <= $1`, now); err != nil {
		return "", "", fmt.Errorf("forget sign-ins: %w", err)
	}
	_, err = tx.Exec(
		ctx, `DELETE FROM git_sign_ins WHERE digest IN (SELECT digest FROM git_sign_ins WHERE session_id = $1
			ORDER BY expires_at DESC LIMIT 1000 OFFSET $2)`, session, maxSignIns-1,
	)
	if err != nil {
		return "", "", fmt.Errorf("forget oldest sign-in: %w", err)
	}
	_, err = tx.Exec(ctx,
		`INSERT INTO git_sign_ins (digest, session_id, app_id, host, verifier, expires_at) VALUES ($1, $2, $3, $4, $5, $6)`,
		digest(state), session, app, host, s.c.Seal.Seal([]byte(verifier), "git sign-in/"+digest(state)),
		now.Add(signInTime))
	if err != nil {
		return "", "", fmt.Errorf("begin sign-in: %w", err)
	}
	return state, verifier, nil
}

// signIn is a pending sign-in.
type signIn struct {
	app            AppID
	host, verifier string
}

// endSignIn consumes the pending sign-in with this state, which must have begun in this session.
func (s *Connections) endSignIn(ctx context.Context, session id.Session, state string) (in signIn, err error) {
	refuse := fault.New(fault.Invalid, "invalid_state", "This sign-in has expired or was begun in another browser", "begin again")
	if state == "" || len(state) > 200 || session == "" {
		return in, refuse
	}
	var box string
	found := false
	err = s.c.DB.Write(ctx, func(tx *db.Tx) error {
		rows, err := tx.Query(ctx,
			`DELETE FROM git_sign_ins WHERE digest = $1 AND session_id = $2 AND expires_at > $3 RETURNING app_id, host, verifier`,
			digest(state), session, db.Now())
		list, err := db.Collect(rows, err, func(r db.Scanner) (x signIn, err error) { return x, r.Scan(&x.app, &x.host, &x.verifier) })
		found = len(list) == 1
		if found {
			in, box = list[0], list[0].verifier
		}
		return err
	})
	if err != nil {
		return in, fmt.Errorf("end sign-in: %w", err)
	}
	if !found {
		return in, refuse
	}
	text, err := s.c.Seal.Open(box, "git sign-in/"+digest(state))
	in.verifier = string(text)
	return in, err
}

// Finish handles the provider's response to a sign-in. It returns a connection to store and the app used.
func (s *Connections) Finish(ctx context.Context, session id.Session, q url.Values) (k Checked, app App, err error) {
	in, err := s.endSignIn(ctx, session, q.Get("state"))
	if err != nil {
		return k, app, err
	}
	if app, err = s.App(ctx, s.c.DB, in.app); err != nil {
		return k, app, err
	}
	if why := q.Get("error"); why != "" {
		return k, app, fault.New(fault.Invalid, "sign_in_refused", app.Host+" did not connect the account",
			text.Line(cmp.Or(q.Get("error_description"), why), 200))
	}
	code := q.Get("code")
	if code == "" || len(code) > 2000 {
		return k, app, fault.New(fault.Invalid, "invalid_state", "The answer of "+app.Host+" has no code", "begin again")
	}
	got, err := s.token(ctx, app, func(ctx context.Context, c *oauth2.Config) (*oauth2.Token, error) {
		return c.Exchange(ctx, code, oauth2.VerifierOption(in.verifier))
	})
	if err != nil {
		return k, app, tellToken(err, app.Host)
	}
	n := NewConnection{Provider: app.Provider, Host: app.Host, Token: got.AccessToken}
	scopes, _ := got.Extra("scope").(string)
	login, err := s.apiNoting(app.Provider, app.Host, secret{Token: got.AccessToken}, &scopes).user(ctx)
	if err != nil {
		return k, app, tell(err, app.Host)
	}
	return Checked{n: n, login: login, scopes: scopeList(scopes), app: app.ID, refresh: got.RefreshToken, expires: expires(got)}, app, nil
}

// token requests a token through the proxy for the provider's host. It refuses tokens that aren't valid in a header,
// and turns error responses without an OAuth error into a refusal.
func (s *Connections) token(
	ctx context.Context, a App, ask func(context.Context, *oauth2.Config) (*oauth2.Token, error),
) (*oauth2.Token, error) {
	k, err := s.openApp(a)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	base, client := s.home(a.Host)
	e := oauthOf[a.Provider]
	t, err := ask(context.WithValue(ctx, oauth2.HTTPClient, client), &oauth2.Config{
		ClientID:     a.ClientID,
		ClientSecret: k.Client,
		RedirectURL:  s.callback(),
		Endpoint:     oauth2.Endpoint{TokenURL: base + e.token, AuthStyle: e.style},
	})
	var no *oauth2.RetrieveError
	switch {
	case errors.As(err, &no) && no.ErrorCode == "":
		return nil, &refusal{status: no.Response.StatusCode, text: text.Line(string(no.Body[:min(len(no.Body), 2000)]), 300)}
	case errors.As(err, &no):
		return nil, no
	case err != nil:
		return nil, fmt.Errorf("ask Git provider: %w", err)
	case !plain(t.AccessToken, 4096) || len(t.RefreshToken) > 4096 || strings.ContainsAny(t.RefreshToken, "\r\n\x00"):
		return nil, errors.New("the Git provider's response has no token")
	}
	return t, nil
}

// expires returns a token's expiry, or 0 for none.
func expires(t *oauth2.Token) db.Time {
	if !t.Expiry.After(time.Now()) {
		return 0
	}
	return db.At(t.Expiry)
}

// ended reports whether the refresh token is permanently invalid.
func ended(err error) bool {
	var no *oauth2.RetrieveError
	return errors.As(err, &no) && slices.Contains([]string{"invalid_grant", "bad_refresh_token", "unauthorized_client"}, no.ErrorCode)
}

// tellToken turns the refusal of a token into a fault that says what the user can do.
func tellToken(err error, host string) error {
	var no *oauth2.RetrieveError
	if errors.As(err, &no) {
		details := "connect the account again"
		if no.ErrorCode == "invalid_client" || no.ErrorCode == "incorrect_client_credentials" {
			details = "the operator has to check the client ID and secret of the app"
		}
		return fault.New(fault.Invalid, "sign_in_refused", host+" issued no access token: "+text.Line(no.ErrorCode, 100),
			details)
	}
	return tell(err, host)
}

// checkHost normalizes a Git provider's host name.
func checkHost(p forge.Provider, host string) (string, error) {
	host = strings.ToLower(strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(host), "https://"), "/"))
	host = cmp.Or(host, hosts[p])
	bad := func(why, details string) (string, error) {
		return "", fault.New(fault.Invalid, "invalid_connection", why, details)
	}
	switch {
	case host == "":
		return bad("Host name required", "the server's address, such as https://git.example.com")
	case !hostForm.MatchString(host) || strings.Contains(host, ".."):
		return bad("Invalid host name", "an address such as https://git.example.com")
	case p == forge.Bitbucket && host != hosts[forge.Bitbucket]:
		return bad("Only bitbucket.org can be connected", "for Bitbucket Server store a credential with the site")
	}
	return host, nil
}
