package oauth

import (
	"context"
	"encoding/json"
	"net/url"
	"slices"
	"strings"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/id"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/limits"
)

// Request holds an app's request to a person.
type Request struct {
	App       App
	Redirect  string         // where the answer goes; one that the app registered
	Scopes    account.Scopes // that it asks for
	state     string
	challenge string // PKCE, S256
	audience  Audience
}

// RedirectHost is the host to which the answer leads, in words that a person can check.
func (r Request) RedirectHost() string {
	u, err := url.Parse(r.Redirect)
	switch {
	case err != nil:
		return ""
	case u.Host == "" || u.Scheme != "https" && u.Scheme != "http":
		return "an app on your device (" + u.Scheme + ")"
	case loopback(u.Hostname()):
		return "a program on your device"
	}
	return u.Hostname()
}

// Refused is an authorization request that is answered at the app's redirect URI (RFC 6749 §4.1.2.1).
type Refused struct {
	To  string // the address, error included
	Err *Error
}

func (r *Refused) Error() string { return r.Err.Error() }

const (
	maxState     = 1000
	defaultScope = account.SitesRead // for apps that ask for none
)

// NotGrantable are the scopes that only people and their own keys have: with one of them an app could
// outlive its grant.
var NotGrantable = account.Scopes{account.All, account.KeysWrite, account.TeamWrite, account.AppsWrite}

// Dangerous are the scopes that the consent page marks: with them an app reads secrets, or changes what visitors see.
var Dangerous = account.Scopes{
	account.SitesWrite, account.DeploymentsWrite, account.DomainsWrite, account.EnvRead, account.EnvWrite, account.BackupsWrite,
	account.BackupsRead, account.WebhooksWrite,
}

// Authorize reads an authorization request (RFC 6749 §4.1.1, RFC 7636). A fault is for a page of ours:
// as long as client and address aren't both known, nobody is sent anywhere. A *Refused is for the app.
func (s *Server) Authorize(ctx context.Context, by account.Caller, q url.Values) (Request, error) {
	id, redirect := q["client_id"], q["redirect_uri"]
	if len(id) != 1 || len(redirect) > 1 {
		return Request{}, fault.New(fault.Invalid, "invalid_request", "Invalid authorization request",
			"client_id and redirect_uri must be given once")
	}
	a, err := s.client(ctx, by, AppID(id[0]))
	if err != nil {
		return Request{}, err
	}
	r := Request{App: a}
	switch {
	case len(redirect) == 1 && matchRedirect(a.RedirectURIs, redirect[0]):
		r.Redirect = redirect[0]
	case len(redirect) == 0 && len(a.RedirectURIs) == 1:
		r.Redirect = a.RedirectURIs[0]
	default:
		return Request{}, fault.New(fault.Invalid, "invalid_redirect_uri", "This redirect URI isn't registered for the app",
			"redirect_uri must equal one that the app registered")
	}
	if states := q["state"]; len(states) == 1 && len(states[0]) <= maxState {
		r.state = states[0]
	}
	refuse := func(code, description string) (Request, error) {
		return Request{}, &Refused{s.answer(r, "error", code, "error_description", description), bad(code, description)}
	}
	for _, name := range []string{"response_type", "state", "scope", "code_challenge", "code_challenge_method", "response_mode", "prompt"} {
		if len(q[name]) > 1 {
			return refuse("invalid_request", name+" must be given once")
		}
	}
	switch {
	case len(q.Get("state")) > maxState:
		return refuse("invalid_request", "state has more than 1000 characters")
	case q.Get("response_type") != "code":
		return refuse("unsupported_response_type", "response_type must be code")
	case q.Get("response_mode") != "" && q.Get("response_mode") != "query":
		return refuse("invalid_request", "response_mode must be query")
	case q.Has("request") || q.Has("request_uri"):
		return refuse("request_not_supported", "request objects are not supported")
	case q.Get("code_challenge_method") != "S256":
		return refuse("invalid_request", "PKCE is required: code_challenge_method must be S256")
	case !isChallenge(q.Get("code_challenge")):
		return refuse("invalid_request", "code_challenge must be the base64url form of a SHA-256 digest")
	case q.Get("prompt") == "none":
		return refuse("interaction_required", "people must see this page")
	}
	var target *Error
	r.audience, target = s.audience(q["resource"])
	if target != nil {
		return refuse(target.Code, target.Description)
	}
	r.challenge = q.Get("code_challenge")
	if r.Scopes, err = s.askedScopes(a, q.Get("scope")); err != nil {
		return refuse("invalid_scope", err.Error())
	}
	return r, nil
}

func isChallenge(c string) bool { return len(c) == 43 && isUnreserved(c) }

// isUnreserved reports whether s holds only what verifiers and challenges are made of (RFC 7636 §4.1).
func isUnreserved(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool {
		return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("-._~", r))
	})
}

// askedScopes reads a scope parameter; the error's text is a description without quotes.
func (s *Server) askedScopes(a App, text string) (account.Scopes, error) {
	var out account.Scopes
	for name := range strings.FieldsSeq(text) {
		scope := account.Scope(name)
		switch {
		case !slices.Contains(account.AllScopes, scope):
			return nil, bad("", "unknown scope: "+printable(name))
		case !a.FirstParty() && slices.Contains(NotGrantable, scope):
			return nil, bad("", "apps can't have the scope "+name)
		case !slices.Contains(out, scope):
			out = append(out, scope)
		}
	}
	if len(out) == 0 {
		out = account.Scopes{defaultScope}
	}
	return out, nil
}

