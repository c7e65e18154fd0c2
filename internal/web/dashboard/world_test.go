package dashboard

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"slipway/internal/backup/backup"
	"slipway/internal/backup/repository"
	"slipway/internal/build/release"
	"slipway/internal/deploy/deploy"
	"slipway/internal/deploy/pushes"
	"slipway/internal/deploy/ruletest"
	"slipway/internal/deploy/screenshot"
	"slipway/internal/deploy/upload"
	"slipway/internal/platform/blob"
	"slipway/internal/platform/db"
	"slipway/internal/platform/dbtest"
	"slipway/internal/platform/seal"
	"slipway/internal/program/database"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/connection"
	"slipway/internal/tenant/domain"
	"slipway/internal/tenant/limits"
	"slipway/internal/tenant/notify"
	"slipway/internal/tenant/oauth"
	"slipway/internal/tenant/operation"
	"slipway/internal/tenant/site"
	"slipway/internal/tenant/sso"
	"slipway/internal/tenant/team"
	"slipway/internal/tenant/traffic"
	"slipway/internal/tenant/usage"
	"slipway/internal/tenant/webhook"
	"slipway/internal/web/dashboard/shell"
	"slipway/internal/web/services"
	"slipway/internal/wordpress/wordpress"
)

const password = "correct horse battery staple 9"

// world is the dashboard with real services and its own database. No worker runs.
type world struct {
	t     testing.TB
	db    *db.DB
	dash  *Dashboard
	srv   *httptest.Server
	users map[string]account.User

	releases *release.Releases
	uploads  *upload.Uploads

	statements statements
}

func newWorld(t testing.TB, with ...func(*Config)) *world {
	t.Helper()
	w := &world{t: t, users: map[string]account.User{}}
	d := dbtest.New(t, func(c *db.Config) { c.Seen = w.statements.see })
	w.db = d
	s, err := seal.Load(filepath.Join(t.TempDir(), "key"))
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	var handler http.Handler
	w.srv = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { handler.ServeHTTP(rw, r) }))
	t.Cleanup(w.srv.Close)
	blobs, err := blob.OpenDir(filepath.Join(t.TempDir(), "blobs"))
	if err != nil {
		t.Fatal(err)
	}
	w.releases = release.New(release.Config{Blobs: blobs})
	hooks := webhook.New(webhook.Config{DB: d, Seal: s, Operations: operation.New(operation.Config{DB: d})})
	sites := site.New(site.Config{DB: d, Hooks: hooks, Seal: s, Domain: "sites.test"})
	most := limits.New(limits.Settings{Defaults: map[limits.Name]int64{limits.BuildMinutes: 200}})
	c := Config{Services: services.Services{
		DB: d, Log: log, BaseURL: w.srv.URL, Version: "test", Webhooks: hooks, Sites: sites,
		Accounts: account.New(account.Config{
			DB:         d,
			Limits:     most,
			HashMemory: 64,
			Seal:       s,
			Log:        log,
			Site:       strings.Replace(w.srv.URL, "127.0.0.1", "localhost", 1),
		}),
		Traffic: traffic.New(traffic.Config{DB: d}),
		Usage:   usage.New(usage.Config{DB: d, Limits: most}),
		Uploads: upload.New(upload.Config{DB: d, Sites: sites, Releases: w.releases, Blobs: blobs, Log: log}),
		Domains: domain.New(domain.Config{DB: d, SiteDomain: "sites.test", Registry: "local", Log: log, Sites: sites}),
	}}
	w.uploads = c.Uploads
	c.Deployments = deploy.New(deploy.Config{DB: d, Sites: sites, Hooks: hooks, Releases: w.releases, Uploads: c.Uploads, Log: log})
	c.Teams = team.New(team.Config{
		DB: d, Accounts: c.Accounts, Limits: limits.New(limits.Settings{}), Sites: sites, Hooks: hooks,
		Operations: operation.New(operation.Config{DB: d}),
	})
	c.SSO = sso.New(sso.Config{DB: d, Accounts: c.Accounts, Seal: s, Base: w.srv.URL, Log: log})
	c.OAuth = oauth.New(oauth.Config{DB: d, Accounts: c.Accounts, Seal: s, Issuer: w.srv.URL})
	c.Releases = w.releases
	c.Screenshots = screenshot.New(screenshot.Config{DB: d, Sites: sites})
	c.Rules = ruletest.New(ruletest.Config{DB: d, Sites: sites, Deployments: c.Deployments, Releases: w.releases})
	c.Connections = connection.New(connection.Config{DB: d, Seal: s, Out: &http.Client{Transport: forgeStandIn{}}})
	c.Notify = notify.New(notify.Config{DB: d, Seal: s, Out: http.DefaultClient})
	c.Git = pushes.New(pushes.Config{DB: d, Sites: sites, Deployments: c.Deployments, Seal: s})
	if c.Databases, err = database.New(database.Config{
		DB:       d,
		Sites:    sites,
		Seal:     s,
		Dir:      t.TempDir(),
		External: "mysql://admin:secret@127.0.0.1:1",
	}); err != nil {
		t.Fatal(err)
	}
	at, err := blob.Dir(filepath.Join(t.TempDir(), "backups"))
	if err != nil {
		t.Fatal(err)
	}
	c.Backups = backup.New(backup.Config{
		DB:          d,
		Sites:       sites,
		Deployments: c.Deployments,
		Hooks:       hooks,
		Operations:  operation.New(operation.Config{DB: d}),
		Blobs:       blobs,
		Repository:  repository.New(repository.Config{Backend: at, Seal: s}),
		Scratch:     t.TempDir(),
	})
	c.WordPress = wordpress.New(wordpress.Config{DB: d, Sites: sites, Databases: c.Databases, Seal: s, Source: "/nowhere"})
	for _, f := range with {
		f(&c)
	}
	c.OAuth.Connect(oauth.Removers{
		Webhooks: c.Webhooks, DeployHooks: c.Sites, Channels: c.Notify, Polling: c.Git, Repositories: pushes.ChosenByApp{Pushes: c.Git},
	})
	c.Teams.Connect(
		c.Git, team.Ties{
			Accounts: c.Accounts, Connections: c.Connections, Webhooks: c.Webhooks, Notify: c.Notify, OAuth: c.OAuth, SSO: c.SSO,
		},
		team.NamedPart{Name: "deployments", Part: c.Deployments},
		team.NamedPart{Name: "backups", Part: c.Backups},
		team.NamedPart{Name: "sites", Part: c.Sites},
		team.NamedPart{Name: "domains", Part: c.Domains},
		team.NamedPart{Name: "databases", Part: c.Databases},
		team.NamedPart{Name: "WordPress installations", Part: c.WordPress},
	)
	w.dash = New(c)
	handler = w.dash.Handler()
	return w
}

