package connection

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"slipway/internal/platform/id"

	"slipway/internal/git/forge"
	"slipway/internal/platform/db"
	"slipway/internal/platform/dbtest"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/job"
	"slipway/internal/platform/seal"
	"slipway/internal/platform/wait"
	"slipway/internal/tenant/account"
)

const (
	anna  = account.OwnerID("usr_anna")
	bert  = account.OwnerID("usr_bert")
	token = "tok-3c1f9d27ab"
	sha   = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
)

// asked is a request that the fake Git provider received.
type asked struct {
	method, path string
	body         map[string]any
	header       http.Header
}

// standIn is a fake Git provider: it answers requests that match the provider's documentation and refuses all others.
type standIn struct {
	t     *testing.T
	srv   *httptest.Server
	mu    sync.Mutex // guards all below
	asked []asked
	down  int             // status for every request; 0: works normally
	gone  map[string]bool // comments deleted at the provider
	made  int
}

type rule struct {
	method, path string // path may hold * for one segment
	answer       string // JSON, or empty
	fields       []string
}

func newStandIn(t *testing.T, auth func(*http.Request) bool, rules ...rule) *standIn {
	s := &standIn{t: t, gone: map[string]bool{}}
	s.srv = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		a := asked{r.Method, r.URL.EscapedPath(), nil, r.Header}
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(b) > 0 {
			if r.Header.Get("Content-Type") != "application/json" || json.Unmarshal(b, &a.body) != nil {
				http.Error(w, "no JSON", http.StatusUnsupportedMediaType)
				return
			}
		}
		s.asked = append(s.asked, a)
		switch {
		case s.down != 0:
			http.Error(w, "down", s.down)
			return
		case !auth(r):
			http.Error(w, `{"message": "Bad credentials"}`, http.StatusUnauthorized)
			return
		case s.gone[a.path]:
			http.Error(w, `{"message": "Not Found"}`, 404)
			return
		}
		for _, rule := range rules {
			if rule.method != r.Method || !matches(rule.path, a.path) {
				continue
			}
			for _, f := range rule.fields {
				name, want, _ := strings.Cut(f, "=")
				if got, ok := a.body[name]; !ok || want != "" && fmt.Sprint(got) != want {
					s.t.Errorf("%s %s: %s is %v, want %q", r.Method, a.path, name, got, want)
				}
			}
			s.made++
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, strings.ReplaceAll(rule.answer, "N", fmt.Sprint(100+s.made)))
			return
		}
		s.t.Errorf("the forge knows no %s %s", r.Method, a.path)
		http.Error(w, `{"message": "Not Found"}`, 404)
	}))
	t.Cleanup(s.srv.Close)
	return s
}

func matches(pattern, path string) bool {
	a, b := strings.Split(pattern, "/"), strings.Split(path, "/")
	return slices.EqualFunc(a, b, func(x, y string) bool { return x == "*" || x == y })
}

func (s *standIn) take() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := []string{}
	for _, a := range s.asked {
		out = append(out, a.method+" "+a.path)
	}
	s.asked = nil
	return out
}

func (s *standIn) set(down int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = down
}

type world struct {
	*Connections
	t     *testing.T
	db    *db.DB
	facts map[id.Deployment]Facts
	mu    sync.Mutex // guards facts
}

// told returns the facts of a world's deployments.
type told struct{ w *world }

func (d told) Facts(_ context.Context, id id.Deployment) (Facts, error) {
	d.w.mu.Lock()
	defer d.w.mu.Unlock()
	f, ok := d.w.facts[id]
	if !ok {
		return f, fault.Missing("deployment")
	}
	return f, nil
}

