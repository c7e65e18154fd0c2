package connection

import (
	"context"
	"net/http"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"

	"slipway/internal/git/forge"
	"slipway/internal/platform/fault"
)

// tokens caches installation tokens of GitHub Apps until shortly before they expire. Each is for one connection,
// repository and purpose.
type tokens struct {
	mu sync.Mutex // guards of
	// share: total 10,000 tokens; owner one for each connection, repository and purpose; edge all are forgotten, and fetched again
	of map[tokenKey]*installationToken
}

type tokenKey struct {
	connection ID
	repository string
	report     bool
}

// installationToken is fetched by the first caller, while others wait for its lock.
type installationToken struct {
	mu    sync.Mutex // empty if no token is needed
	token string     // empty: none is needed
	until time.Time
}

const (
	tokenMargin = 5 * time.Minute // remaining validity below which a token isn't used
	maxTokens   = 10_000
)

func (t *tokens) get(k tokenKey) *installationToken {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.of == nil || len(t.of) >= maxTokens {
		t.of = map[tokenKey]*installationToken{}
	}
	if t.of[k] == nil {
		t.of[k] = &installationToken{}
	}
	return t.of[k]
}

// forget drops a connection's tokens after the provider refused one.
func (t *tokens) forget(id ID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for k := range t.of {
		if k.connection == id {
			delete(t.of, k)
		}
	}
}

// readToken returns a token that reads one repository of a GitHub App's user. It is empty for public repositories.
func (s *Connections) readToken(ctx context.Context, c Connection, repository string) (string, error) {
	return s.installationToken(ctx, c, tokenKey{c.ID, repository, false})
}

// reportToken returns a token that reports deployments of one repository, which the user must be able to write to.
func (s *Connections) reportToken(ctx context.Context, c Connection, repository string) (string, error) {
	return s.installationToken(ctx, c, tokenKey{c.ID, repository, true})
}

func (s *Connections) installationToken(ctx context.Context, c Connection, key tokenKey) (string, error) {
	t := s.installations.get(key)
	t.mu.Lock()
	defer t.mu.Unlock()
	if time.Now().Before(t.until) && !c.Ended {
		return t.token, nil
	}
	token, until, err := s.newInstallationToken(ctx, c, key)
	if err != nil {
		return "", err
	}
	t.token, t.until = token, until.Add(-tokenMargin)
	return token, nil
}

// newInstallationToken requests a token of an installation. An installation may have access to repositories that the
// user doesn't, so it first checks the user's own access and restricts the token to the one repository.
func (s *Connections) newInstallationToken(ctx context.Context, c Connection, key tokenKey) (token string, until time.Time, err error) {
	_, name, _ := strings.Cut(key.repository, "/")
	user, err := s.fresh(ctx, c)
	if err != nil {
		return "", until, err
	}
	var r struct {
		Private     bool `json:"private"`
		Permissions struct {
			Push bool `json:"push"`
		} `json:"permissions"`
	}
	asUser := s.api(c.Provider, c.Host, user).(github)
	switch err := asUser.send(ctx, http.MethodGet, "/repos/"+repo(name), nil, &r); {
	case isStatus(err, http.StatusUnauthorized): // the user revoked the access
		return "", until, errEnded(c.Host)
	case isStatus(err, http.StatusNotFound), isStatus(err, http.StatusForbidden):
		return "", until, fault.New(fault.Conflict, "no_access", c.Login+" has no access to "+key.repository,
			"ask for access at "+c.Host+", or connect another account")
	case err != nil:
		return "", until, err
	}
	if !r.Private && !key.report {
		return "", time.Now().Add(time.Hour), nil
	}
	if key.report && !r.Permissions.Push {
		return "", until, fault.New(fault.Conflict, "no_access", c.Login+" can't write to "+key.repository,
			"deployments are reported for those who can")
	}
	a, err := s.App(ctx, s.c.DB, c.App)
	if err != nil {
		return "", until, err
	}
	k, err := s.openApp(a)
	if err != nil {
		return "", until, err
	}
	jwt, err := appToken(a, k, time.Now())
	if err != nil {
		return "", until, err
	}
	asApp := s.api(forge.GitHub, c.Host, secret{Token: jwt}).(github)
	var in struct {
		ID int64 `json:"id"`
	}
	err = asApp.send(ctx, http.MethodGet, "/repos/"+repo(name)+"/installation", nil, &in)
	if isStatus(err, http.StatusNotFound) {
		return "", until, fault.New(fault.Conflict, "not_installed", "The GitHub App is not installed for "+key.repository,
			"add the repository at "+a.InstallURL())
	}
	if err != nil {
		return "", until, err
	}
	rights := readOnly
	if key.report {
		rights = reporting
	}
	var made struct {
		Token     string    `json:"token"`
		ExpiresAt time.Time `json:"expires_at"`
	}
	tokens := "/app/installations/" + strconv.FormatInt(in.ID, 10) + "/access_tokens"
	scope := map[string]any{"repositories": []string{path.Base(name)}, "permissions": rights}
	err = asApp.send(ctx, http.MethodPost, tokens, scope, &made)
	if err != nil {
		return "", until, err
	}
	if !plain(made.Token, 4096) {
		return "", until, &fault.Error{Kind: fault.Unavailable, Message: c.Host + " issued no token", Code: "forge_unavailable"}
	}
	return made.Token, made.ExpiresAt, nil
}
