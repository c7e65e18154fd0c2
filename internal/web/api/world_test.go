package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"

	"slipway/internal/backup/backup"
	"slipway/internal/backup/repository"
	"slipway/internal/build/build"
	"slipway/internal/build/release"
	"slipway/internal/deploy/deploy"
	"slipway/internal/deploy/pushes"
	"slipway/internal/deploy/ruletest"
	"slipway/internal/deploy/upload"
	"slipway/internal/platform/blob"
	"slipway/internal/platform/db"
	"slipway/internal/platform/dbtest"
	"slipway/internal/platform/seal"
	"slipway/internal/program/app"
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
	"slipway/internal/web/api"
	"slipway/internal/web/idempotency"
	"slipway/internal/web/ratelimit"
	"slipway/internal/web/services"
	"slipway/internal/wordpress/wordpress"
)

// world is the API with real services and its own database. No worker runs, so jobs stay pending.
type world struct {
	t    testing.TB
	db   *db.DB
	c    api.Config
	srv  *httptest.Server
	logs *lockedBuffer

	statements *atomic.Int64 // run by the database
}

type lockedBuffer struct {
	ch  chan struct{}
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.ch <- struct{}{}
	defer func() { <-b.ch }()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.ch <- struct{}{}
	defer func() { <-b.ch }()
	return b.buf.String()
}

func newWorld(t testing.TB, with ...func(*api.Config)) *world {
	t.Helper()
	return newLimitedWorld(t, limits.Settings{}, with...)
}

func newLimitedWorld(t testing.TB, settings limits.Settings, with ...func(*api.Config)) *world {
	t.Helper()
	return newWorldOn(t, dbtest.New, settings, with...)
}

// newWorldOn is newLimitedWorld with the database that open returns.
func newWorldOn(
	t testing.TB, open func(testing.TB, ...func(*db.Config)) *db.DB, settings limits.Settings, with ...func(*api.Config),
) *world {
	t.Helper()
	quotas := limits.New(settings)
	statements := new(atomic.Int64)
	d := open(t, func(c *db.Config) { c.Seen = func(string) { statements.Add(1) } })
	s, err := seal.Load(filepath.Join(t.TempDir(), "key"))
	if err != nil {
		t.Fatal(err)
	}
	logs := &lockedBuffer{ch: make(chan struct{}, 1)}
	log := slog.New(slog.NewTextHandler(logs, &slog.HandlerOptions{Level: slog.LevelDebug}))
	operations := operation.New(operation.Config{DB: d, Log: log})
	hooks := webhook.New(webhook.Config{DB: d, Seal: s, Limits: quotas, Operations: operations})
	sites := site.New(site.Config{DB: d, Limits: quotas, Hooks: hooks, Seal: s, Domain: "sites.test"})
	uploaded, err := blob.OpenDir(filepath.Join(t.TempDir(), "uploads"))
	if err != nil {
		t.Fatal(err)
	}
	uploads := upload.New(upload.Config{
		DB: d, Sites: sites, Releases: release.New(release.Config{Blobs: uploaded}), Blobs: uploaded, Limits: quotas, Log: log,
	})
	deployments := deploy.New(deploy.Config{DB: d, Limits: quotas, Sites: sites, Hooks: hooks, Uploads: uploads, Log: log})
	place, err := blob.Dir(filepath.Join(t.TempDir(), "backups"))
	if err != nil {
		t.Fatal(err)
	}
	blobs, err := blob.OpenDir(filepath.Join(t.TempDir(), "blobs"))
	if err != nil {
		t.Fatal(err)
	}
	backups := backup.New(backup.Config{
		DB:          d,
		Limits:      quotas,
		Sites:       sites,
		Deployments: deployments,
		Hooks:       hooks,
		Operations:  operations,
		Blobs:       blobs,
		Log:         log,
		Repository:  repository.New(repository.Config{Backend: place, Seal: s}),
		Scratch:     t.TempDir(),
	})
	c := api.Config{
		Services: services.Services{
			DB: d, Log: log,
			Accounts:    account.New(account.Config{DB: d, Limits: quotas, Log: log}),
			Sites:       sites,
			Deployments: deployments,
			Uploads:     uploads,
			Rules:       ruletest.New(ruletest.Config{DB: d, Sites: sites, Deployments: deployments}),
			Domains: domain.New(domain.Config{
				DB:         d,
				Limits:     quotas,
				SiteDomain: "sites.test",
				Registry:   "local",
				Log:        log,
				Resolver:   noDNS{},
				Sites:      sites,
			}),
			Traffic:  traffic.New(traffic.Config{DB: d}),
			Usage:    usage.New(usage.Config{DB: d}),
			Apps:     app.New(app.Config{DB: d, Operations: operations}),
			Webhooks: hooks, Operations: operations,
			Backups: backups,
			BaseURL: "http://slipway.test",
			Limits:  quotas,
		},
		Answers:   idempotency.New(idempotency.Config{DB: d, Seal: s, Log: log}),
		Limiter:   ratelimit.New(ratelimit.Config{DB: d, Log: log}),
		RateLimit: 100_000,
	}
	c.Teams = team.New(team.Config{
		DB: d, Accounts: c.Accounts, Limits: quotas, Sites: sites, Hooks: hooks, Operations: operations, Log: log,
	})
	c.Connections = connection.New(connection.Config{DB: d, Seal: s, Out: &http.Client{Transport: forgeStandIn{}}})
	c.Notify = notify.New(notify.Config{DB: d, Seal: s, Out: http.DefaultClient})
	c.Git = pushes.New(pushes.Config{DB: d, Sites: sites, Deployments: c.Deployments, Seal: s})
	c.SSO = sso.New(sso.Config{
		DB: d, Accounts: c.Accounts, Seal: s, Base: c.BaseURL, Members: c.Teams, Log: log,
		Records: c.Domains,
	})
	c.OAuth = oauth.New(oauth.Config{DB: d, Accounts: c.Accounts, Limits: quotas, Seal: s, Issuer: c.BaseURL})
	// A database server elsewhere: requests for databases are stored, but none is created.
	if c.Databases, err = database.New(database.Config{
		DB:       d,
		Sites:    sites,
		Limits:   quotas,
		Seal:     s,
		Dir:      t.TempDir(),
		External: "mysql://admin:secret@127.0.0.1:1",
	}); err != nil {
		t.Fatal(err)
	}
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
		team.NamedPart{Name: "uploads", Part: c.Uploads},
		team.NamedPart{Name: "backups", Part: c.Backups},
		team.NamedPart{Name: "sites", Part: c.Sites},
		team.NamedPart{Name: "domains", Part: c.Domains},
		team.NamedPart{Name: "databases", Part: c.Databases},
		team.NamedPart{Name: "WordPress installations", Part: c.WordPress},
		team.NamedPart{Name: "workers and scheduled commands", Part: c.Apps},
		team.NamedPart{Name: "build caches", Part: build.New(build.Config{})},
	)
	w := &world{t: t, db: d, c: c, logs: logs, statements: statements}
	w.srv = httptest.NewServer(api.New(c).Handler())
	t.Cleanup(w.srv.Close)
	return w
}