func newWorld(t *testing.T, host string, s *standIn) *world {
	t.Helper()
	w := &world{t: t, db: dbtest.New(t), facts: map[id.Deployment]Facts{}}
	key, err := seal.Load(filepath.Join(t.TempDir(), "key"))
	must(t, err)
	w.Connections = New(Config{
		DB:    w.db,
		Seal:  key,
		Out:   http.DefaultClient,
		Hosts: map[string]string{host: s.srv.URL},
		Log:   slog.New(slog.DiscardHandler),
	})
	w.Connections.Connect(told{w})
	return w
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (w *world) write(fn func(tx *db.Tx) error) {
	w.t.Helper()
	must(w.t, w.db.Write(w.t.Context(), fn))
}

func (w *world) connect(n NewConnection) Connection {
	w.t.Helper()
	k, err := w.Check(w.t.Context(), n)
	must(w.t, err)
	var c Connection
	w.write(func(tx *db.Tx) (err error) { c, err = w.CreateTx(w.t.Context(), tx, anna, k); return err })
	return c
}

// set changes a deployment's status and reports it as the service does.
func (w *world) set(f Facts, status string) {
	w.t.Helper()
	f.Status, f.UpdatedAt = status, db.Now()
	w.mu.Lock()
	w.facts[f.Deployment] = f
	w.mu.Unlock()
	w.write(func(tx *db.Tx) error {
		return w.ReportTx(w.t.Context(), tx, f.Site, f.Deployment, status, id.Owner(string(anna)))
	})
}

// drain runs the workers until all reports are sent.
func (w *world) drain() {
	w.t.Helper()
	jobs := job.New(job.Config{
		DB:     w.db,
		Log:    slog.New(slog.DiscardHandler),
		Queues: map[string]int{QueueName: 2},
		Poll:   10 * time.Millisecond,
		Drain:  time.Second,
	})
	w.Work(jobs)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); jobs.Run(ctx) }()
	wait.Until(w.t, "no reports are left", func() bool {
		var n int
		due := `SELECT count(*) FROM jobs WHERE state IN ('ready', 'running') AND run_at <= $1`
		must(w.t, w.db.QueryRow(w.t.Context(), due, db.Now()).Scan(&n))
		return n == 0
	})
	stop()
	<-done
}

var bearer = func(r *http.Request) bool { return r.Header.Get("Authorization") == "Bearer "+token }

