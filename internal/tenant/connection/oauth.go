package connection

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

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
	stateBytes = 32               // random bytes of the state and of the verifier
	maxToken   = 64 << 10         // bytes of an answer that holds tokens
)

// endpoints are the addresses of a forge's OAuth, below its own.
type endpoints struct {
	authorize, token, revoke string // revoke is empty where the forge has none
	scope                    func(report bool) string
}

var oauthOf = map[forge.Provider]endpoints{
	forge.GitLab: {"/oauth/authorize", "/oauth/token", "/oauth/revoke", func(report bool) string {
		if report {
			return "api"
		}
		return "read_api read_repository"
	}},
	forge.Gitea: {"/login/oauth/authorize", "/login/oauth/access_token", "", func(report bool) string {
		if report {
			return "read:user write:repository write:issue"
		}
		return "read:user read:repository"
	}},
	forge.Bitbucket: {"/site/oauth2/authorize", "/site/oauth2/access_token", "", nil}, // scopes are the consumer's
	forge.GitHub:    {"/login/oauth/authorize", "/login/oauth/access_token", "", nil}, // permissions are the app's
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
func (s *Connections) BeginTx(ctx context.Context, tx *db.Tx, session string, id AppID, report bool) (string, error) {
	a, err := s.App(ctx, tx, id)
	if err != nil {
		return "", err
	}
	state, verifier, err := s.signInTx(ctx, tx, session, a.ID, a.Host)
	if err != nil {
		return "", err
	}
	challenge := sha256.Sum256([]byte(verifier))
	e := oauthOf[a.Provider]
	q := url.Values{
		"client_id": {a.ClientID}, "redirect_uri": {s.callback()}, "response_type": {"code"}, "state": {state},
		"code_challenge": {base64.RawURLEncoding.EncodeToString(challenge[:])}, "code_challenge_method": {"S256"},
	}
	if e.scope != nil {
		q.Set("scope", e.scope(report))
	}
	return "https://" + a.Host + e.authorize + "?" + q.Encode(), nil
}

// signInTx remembers a sign-in that is under way.
func (s *Connections) signInTx(ctx context.Context, tx *db.Tx, session string, app AppID, host string) (state, verifier string, err error) {
	word := func() string {
		b := make([]byte, stateBytes)
		rand.Read(b)
		return base64.RawURLEncoding.EncodeToString(b)
	}
	state, verifier = word(), word()
	now := db.Now()
	if _, err := tx.Exec(ctx, `DELETE FROM git_sign_ins WHERE expires_at <= $1`, now); err != nil {
		return "", "", fmt.Errorf("forget sign-ins: %w", err)
	}
	_, err = tx.Exec(
		ctx,
		`DELETE FROM git_sign_ins WHERE digest IN (SELECT digest FROM git_sign_ins WHERE session_id = $1 ORDER BY expires_at DESC LIMIT 1000 OFFSET $2)`,
		session,
		maxSignIns-1,
	)
	if err != nil {
		return "", "", fmt.Errorf("forget oldest sign-in: %w", err)
	}
	_, err = tx.Exec(
		ctx,
		`INSERT INTO git_sign_ins (digest, session_id, app_id, host, verifier, expires_at) VALUES ($1, $2, $3, $4, $5, $6)`,
		digest(state),
		session,
		app,
		host,
		s.c.Seal.Seal([]byte(verifier), "git sign-in/"+digest(state)),
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
func (s *Connections) endSignIn(ctx context.Context, session, state string) (in signIn, err error) {
	refuse := &fault.Error{
		Kind:    fault.Invalid,
		Message: "This sign-in has expired or was begun in another browser",
		Details: "begin again",
		Code:    "invalid_state",
	}
	if state == "" || len(state) > 200 || session == "" {
		return in, refuse
	}
	var box string
	found := false
	err = s.c.DB.Write(ctx, func(tx *db.Tx) error {
		rows, err := tx.Query(
			ctx,
			`DELETE FROM git_sign_ins WHERE digest = $1 AND session_id = $2 AND expires_at > $3 RETURNING app_id, host, verifier`,
			digest(state),
			session,
			db.Now(),
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
func (s *Connections) Finish(ctx context.Context, session string, q url.Values) (k Checked, app App, err error) {
	in, err := s.endSignIn(ctx, session, q.Get("state"))
	if err != nil {
		return k, app, err
	}
	if app, err = s.App(ctx, s.c.DB, in.app); err != nil {
		return k, app, err
	}
	if why := q.Get("error"); why != "" {
		return k, app, &fault.Error{
			Kind:    fault.Invalid,
			Message: app.Host + " did not connect the account",
			Details: text.Line(cmp.Or(q.Get("error_description"), why), 200),
			Code:    "sign_in_refused",
		}
	}
	code := q.Get("code")
	if code == "" || len(code) > 2000 {
		return k, app, &fault.Error{
			Kind:    fault.Invalid,
			Message: "The answer of " + app.Host + " has no code",
			Details: "begin again",
			Code:    "invalid_state",
		}
	}
	got, err := s.token(ctx, app, url.Values{
		"grant_type":    {"authorization_code"},
		"code":          {code},
		"redirect_uri":  {s.callback()},
		"code_verifier": {in.verifier},
	})
	if err != nil {
		return k, app, tellToken(err, app.Host)
	}
	n := NewConnection{Provider: app.Provider, Host: app.Host, Token: got.Token}
	scopes := got.Scope
	login, err := s.apiNoting(app.Provider, app.Host, secret{Token: got.Token}, &scopes).user(ctx)
	if err != nil {
		return k, app, tell(err, app.Host)
	}
	return Checked{n: n, login: login, scopes: scopeList(scopes), app: app.ID, refresh: got.Refresh, expires: got.expires()}, app, nil
}

// granted is a forge's answer that holds tokens.
type granted struct {
	Token     string `json:"access_token"`
	Refresh   string `json:"refresh_token"`
	ExpiresIn int64  `json:"expires_in"` // seconds; 0: never
	Scope     string `json:"scope"`      // separated by spaces
	Error     string `json:"error"`
	Describes string `json:"error_description"`
}

// expires is when the token ends; 0: never.
func (g granted) expires() db.Time {
	if g.ExpiresIn <= 0 {
		return 0
	}
	return db.Now().Add(time.Duration(min(g.ExpiresIn, 10*365*24*3600)) * time.Second)
}

// tokenRefusal is a forge's refusal to issue a token (RFC 6749 §5.2).
type tokenRefusal struct {
	code   string // such as invalid_grant
	text   string
	status int
}

func (r *tokenRefusal) Error() string { return "the forge issued no token: " + r.code + " " + r.text }

// ended reports whether no later request can succeed with what was sent.
func (r *tokenRefusal) ended() bool {
	return r.code == "invalid_grant" || r.code == "bad_refresh_token" || r.code == "unauthorized_client"
}

// token asks a forge for tokens.
func (s *Connections) token(ctx context.Context, a App, form url.Values) (g granted, err error) {
	k, err := s.openApp(a)
	if err != nil {
		return g, err
	}
	base, client := s.home(a.Host)
	err = postForm(ctx, client, base+oauthOf[a.Provider].token, a, k, form, &g)
	if err != nil {
		return g, err
	}
	if g.Error != "" { // GitHub answers 200
		return g, &tokenRefusal{text.Line(g.Error, 100), text.Line(g.Describes, 200), http.StatusOK}
	}
	if !plain(g.Token, 4096) || len(g.Refresh) > 4096 || strings.ContainsAny(g.Refresh, "\r\n\x00") {
		return g, errors.New("the forge's answer holds no token")
	}
	return g, nil
}

// postForm posts a form as an app and decodes the answer.
func postForm(ctx context.Context, client *http.Client, to string, a App, k appSecret, form url.Values, out any) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	if a.Provider != forge.Bitbucket {
		form.Set("client_id", a.ClientID)
		form.Set("client_secret", k.Client)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, to, strings.NewReader(form.Encode()))
	if err != nil {
		return fmt.Errorf("ask forge: %w", err)
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Accept", "application/json")
	r.Header.Set("User-Agent", "Slipway")
	if a.Provider == forge.Bitbucket {
		r.SetBasicAuth(a.ClientID, k.Client)
	}
	res, err := client.Do(r)
	if err != nil {
		return fmt.Errorf("ask forge: %w", noSecrets(err))
	}
	defer res.Body.Close()
	b, err := io.ReadAll(io.LimitReader(res.Body, maxToken+1))
	if err != nil {
		return fmt.Errorf("ask forge: %w", err)
	}
	if len(b) > maxToken {
		return errors.New("the forge's answer is too large")
	}
	if res.StatusCode < 200 || res.StatusCode > 299 {
		var no granted
		if json.Unmarshal(b, &no) != nil || no.Error == "" {
			return &refusal{status: res.StatusCode, text: text.Line(string(b[:min(len(b), 2000)]), 300)}
		}
		return &tokenRefusal{text.Line(no.Error, 100), text.Line(no.Describes, 200), res.StatusCode}
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(b, out); err != nil {
		return fmt.Errorf("read the forge's answer: %w", err)
	}
	return nil
}

// noSecrets is an error of a request without the address, which may hold what it should not.
func noSecrets(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}

// tellToken turns a refusal to issue a token into what can be done about it.
func tellToken(err error, host string) error {
	var no *tokenRefusal
	if errors.As(err, &no) {
		details := "connect the account again"
		if no.code == "invalid_client" || no.code == "incorrect_client_credentials" {
			details = "the operator has to check the client ID and secret of the app"
		}
		return &fault.Error{
			Kind:    fault.Invalid,
			Message: host + " issued no access token: " + no.code,
			Details: details,
			Code:    "sign_in_refused",
		}
	}
	return tell(err, host)
}

// checkHost returns a forge's host name in its plain form.
func checkHost(p forge.Provider, host string) (string, error) {
	host = strings.ToLower(strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(host), "https://"), "/"))
	host = cmp.Or(host, hosts[p])
	bad := func(why, details string) (string, error) {
		return "", &fault.Error{Kind: fault.Invalid, Message: why, Details: details, Code: "invalid_connection"}
	}
	switch {
	case host == "":
		return bad("The Git host is missing", "the address of the server is needed, such as https://git.example.com")
	case !hostForm.MatchString(host) || strings.Contains(host, ".."):
		return bad("Invalid Git host", "an address such as https://git.example.com")
	case p == forge.Bitbucket && host != hosts[forge.Bitbucket]:
		return bad("Only bitbucket.org can be connected", "for Bitbucket Server store a credential with the site")
	}
	return host, nil
}
