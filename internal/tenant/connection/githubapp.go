package connection

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"slipway/internal/platform/id"

	"github.com/golang-jwt/jwt/v5"

	"slipway/internal/git/forge"
	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/lazyregexp"
	"slipway/internal/platform/text"
)

// SetupPath and CreatedPath are the paths to which GitHub redirects people after an app was installed and after it was
// created.
const (
	SetupPath   = "/account/git/installed"
	CreatedPath = "/operator/git/created"
)

// Manifest describes an app that GitHub creates.
// https://docs.github.com/apps/sharing-github-apps/registering-a-github-app-from-a-manifest
type Manifest struct {
	Name        string            `json:"name"`
	URL         string            `json:"url"`
	Hook        map[string]any    `json:"hook_attributes"`
	Redirect    string            `json:"redirect_url"`
	Callbacks   []string          `json:"callback_urls"`
	Setup       string            `json:"setup_url"`
	OnUpdate    bool              `json:"setup_on_update"`
	Public      bool              `json:"public"`
	Permissions map[string]string `json:"default_permissions"`
	Events      []string          `json:"default_events"`
}

// The permissions of the GitHub App: reading code and reporting deployments.
var (
	appPermissions = map[string]string{
		"metadata":      "read",
		"contents":      "read",
		"pull_requests": "write",
		"checks":        "write",
		"deployments":   "write",
	}
	readOnly  = map[string]string{"contents": "read"}
	reporting = map[string]string{"pull_requests": "write", "checks": "write", "deployments": "write"}
)

// Creation is the form that creates a GitHub App and the URL to post it to.
type Creation struct {
	To       string // the form's URL
	Manifest string
}

var organization = lazyregexp.New(`^[A-Za-z0-9](-?[A-Za-z0-9]){0,38}$`)

// NewGitHubApp is the operator's input for a GitHub App.
type NewGitHubApp struct {
	Host         string // Optional: empty means github.com.
	Organization string // Optional: empty means the operator's own account.
	Public       bool   // whether other GitHub accounts can install it
}

// HookPath is the path below the API's URL that receives an app's events. The ID of its webhook follows.
const HookPath = "/hooks/github/"

// CreationTx begins the creation of a GitHub App. The response is accepted once, in the same session.
func (s *Connections) CreationTx(ctx context.Context, tx *db.Tx, session id.Session, n NewGitHubApp) (Creation, error) {
	host, err := checkHost(forge.GitHub, n.Host)
	if err != nil {
		return Creation{}, err
	}
	n.Organization = strings.TrimSpace(n.Organization)
	if n.Organization != "" && !organization.MatchString(n.Organization) {
		return Creation{}, fault.New(fault.Invalid, "invalid_organization", "Invalid organization",
			"enter its name as in the address of its page at GitHub")
	}
	apps, err := s.Apps(ctx, tx)
	if err != nil {
		return Creation{}, err
	}
	for _, a := range apps {
		if a.Host == host {
			return Creation{}, fault.New(fault.Conflict, "app_exists", "There is an app for "+host, "delete it first")
		}
	}
	state, hook, err := s.signInTx(ctx, tx, session, "", host)
	if err != nil {
		return Creation{}, err
	}
	name := "Slipway " + strings.TrimPrefix(strings.TrimPrefix(s.c.Base, "https://"), "http://")
	m, err := json.Marshal(Manifest{
		Name:        name[:min(len(name), 34)],
		URL:         s.c.Base,
		Hook:        map[string]any{"url": s.c.Hooks + HookPath + hook, "active": true},
		Redirect:    s.c.Base + CreatedPath,
		Callbacks:   []string{s.callback()},
		Setup:       s.c.Base + SetupPath,
		OnUpdate:    true,
		Public:      n.Public,
		Permissions: appPermissions,
		Events:      []string{"push", "delete", "pull_request"},
	})
	to := "https://" + host + "/settings/apps/new"
	if n.Organization != "" {
		to = "https://" + host + "/organizations/" + url.PathEscape(n.Organization) + "/settings/apps/new"
	}
	return Creation{To: to + "?state=" + url.QueryEscape(state), Manifest: string(m)}, err
}