// Each Git provider gets a deployment's commit status, its deployment record if it has those, and one comment on the
// pull request.
func TestReports(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		provider  forge.Provider
		host      string
		user      string
		auth      func(*http.Request) bool
		rules     []rule
		pending   []string // requests for a queued deployment of a pull request
		success   []string
		again     []string // requests after the comment was deleted
		deletable string   // path of the comment
	}{
		"github": {
			provider: forge.GitHub, host: "git.test", auth: func(r *http.Request) bool {
				return bearer(r) && r.Header.Get("X-Github-Api-Version") == "2022-11-28" && r.Header.Get("Accept") == "application/vnd.github+json"
			}, rules: []rule{
				{"GET", "/api/v3/user", `{"login": "anna"}`, nil},
				{
					"POST",
					"/api/v3/repos/acme/site/statuses/" + sha,
					`{"id": N}`,
					[]string{"state", "target_url", "description", "context=slipway/my-site"},
				},
				{
					"POST",
					"/api/v3/repos/acme/site/deployments",
					`{"id": N}`,
					[]string{
						"ref=" + sha,
						"auto_merge=false",
						"required_contexts=[]",
						"environment=Preview – my-site",
						"transient_environment=true",
					},
				},
				{
					"POST",
					"/api/v3/repos/acme/site/deployments/*/statuses",
					`{"id": N}`,
					[]string{"state", "log_url=https://slipway.test/log"},
				},
				{"POST", "/api/v3/repos/acme/site/issues/7/comments", `{"id": 55}`, []string{"body"}},
				{"PATCH", "/api/v3/repos/acme/site/issues/comments/55", `{"id": 55}`, []string{"body"}},
			},
			pending: []string{
				"POST /api/v3/repos/acme/site/statuses/" + sha,
				"POST /api/v3/repos/acme/site/deployments",
				"POST /api/v3/repos/acme/site/deployments/*/statuses",
				"POST /api/v3/repos/acme/site/issues/7/comments",
			},
			success: []string{
				"POST /api/v3/repos/acme/site/statuses/" + sha,
				"POST /api/v3/repos/acme/site/deployments/*/statuses",
				"PATCH /api/v3/repos/acme/site/issues/comments/55",
			},
			again: []string{
				"POST /api/v3/repos/acme/site/statuses/" + sha,
				"POST /api/v3/repos/acme/site/deployments",
				"POST /api/v3/repos/acme/site/deployments/*/statuses",
				"PATCH /api/v3/repos/acme/site/issues/comments/55",
				"POST /api/v3/repos/acme/site/issues/7/comments",
			},
			deletable: "/api/v3/repos/acme/site/issues/comments/55",
		},
		"gitea": {
			provider: forge.Gitea,
			host:     "git.test",
			auth:     func(r *http.Request) bool { return r.Header.Get("Authorization") == "token "+token },
			rules: []rule{
				{"GET", "/api/v1/user", `{"login": "anna"}`, nil},
				{
					"POST",
					"/api/v1/repos/acme/site/statuses/" + sha,
					`{"id": N}`,
					[]string{"state", "target_url", "description", "context=slipway/my-site"},
				},
				{"POST", "/api/v1/repos/acme/site/issues/7/comments", `{"id": 55}`, []string{"body"}},
				{"PATCH", "/api/v1/repos/acme/site/issues/comments/55", `{"id": 55}`, []string{"body"}},
			},
			pending: []string{"POST /api/v1/repos/acme/site/statuses/" + sha, "POST /api/v1/repos/acme/site/issues/7/comments"},
			success: []string{"POST /api/v1/repos/acme/site/statuses/" + sha, "PATCH /api/v1/repos/acme/site/issues/comments/55"},
			again: []string{
				"POST /api/v1/repos/acme/site/statuses/" + sha,
				"PATCH /api/v1/repos/acme/site/issues/comments/55",
				"POST /api/v1/repos/acme/site/issues/7/comments",
			},
			deletable: "/api/v1/repos/acme/site/issues/comments/55",
		},
		"gitlab": {
			provider: forge.GitLab, host: "git.test", auth: bearer, rules: []rule{
				{"GET", "/api/v4/user", `{"username": "anna"}`, nil},
				{
					"POST",
					"/api/v4/projects/acme%2Fsite/statuses/" + sha,
					`{"id": N}`,
					[]string{"state", "ref=cart", "name=slipway/my-site", "target_url", "description"},
				},
				{
					"POST",
					"/api/v4/projects/acme%2Fsite/deployments",
					`{"id": 91}`,
					[]string{"environment=Preview – my-site", "sha=" + sha, "ref=cart", "tag=false", "status=created"},
				},
				{"PUT", "/api/v4/projects/acme%2Fsite/deployments/91", `{"id": 91}`, []string{"status"}},
				{"POST", "/api/v4/projects/acme%2Fsite/merge_requests/7/notes", `{"id": 55}`, []string{"body"}},
				{"PUT", "/api/v4/projects/acme%2Fsite/merge_requests/7/notes/55", `{"id": 55}`, []string{"body"}},
			},
			pending: []string{
				"POST /api/v4/projects/acme%2Fsite/statuses/" + sha,
				"POST /api/v4/projects/acme%2Fsite/deployments",
				"POST /api/v4/projects/acme%2Fsite/merge_requests/7/notes",
			},
			success: []string{
				"POST /api/v4/projects/acme%2Fsite/statuses/" + sha,
				"PUT /api/v4/projects/acme%2Fsite/deployments/91",
				"PUT /api/v4/projects/acme%2Fsite/merge_requests/7/notes/55",
			},
			again: []string{
				"POST /api/v4/projects/acme%2Fsite/statuses/" + sha,
				"POST /api/v4/projects/acme%2Fsite/deployments",
				"PUT /api/v4/projects/acme%2Fsite/merge_requests/7/notes/55",
				"POST /api/v4/projects/acme%2Fsite/merge_requests/7/notes",
			},
			deletable: "/api/v4/projects/acme%2Fsite/merge_requests/7/notes/55",
		},
		"bitbucket": {
			provider: forge.Bitbucket,
			host:     "bitbucket.org",
			user:     "anna",
			auth:     func(r *http.Request) bool { u, p, _ := r.BasicAuth(); return u == "anna" && p == token },
			rules: []rule{
				{"GET", "/2.0/user", `{"username": "anna"}`, nil},
				{
					"POST",
					"/2.0/repositories/acme/site/commit/" + sha + "/statuses/build",
					`{}`,
					[]string{"key", "state", "name=Slipway: my-site", "url", "description"},
				},
				{"POST", "/2.0/repositories/acme/site/pullrequests/7/comments", `{"id": 55}`, []string{"content"}},
				{"PUT", "/2.0/repositories/acme/site/pullrequests/7/comments/55", `{"id": 55}`, []string{"content"}},
			},
			pending: []string{
				"POST /2.0/repositories/acme/site/commit/" + sha + "/statuses/build",
				"POST /2.0/repositories/acme/site/pullrequests/7/comments",
			},
			success: []string{
				"POST /2.0/repositories/acme/site/commit/" + sha + "/statuses/build",
				"PUT /2.0/repositories/acme/site/pullrequests/7/comments/55",
			},
			again: []string{
				"POST /2.0/repositories/acme/site/commit/" + sha + "/statuses/build",
				"PUT /2.0/repositories/acme/site/pullrequests/7/comments/55",
				"POST /2.0/repositories/acme/site/pullrequests/7/comments",
			},
			deletable: "/2.0/repositories/acme/site/pullrequests/7/comments/55",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStandIn(t, tt.auth, tt.rules...)
			w := newWorld(t, tt.host, s)
			c := w.connect(NewConnection{Provider: tt.provider, Host: tt.host, Token: token, User: tt.user})
			if c.Login != "anna" || c.Host != tt.host {
				t.Errorf("connected as %+v", c)
			}
			s.take()
			f := Facts{
				Deployment: "dep_1",
				Site:       "site_1",
				SiteName:   "My site",
				Slug:       "my-site",
				Repository: tt.host + "/acme/site",
				Branch:     "cart",
				Commit:     sha,
				Pull:       7,
				URL:        "https://pr-7--my-site.sites.test",
				LogURL:     "https://slipway.test/log",
			}
			w.set(f, "pending")
			if got := s.take(); len(got) != 0 {
				t.Fatalf("a site without a connection is reported: %v", got)
			}
			w.write(func(tx *db.Tx) error {
				return w.UseTx(t.Context(), tx, anna, "site_1", f.Repository, Use{Connection: c.ID, Report: true})
			})
			check := func(what string, want []string) {
				t.Helper()
				w.drain()
				got := s.take()
				if !slices.EqualFunc(got, want, func(a, b string) bool { return matches(b, a) }) {
					t.Errorf("%s sends\n%s\nwant\n%s", what, strings.Join(got, "\n"), strings.Join(want, "\n"))
				}
			}
			w.set(f, "pending")
			check("a queued deployment", tt.pending)
			w.set(f, "pending")
			check("the same state again", nil)
			w.set(f, "success")
			check("a finished deployment", tt.success)
			s.mu.Lock()
			s.gone[tt.deletable] = true
			s.mu.Unlock()
			f.Deployment = "dep_2"
			w.set(f, "pending")
			check("after the comment was deleted", tt.again)
			w.write(func(tx *db.Tx) error { return w.DeleteTx(t.Context(), tx, anna, c.ID) })
			w.set(f, "failed")
			check("after the account was disconnected", nil)
			if cred, err := w.CredentialOf(t.Context(), "site_1", f.Repository); cred != nil || err != nil {
				t.Errorf("after the account was disconnected its token is %v, %v", cred, err)
			}
		})
	}
}

