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

// CallbackPath is where forges send people back to, below the base URL.
const CallbackPath = "/account/git/callback"

const (
	signInTime = 15 * time.Minute // that somebody may take at the forge
	maxSignIns = 10               // under way in one session
)

// endpoints are the addresses of a forge's OAuth, below its own.
type endpoints struct {
	authorize, token, revoke string // revoke is empty where the forge has none
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
	// Scopes are the consumer's.
	forge.Bitbucket: {"/site/oauth2/authorize", "/site/oauth2/access_token", "", oauth2.AuthStyleInHeader, nil},
	// Permissions are the app's.
	forge.GitHub: {"/login/oauth/authorize", "/login/oauth/access_token", "", oauth2.AuthStyleInParams, nil},
}

// callback is the address that an app is registered with.
func (s *Connections) callback() string { return s.c.Base + CallbackPath }

func digest(state string) string {
	sum := sha256.Sum256([]byte(state))
	return hex.EncodeToString(sum[:])
}

// BeginTx begins a sign-in at an app's forge and returns the address to send the browser
// to. The answer counts only in the same session, and once. report asks for what telling
// the forge of deployments needs, where the forge offers less.
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

// signInTx remembers a sign-in that is under way.
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
	_, err = tx.Exec(
		ctx,
		`INSERT INTO git_sign_ins (digest, session_id, app_id, host, verifier, expires_at) VALUES ($1, $2, $3, $4, $5, $6)`,
		digest(state), session, app, host, s.c.Seal.Seal([]byte(verifier), "git sign-in/"+digest(state)),
		now.Add(signInTime),
	)
	if err != nil {
		return "", "", fmt.Errorf("begin sign-in: %w", err)
	}
	return state, verifier, nil
}

// signIn is one that was under way.
type signIn struct {
	app            AppID
	host, verifier string
}

// endSignIn takes the sign-in of a state that was begun in this session. There is each once.
func (s *Connections) endSignIn(ctx context.Context, session id.Session, state string) (in signIn, err error) {
	refuse := fault.New(fault.Invalid, "invalid_state", "This sign-in has expired or was begun in another browser", "begin again")
	if state == "" || len(state) > 200 || session == "" {
		return in, refuse
	}
	var box string
	found := false
	err = s.c.DB.Write(ctx, func(tx *db.Tx) error {
		rows, err := tx.Query(
			ctx,
			`DELETE FROM git_sign_ins WHERE digest = $1 AND session_id = $2 AND expires_at > $3 RETURNING app_id, host, verifier`,
			digest(state), session, db.Now(),
		)
		list, err := db.Collect(rows, err, func(r db.Scanner) (x signIn, err error) { return x, r.Scan(&x.app, &x.host, &x.verifier) })
		if found = len(list) == 1; found {
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

// Finish takes the forge's answer to a sign-in: who signed in is ready to be stored. app is
// the one that they signed in with.
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

// token asks an app's forge for a token, by the way to its host. It refuses one that can't
// stand in a header; an answer without a reason becomes a refusal as of every other request.
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
		return nil, errors.New("the Git provider's answer holds no token")
	}
	return t, nil
}

// expires is when a token ends; 0: never.
func expires(t *oauth2.Token) db.Time {
	if !t.Expiry.After(time.Now()) {
		return 0
	}
	return db.At(t.Expiry)
}

// ended reports whether no later request can succeed with the refresh token that was sent.
func ended(err error) bool {
	var no *oauth2.RetrieveError
	return errors.As(err, &no) && slices.Contains([]string{"invalid_grant", "bad_refresh_token", "unauthorized_client"}, no.ErrorCode)
}

// tellToken turns a refusal to issue a token into what can be done about it.
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

// checkHost returns a forge's host name in its plain form.
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