// user creates a user with the password above.
func (w *world) user(email string, admin bool) account.User {
	w.t.Helper()
	u, err := w.dash.Accounts.CreateUser(w.t.Context(), email, password, admin)
	if err != nil {
		w.t.Fatal(err)
	}
	w.users[email] = u
	return u
}

func (w *world) site(u account.User, name string) site.Site {
	w.t.Helper()
	s, err := w.dash.Sites.Create(w.t.Context(), u.Owner, site.NewSite{
		Name:       name,
		Type:       "static",
		Repository: "git.test/acme/site",
		Branch:     "main",
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

// sites creates many sites in one transaction.
func (w *world) sites(u account.User, n int, name string) (made []site.Site) {
	w.t.Helper()
	err := w.db.Write(w.t.Context(), func(tx *db.Tx) error {
		for i := range n {
			s, err := w.dash.Sites.CreateTx(w.t.Context(), tx, u.Owner, site.NewSite{
				Name:       fmt.Sprintf("%s %d", name, i),
				Type:       "static",
				Repository: "git.test/acme/site",
				Branch:     "main",
			})
			if err != nil {
				return err
			}
			made = append(made, s)
		}
		return nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return made
}

// browser keeps cookies and follows no redirects.
type browser struct {
	w      *world
	client *http.Client
}

func (w *world) browser() *browser {
	jar, err := cookiejar.New(nil)
	if err != nil {
		w.t.Fatal(err)
	}
	return &browser{w, &http.Client{
		Jar: jar, Timeout: 20 * time.Second,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// as returns a browser that is signed in.
func (w *world) as(email string) *browser {
	w.t.Helper()
	b := w.browser()
	if p := b.post("/sign-in", "email", email, "password", password); p.status != http.StatusSeeOther {
		w.t.Fatalf("sign in as %s: %s", email, p)
	}
	return b
}

type reply struct {
	status int
	header http.Header
	body   string
}

func (p reply) String() string {
	return http.StatusText(p.status) + " to " + p.header.Get("Location") + "\n" + shell.Short(3000, p.body)
}

// has reports whether an element has this data-test attribute.
func (p reply) has(hook string) bool { return strings.Contains(p.body, `data-test="`+hook+`"`) }

func (b *browser) do(method, path string, form url.Values, headers ...string) reply {
	b.w.t.Helper()
	var body io.Reader
	if form != nil {
		body = strings.NewReader(form.Encode())
	}
	r, err := http.NewRequestWithContext(b.w.t.Context(), method, b.w.srv.URL+path, body)
	if err != nil {
		b.w.t.Fatal(err)
	}
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Set(name, value)
		if name == "Host" {
			r.Host = value
		}
	}
	resp, err := b.client.Do(r)
	if err != nil {
		b.w.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		b.w.t.Fatal(err)
	}
	return reply{resp.StatusCode, resp.Header, string(text)}
}

func (b *browser) get(path string, headers ...string) reply {
	b.w.t.Helper()
	return b.do(http.MethodGet, path, nil, headers...)
}

// post sends a form of names and values.
func (b *browser) post(path string, pairs ...string) reply {
	b.w.t.Helper()
	form := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		form.Add(pairs[i], pairs[i+1])
	}
	return b.do(http.MethodPost, path, form)
}

// forgeStandIn is a fake GitHub: the token good-token belongs to octo, who can read two repositories.
type forgeStandIn struct{}

func (forgeStandIn) RoundTrip(r *http.Request) (*http.Response, error) {
	status, body := 200, `{"login": "octo"}`
	switch {
	case r.URL.Host != "api.github.com" || r.Header.Get("Authorization") != "Bearer good-token":
		status, body = 401, `{"message": "Bad credentials"}`
	case r.URL.Path == "/user/repos":
		body = `[{"full_name": "octo/site", "default_branch": "main", "private": true}, {"full_name": "octo/other", "default_branch": "main"}]`
	}
	return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
}