// printable is a stranger's word as an error_description may hold it (RFC 6749 §5.2).
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' || r == '"' || r == '\\' {
			return '?'
		}
		return r
	}, s[:min(len(s), 60)])
}

// answer is the address that tells the app what came of its request.
func (s *Server) answer(r Request, pairs ...string) string {
	q := url.Values{"iss": {s.Issuer()}} // RFC 9207: whose answer it is
	for i := 0; i < len(pairs); i += 2 {
		q.Set(pairs[i], pairs[i+1])
	}
	if r.state != "" {
		q.Set("state", r.state)
	}
	switch sep := "?"; {
	case strings.HasSuffix(r.Redirect, "?") || strings.HasSuffix(r.Redirect, "&"):
		return r.Redirect + q.Encode()
	case strings.Contains(r.Redirect, "?"):
		sep = "&"
		fallthrough
	default:
		return r.Redirect + sep + q.Encode()
	}
}

// sealedRequest is a Request between the consent page and its form: what the person saw is what they
// allow, in the session that saw it.
type sealedRequest struct {
	App       AppID             `json:"a"`
	Redirect  string            `json:"r"`
	Scopes    account.Scopes    `json:"s"`
	State     string            `json:"t"`
	Challenge string            `json:"c"`
	Audience  Audience          `json:"f"`
	User      account.UserID    `json:"u"`
	Session   account.SessionID `json:"i"`
	Owner     account.OwnerID   `json:"o"` // whom the page was about
	Until     db.Time           `json:"e"`
}

const consentPurpose = "oauth consent"

// consentLife is how long a consent page may stand open.
const consentLife = 30 * time.Minute

// Seal returns a request as the consent page's form carries it.
func (s *Server) Seal(r Request, by account.Caller, session account.SessionID) string {
	b, err := json.Marshal(sealedRequest{
		r.App.ID, r.Redirect, r.Scopes, r.state, r.challenge, r.audience, by.User, session, by.Owner, db.Now().Add(consentLife),
	})
	if err != nil {
		panic(err) // strings and numbers alone
	}
	return s.c.Seal.Seal(b, consentPurpose)
}

// Unseal returns the request of a consent page, for the session that saw it alone.
func (s *Server) Unseal(ctx context.Context, sealed string, by account.Caller, session account.SessionID) (Request, error) {
	stale := fault.New(fault.Conflict, "stale_consent", "This page is out of date",
		"it was opened by another sign-in or too long ago; start again in the app")
	b, err := s.c.Seal.Open(sealed, consentPurpose)
	var f sealedRequest
	if err != nil || json.Unmarshal(b, &f) != nil || f.User != by.User || f.Owner != by.Owner || f.Session != session || f.Until <= db.Now() {
		return Request{}, stale
	}
	a, err := s.find(ctx, s.c.DB, f.App)
	if err != nil {
		return Request{}, err
	}
	if !matchRedirect(a.RedirectURIs, f.Redirect) {
		return Request{}, stale
	}
	return Request{App: a, Redirect: f.Redirect, Scopes: f.Scopes, state: f.State, challenge: f.Challenge, audience: f.Audience}, nil
}

// Consent holds the rights that a person allows.
type Consent struct {
	Scopes  account.Scopes // some of those that were asked for
	Sites   []id.Site      // empty: all of the owner's, also later ones
	Expires db.Time        // at most a year from now

	through string // the team's sign-in provider of the person's session; empty: none
}

// check refuses a consent that is wider than what was asked for.
func (c *Consent) check(asked account.Scopes) error {
	if len(c.Scopes) == 0 {
		return fault.New(fault.Invalid, "scopes_required", "Choose at least one permission", "or select Cancel")
	}
	for _, scope := range c.Scopes {
		if !slices.Contains(asked, scope) {
			return fault.New(fault.Invalid, "wider_consent", "The app didn't ask for this permission", string(scope))
		}
	}
	if len(c.Sites) > maxGrantSites {
		return fault.New(fault.Invalid, "too_many_restrictions", "Too many sites", "choose at most 100 sites, or all")
	}
	latest := db.Now().Add(grantLife)
	if c.Expires <= db.Now() || c.Expires > latest {
		c.Expires = latest
	}
	return nil
}

const maxGrantSites = 100

// ApproveTx lets the app have what the person allows, and returns the address that tells it. The grant
// begins when the app redeems the code.
func (s *Server) ApproveTx(ctx context.Context, tx *db.Tx, by account.Caller, r Request, c Consent) (to string, err error) {
	if err := c.check(r.Scopes); err != nil {
		return "", err
	}
	if err := s.allowed(ctx, tx, by.Owner, r.App.ID); err != nil {
		return "", err
	}
	if err := s.c.Limits.RequireTx(ctx, tx, by.Owner, limits.OAuthGrants, 1); err != nil {
		return "", err
	}
	code := account.NewSecret(codePrefix)
	_, err = tx.Exec(ctx, `
		INSERT INTO oauth_codes (hash, app_id, user_id, owner_id, scopes, sites, redirect_uri, challenge, grant_expires_at,
		expires_at, used_at, grant_id, audience, provider_id)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, 0, '', $11, $12)`,
		digest(code), r.App.ID, by.User, by.Owner, c.Scopes.String(), id.Join(c.Sites), r.Redirect, r.challenge, c.Expires,
		db.Now().Add(codeLife), r.audience, by.Through)
	if err != nil {
		return "", err
	}
	return s.answer(r, "code", code), nil
}

// Deny returns the address that tells the app that the person refused.
func (s *Server) Deny(r Request) string {
	return s.answer(r, "error", "access_denied", "error_description", "The person refused")
}