var slugForm = lazyregexp.New(`^[a-z0-9][a-z0-9-]{0,99}$`)

// CreatedApp is a GitHub App that GitHub created and that isn't stored yet.
type CreatedApp struct {
	app  App
	keys appSecret
}

// Created handles GitHub's response to a creation: it exchanges the code for the app's secrets.
func (s *Connections) Created(ctx context.Context, session id.Session, q url.Values) (CreatedApp, error) {
	in, err := s.endSignIn(ctx, session, q.Get("state"))
	if err != nil {
		return CreatedApp{}, err
	}
	code := q.Get("code")
	if in.app != "" || code == "" || len(code) > 200 {
		return CreatedApp{}, fault.New(fault.Invalid, "invalid_state", "GitHub's answer has no code", "begin again")
	}
	var made struct {
		Slug     string `json:"slug"`
		Name     string `json:"name"`
		ClientID string `json:"client_id"`
		Client   string `json:"client_secret"`
		Hook     string `json:"webhook_secret"`
		Key      string `json:"pem"`
	}
	w := s.api(forge.GitHub, in.host, secret{}).(github).wire
	w.auth = ""
	if err := w.send(ctx, http.MethodPost, "/app-manifests/"+url.PathEscape(code)+"/conversions", nil, &made); err != nil {
		return CreatedApp{}, tell(err, in.host)
	}
	_, err = jwt.ParseRSAPrivateKeyFromPEM([]byte(made.Key))
	if err != nil || !slugForm.MatchString(made.Slug) ||
		!plain(made.ClientID, 500) || !plain(made.Client, 500) || !plain(made.Hook, 500) {
		return CreatedApp{}, fault.New(fault.Invalid, "invalid_connection", in.host+"'s answer doesn't describe an app",
			"begin again")
	}
	return CreatedApp{
		App{
			Provider:   forge.GitHub,
			Host:       in.host,
			Name:       text.Line(made.Name, 100),
			ClientID:   made.ClientID,
			Slug:       made.Slug,
			hookDigest: digest(in.verifier),
		},
		appSecret{made.Client, made.Key, made.Hook},
	}, nil
}

// StoreAppTx stores the GitHub App returned by Created.
func (s *Connections) StoreAppTx(ctx context.Context, tx *db.Tx, made CreatedApp) (App, error) {
	return s.insertAppTx(ctx, tx, made.app, made.keys)
}

// ByHook returns the GitHub App with this webhook ID, or a NotFound fault.
func (s *Connections) ByHook(ctx context.Context, r db.Reader, hook string) (App, error) {
	return scanApp(r.QueryRow(ctx, `SELECT `+appColumns+` FROM git_apps a WHERE a.hook_digest = $1`, digest(hook)))
}

// AppEvent returns the GitHub App whose webhook was called. It returns an Unauthorized fault for a bad signature and a
// NotFound fault for an unknown webhook.
func (s *Connections) AppEvent(ctx context.Context, hook string, h http.Header, body []byte) (App, error) {
	a, err := s.ByHook(ctx, s.c.DB, hook)
	if err != nil {
		return a, err
	}
	k, err := s.openApp(a)
	if err != nil {
		return a, err
	}
	if p, _, _ := forge.Recognize(h); p != forge.GitHub {
		return a, &fault.Error{Kind: fault.Invalid, Message: "The request is not a GitHub event", Code: "unknown_forge"}
	}
	return a, forge.Verify(h, body, k.Hook, time.Now())
}

// UsesApp reports whether a site's connection was made with the app.
func (s *Connections) UsesApp(ctx context.Context, r db.Reader, site id.Site, id AppID) (bool, error) {
	var n int
	err := r.QueryRow(ctx, `SELECT count(*) FROM site_connections u JOIN connections c ON c.id = u.connection_id
		WHERE u.site_id = $1 AND c.app_id = $2 AND NOT c.ended`, site, id).
		Scan(&n)
	if err != nil {
		return false, fmt.Errorf("find app of a site: %w", err)
	}
	return n > 0, nil
}