// A report to a provider that is down is retried, and one that is refused is eventually given up. The error appears
// only on the connection.
func TestForgeIsDown(t *testing.T) {
	t.Parallel()
	s := newStandIn(t, bearer, rule{
		"GET",
		"/api/v3/user",
		`{"login": "anna"}`,
		nil,
	}, rule{"POST", "/api/v3/repos/acme/site/statuses/" + sha, `{}`, nil},
		rule{
			"POST",
			"/api/v3/repos/acme/site/deployments",
			`{"id": 1}`,
			nil,
		}, rule{"POST", "/api/v3/repos/acme/site/deployments/1/statuses", `{}`, nil})
	w := newWorld(t, "git.test", s)
	c := w.connect(NewConnection{Provider: forge.GitHub, Host: "git.test", Token: token})
	f := Facts{
		Deployment: "dep_1",
		Site:       "site_1",
		Slug:       "my-site",
		Repository: "git.test/acme/site",
		Branch:     "main",
		Commit:     sha,
		Production: true,
		URL:        "https://my-site.sites.test",
		LogURL:     "https://slipway.test/log",
	}
	w.write(func(tx *db.Tx) error {
		return w.UseTx(t.Context(), tx, anna, "site_1", f.Repository, Use{Connection: c.ID, Report: true})
	})
	s.take()
	s.set(502)
	w.set(f, "success")
	w.drain()
	if c, err := w.Get(t.Context(), w.db, anna, c.ID); err != nil || !strings.HasPrefix(c.Error, "502") {
		t.Errorf("the connection of a forge that is down: %+v, %v", c, err)
	}
	s.set(0)
	s.take()
	w.write(func(tx *db.Tx) error { // skip the back-off
		_, err := tx.Exec(t.Context(), `UPDATE jobs SET run_at = 0 WHERE state = 'ready'`)
		return err
	})
	w.drain()
	if got := s.take(); len(got) != 3 {
		t.Errorf("once the provider works again it gets %v", got)
	}
	if c, err := w.Get(t.Context(), w.db, anna, c.ID); err != nil || c.Error != "" {
		t.Errorf("the connection of a forge that works again: %+v, %v", c, err)
	}
	s.set(403)
	f.Deployment = "dep_2"
	w.set(f, "success")
	w.drain()
	var left int
	must(t, w.db.QueryRow(t.Context(), `SELECT count(*) FROM jobs WHERE state = 'ready'`).Scan(&left))
	if got := s.take(); len(got) != 1 || left != 0 {
		t.Errorf("a forge that refuses is asked %v, and %d reports wait", got, left)
	}
}