// forgeStandIn is a fake GitHub: the token good-token belongs to octo, who can read one repository.
type forgeStandIn struct{}

func (forgeStandIn) RoundTrip(r *http.Request) (*http.Response, error) {
	status, body, header := 200, `{"login": "octo"}`, http.Header{"X-Oauth-Scopes": {"repo, admin:repo_hook"}}
	switch {
	case r.URL.Host != "api.github.com" || r.Header.Get("Authorization") != "Bearer good-token":
		status, body = 401, `{"message": "Bad credentials"}`
	case r.URL.Path == "/user/repos":
		body = `[{"full_name": "octo/site", "default_branch": "main", "private": true}, {"full_name": "octo/other", "default_branch": "main"}]`
	}
	return &http.Response{StatusCode: status, Header: header, Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
}

// noDNS is a resolver without any records.
type noDNS struct{}

func (noDNS) Ask(_ context.Context, _ netip.AddrPort, name string, qtype uint16) (*dns.Msg, error) {
	q := new(dns.Msg).SetQuestion(dns.Fqdn(name), qtype)
	return new(dns.Msg).SetRcode(q, dns.RcodeNameError), nil
}

// user creates a user and a key with these scopes, or all.
func (w *world) user(email string, scopes ...account.Scope) (account.UserID, string) {
	w.t.Helper()
	u, err := w.c.Accounts.CreateUser(w.t.Context(), email, "", false)
	if err != nil {
		w.t.Fatal(err)
	}
	return u.ID, w.key(u.ID, account.NewKey{Scopes: scopes})
}

// caller returns a user as a caller with the user's whole authority.
func (w *world) caller(u account.UserID) account.Caller {
	w.t.Helper()
	user, err := w.c.Accounts.User(w.t.Context(), u)
	if err != nil {
		w.t.Fatal(err)
	}
	return user.Caller()
}

// owner returns a user's personal account.
func (w *world) owner(u account.UserID) account.OwnerID {
	w.t.Helper()
	user, err := w.c.Accounts.User(w.t.Context(), u)
	if err != nil {
		w.t.Fatal(err)
	}
	return user.Owner
}

func (w *world) key(u account.UserID, n account.NewKey) string {
	w.t.Helper()
	if len(n.Scopes) == 0 {
		n.Scopes = account.Scopes{account.All}
	}
	n.Name = "test"
	_, secret, err := w.c.Accounts.CreateKey(w.t.Context(), u, n)
	if err != nil {
		w.t.Fatal(err)
	}
	return secret
}

type answer struct {
	status int
	header http.Header
	body   string
}

func (a answer) json(t testing.TB) map[string]any {
	t.Helper()
	var v map[string]any
	if err := json.Unmarshal([]byte(a.body), &v); err != nil {
		t.Fatalf("%d %q: %v", a.status, a.body, err)
	}
	return v
}

func (a answer) String() string { return fmt.Sprintf("%d %.300s", a.status, a.body) }

// send sends a request. body can be nil, a string (sent unchanged) or a value (sent as JSON). headers are "Name:
// value".
func (w *world) send(method, path, key string, body any, headers ...string) answer {
	w.t.Helper()
	var r io.Reader
	switch b := body.(type) {
	case nil:
	case string:
		r = strings.NewReader(b)
	default:
		text, err := json.Marshal(b)
		if err != nil {
			w.t.Fatal(err)
		}
		r = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(w.t.Context(), method, w.srv.URL+path, r)
	if err != nil {
		w.t.Fatal(err)
	}
	if key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	if r != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Add(name, value)
		if value == "" {
			req.Header.Del(name)
		}
	}
	client := http.Client{
		Timeout:       20 * time.Second,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	resp, err := client.Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	a := answer{resp.StatusCode, resp.Header, string(text)}
	w.described(req, a)
	return a
}

// statuses returns the listed statuses of each operation by its pattern, and a mux of the patterns.
var statuses = [2]func(*world) (map[string][]string, *http.ServeMux){listed(), listed()} // without billing, with it

func listed() func(w *world) (map[string][]string, *http.ServeMux) {
	var once sync.Once
	byPattern, mux := map[string][]string{}, http.NewServeMux()
	return func(w *world) (map[string][]string, *http.ServeMux) {
		once.Do(func() {
			rec := httptest.NewRecorder()
			api.New(w.c).Handler().ServeHTTP(rec, httptest.NewRequest("GET", "/api/v1/openapi.json", nil))
			var doc struct {
				Paths map[string]map[string]struct{ Responses map[string]any }
			}
			if err := json.Unmarshal(rec.Body.Bytes(), &doc); err != nil {
				panic(err)
			}
			for path, item := range doc.Paths {
				for method, op := range item {
					pattern := strings.ToUpper(method) + " " + path
					byPattern[pattern] = slices.Sorted(maps.Keys(op.Responses))
					mux.Handle(pattern, http.NotFoundHandler())
				}
			}
		})
		return byPattern, mux
	}
}

// described fails the test if a response's status isn't listed for its operation. It checks every request of every
// test.
func (w *world) described(r *http.Request, a answer) {
	w.t.Helper()
	billing := 0
	if w.c.Billing != nil {
		billing = 1
	}
	all, mux := statuses[billing](w)
	_, pattern := mux.Handler(r)
	if pattern == "" || a.status == http.StatusNotFound && strings.Contains(a.body, `"path_not_found"`) {
		return // no operation
	}
	if !slices.Contains(all[pattern], strconv.Itoa(a.status)) {
		w.t.Errorf("%s answers %s, and the document lists %v", pattern, a, all[pattern])
	}
}

func (w *world) api(method, path, key string, body any, headers ...string) answer {
	w.t.Helper()
	return w.send(method, "/api/v1"+path, key, body, headers...)
}

// must sends a request to the API and fails the test unless the response has this status.
func (w *world) must(status int, method, path, key string, body any, headers ...string) map[string]any {
	w.t.Helper()
	a := w.api(method, path, key, body, headers...)
	if a.status != status {
		w.t.Fatalf("%s %s: %s, want %d", method, path, a, status)
	}
	return a.json(w.t)
}

func (w *world) site(key, name string) string {
	w.t.Helper()
	a := w.must(201, "POST", "/sites", key, map[string]any{
		"name":       name,
		"type":       "static",
		"repository": "git.test/acme/site",
		"branch":     "main",
	})
	return a["data"].(map[string]any)["id"].(string)
}

// routesOf returns the routes of a world's API.
func routesOf(w *world) []api.Route { return api.New(w.c).Routes() }