// appToken returns the JWT (RS256) with which an app authenticates. It is backdated by a minute for clock skew and
// valid for at most ten.
func appToken(a App, k appSecret, now time.Time) (string, error) {
	key, err := jwt.ParseRSAPrivateKeyFromPEM([]byte(k.Key))
	if err != nil {
		return "", fmt.Errorf("read the app's key: %w", err)
	}
	return jwt.NewWithClaims(jwt.SigningMethodRS256, jwt.RegisteredClaims{
		IssuedAt:  jwt.NewNumericDate(now.Add(-time.Minute)),
		ExpiresAt: jwt.NewNumericDate(now.Add(8 * time.Minute)),
		Issuer:    a.ClientID,
	}).SignedString(key)
}

// ByGitHubApp reports whether the connection was made by signing in with a GitHub App, which receives the pushes of all
// its repositories.
func (c Connection) ByGitHubApp() bool { return c.App != "" && c.Provider == forge.GitHub }

// installed is github for GitHub Apps: it reports check runs instead of commit statuses, and lists the repositories
// that both the user and the app can read.
type installed struct{ github }

func (g installed) repositories(ctx context.Context, _ string) (out []Repository, err error) {
	var list struct {
		Installations []struct {
			ID int64 `json:"id"`
		} `json:"installations"`
	}
	if err := g.send(ctx, http.MethodGet, "/user/installations?per_page=100", nil, &list); err != nil {
		return nil, err
	}
	for _, in := range list.Installations[:min(len(list.Installations), 20)] {
		for page := 1; page <= 3; page++ {
			var part struct {
				Repositories []struct {
					Name    string `json:"full_name"`
					Default string `json:"default_branch"`
					Private bool   `json:"private"`
				} `json:"repositories"`
			}
			if err := g.send(ctx, http.MethodGet,
				fmt.Sprintf("/user/installations/%d/repositories?per_page=100&page=%d", in.ID, page), nil,
				&part); err != nil {
				return nil, err
			}
			for _, r := range part.Repositories {
				out = append(out, Repository{r.Name, r.Default, r.Private})
			}
			if len(part.Repositories) < 100 {
				break
			}
		}
	}
	return out, nil
}

func (g installed) status(ctx context.Context, f Facts, id string) (string, error) {
	body := map[string]any{
		"name": "Slipway: " + f.Slug, "head_sha": f.Commit, "details_url": f.LogURL, "external_id": string(f.Deployment),
		"output": map[string]string{"title": f.says(), "summary": f.comment()},
	}
	switch conclusion := map[string]string{"success": "success", "failed": "failure", "canceled": "cancelled"}[f.Status]; {
	case conclusion != "":
		body["status"], body["conclusion"] = "completed", conclusion
	case f.Status == "pending":
		body["status"] = "queued"
	default:
		body["status"] = "in_progress"
	}
	base := "/repos/" + repo(f.path()) + "/check-runs"
	if id != "" {
		delete(body, "head_sha")
		err := g.send(ctx, http.MethodPatch, base+"/"+repo(id), body, nil)
		return id, err
	}
	var made struct {
		ID int64 `json:"id"`
	}
	if err := g.send(ctx, http.MethodPost, base, body, &made); err != nil {
		return "", err
	}
	return strconv.FormatInt(made.ID, 10), nil
}

// HasRepositories reports whether a user who signed in with a GitHub App can select any repository. If not, the app
// must be installed first.
func (s *Connections) HasRepositories(ctx context.Context, k Checked) (bool, error) {
	if k.app == "" || k.n.Provider != forge.GitHub {
		return true, nil
	}
	list, err := installed{s.api(k.n.Provider, k.n.Host, secret{Token: k.n.Token}).(github)}.repositories(ctx, "")
	if err != nil {
		return false, tell(err, k.n.Host)
	}
	return len(list) > 0, nil
}