func TestConnectionsAreGuarded(t *testing.T) {
	t.Parallel()
	s := newStandIn(t, bearer, rule{"GET", "/api/v3/user", `{"login": "anna"}`, nil},
		rule{
			"GET",
			"/api/v3/user/repos",
			`[{"full_name": "acme/site", "default_branch": "main", "private": true}, {"full_name": "acme/other", "default_branch": "main"}]`,
			nil,
		})
	w := newWorld(t, "git.test", s)
	for name, bad := range map[string]NewConnection{
		"no provider":      {Provider: "svn", Host: "git.test", Token: token},
		"no host":          {Provider: forge.Gitea, Token: token},
		"a path":           {Provider: forge.GitHub, Host: "git.test/x", Token: token},
		"user info":        {Provider: forge.GitHub, Host: "a@git.test", Token: token},
		"no token":         {Provider: forge.GitHub, Host: "git.test"},
		"a line break":     {Provider: forge.GitHub, Host: "git.test", Token: "a\r\nX: y"},
		"a wrong token":    {Provider: forge.GitHub, Host: "git.test", Token: "wrong"},
		"bitbucket's kind": {Provider: forge.Bitbucket, Host: "git.test", Token: token},
	} {
		if _, err := w.Check(
			t.Context(),
			bad,
		); !fault.Is(err, fault.Invalid) || strings.Contains(err.Error(), bad.Token) && bad.Token != "" {
			t.Errorf("%s: %v", name, err)
		}
	}
	c := w.connect(NewConnection{Provider: forge.GitHub, Host: "GIT.test/", Token: token})
	if again := w.connect(NewConnection{Provider: forge.GitHub, Host: "git.test", Token: token}); again.ID != c.ID {
		t.Error("the same account is connected twice")
	}
	var stored string
	must(t, w.db.QueryRow(t.Context(), `SELECT token FROM connections`).Scan(&stored))
	if strings.Contains(stored, token) {
		t.Error("the token isn't encrypted in the table")
	}
	list, err := w.Repositories(t.Context(), anna, c.ID, "SITE")
	if err != nil || len(list) != 1 || list[0] != (Repository{"git.test/acme/site", "main", true}) {
		t.Errorf("repositories: %v, %v", list, err)
	}
	if _, err := w.Repositories(t.Context(), bert, c.ID, ""); !fault.Is(err, fault.NotFound) {
		t.Errorf("another's connection: %v", err)
	}
	use := func(owner account.OwnerID, repository string) error {
		return w.db.Write(t.Context(), func(tx *db.Tx) error {
			return w.UseTx(t.Context(), tx, owner, "site_1", repository, Use{Connection: c.ID})
		})
	}
	if err := use(bert, "git.test/acme/site"); !fault.Is(err, fault.NotFound) {
		t.Errorf("another's connection is used: %v", err)
	}
	if err := use(anna, "evil.test/acme/site"); !fault.Is(err, fault.Conflict) {
		t.Errorf("used for another host: %v", err)
	}
	must(t, use(anna, "git.test/acme/site"))
	if k, err := w.CredentialOf(
		t.Context(),
		"site_1",
		"git.test/acme/site",
	); err != nil || k.Token != token || k.Host != "git.test" || k.User != "x-access-token" {
		t.Errorf("the credential: %v", err)
	}
	if k, err := w.CredentialOf(t.Context(), "site_1", "evil.test/acme/site"); err != nil || k != nil {
		t.Errorf("the token is sent to another host: %v, %v", k, err)
	}
}

// User-written text in a commit's error or a site's name can't inject markup or mentions into a comment.
func TestCommentIsHarmless(t *testing.T) {
	t.Parallel()
	text := Facts{
		SiteName: "a*b|c@everyone",
		Commit:   sha,
		Status:   "failed",
		Error:    "no <img src=x> [x](https://evil.test) `rm` @acme/all\nsecond",
		LogURL:   "https://slipway.test/log",
	}.comment()
	for _, bad := range []string{"<img", "[x](", "@acme", "@everyone", "second", "c|c"} {
		if strings.Contains(text, bad) {
			t.Errorf("the comment holds %q:\n%s", bad, text)
		}
	}
}
