package dashboard

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"slipway/internal/platform/id"

	"slipway/internal/build/framework"
	"slipway/internal/deploy/deploy"
	"slipway/internal/deploy/deployment"
	"slipway/internal/deploy/journal"
	"slipway/internal/git/fetch"
	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/domain"
	"slipway/internal/tenant/site"
	"slipway/internal/tenant/webhook"
	"slipway/internal/web/dashboard/shell"
	"slipway/internal/web/dashboard/sites"
)

// hostile is a text for names, branches and log lines that breaks out of unescaped HTML.
const hostile = `"><script>alert(1)</script><img src=x onerror=alert(2)>'{{.}}`

// parts creates one of everything that a site's pages name.
func (w *world) parts(u account.User, id site.ID) (dep deployment.ID, dom domain.ID, hook webhook.ID) {
	w.t.Helper()
	ctx := w.t.Context()
	x, err := w.dash.Deployments.Trigger(ctx, u.Owner, id, deploy.Trigger{Cause: deployment.ByDashboard})
	must(w.t, err)
	d, err := w.dash.Domains.Create(ctx, u.Owner, id, domain.NewDomain{Name: "shop.example.com"})
	must(w.t, err)
	h, err := w.dash.Webhooks.Create(ctx, u.Owner, webhook.NewWebhook{
		URL:    "https://hooks.example.com/in",
		Events: []string{"deployment.failed"},
	})
	must(w.t, err)
	must(w.t, w.db.Write(ctx, func(tx *db.Tx) error {
		_, err := w.dash.Sites.SetEnvTx(ctx, tx, u.Owner, id, []site.NewVar{{Key: "GREETING", Value: "hello"}})
		return err
	}))
	return x.ID, d.ID, h.ID
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// ada returns a world with Ada signed in and one site of hers.
func ada(t *testing.T, with ...func(*Config)) (*world, *browser, site.Site) {
	t.Helper()
	w := newWorld(t, with...)
	u := w.user("ada@example.test", false)
	return w, w.as("ada@example.test"), w.site(u, "Blog")
}

// lines writes to a deployment's log as a worker does.
func (w *world) lines(id deployment.ID, from int64, lines ...journal.Line) {
	w.t.Helper()
	must(w.t, w.db.Write(w.t.Context(), func(tx *db.Tx) error {
		for i, l := range lines {
			_, err := tx.Exec(
				w.t.Context(),
				`INSERT INTO deployment_logs (deployment_id, n, at, level, stage, message, raw) VALUES ($1, $2, $3, $4, $5, $6, $7)`,
				id,
				from+int64(i),
				db.Now(),
				cmpOr(l.Level, "info"),
				cmpOr(l.Stage, "build"),
				l.Message,
				l.Raw,
			)
			if err != nil {
				return err
			}
		}
		tx.Notify("deployment/" + string(id))
		return nil
	}))
}

func cmpOr(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// end ends a deployment as a worker does.
func (w *world) end(id deployment.ID, status deployment.Status, why string) {
	w.t.Helper()
	must(w.t, w.db.Write(w.t.Context(), func(tx *db.Tx) error { return w.endTx(tx, id, status, why, "") }))
}

func (w *world) endTx(tx *db.Tx, id deployment.ID, status deployment.Status, why string, release id.Release) error {
	_, err := tx.Exec(
		w.t.Context(),
		`UPDATE deployments SET status = $2, error = $3, started_at = $4, completed_at = $4, release = $5 WHERE id = $1`,
		id,
		status,
		why,
		db.Now(),
		release,
	)
	tx.Notify("deployment/" + string(id))
	return err
}

// live makes a deployment the live one, in one transaction.
func (w *world) live(s site.Site, x deployment.ID) {
	w.t.Helper()
	must(w.t, w.db.Write(w.t.Context(), func(tx *db.Tx) error {
		release := id.Release("rel_" + string(x))
		if err := w.endTx(tx, x, deployment.Success, "", release); err != nil {
			return err
		}
		_, err := w.dash.Sites.ActivateTx(w.t.Context(), tx, s.ID, x, release, "static")
		return err
	}))
}

func (w *world) deployment(s site.Site) deployment.ID {
	w.t.Helper()
	x, err := w.dash.Deployments.Trigger(w.t.Context(), s.Owner, s.ID, deploy.Trigger{Cause: deployment.ByDashboard})
	must(w.t, err)
	return x.ID
}

func (p reply) want(t *testing.T, status int, texts ...string) reply {
	t.Helper()
	if p.status != status {
		t.Fatalf("status %d, want %d: %s", p.status, status, p)
	}
	for _, text := range texts {
		if !strings.Contains(p.body, text) {
			t.Errorf("no %q in the page:\n%s", text, main(p.body))
		}
	}
	return p
}

func main(body string) string {
	if i := strings.Index(body, "<main"); i >= 0 {
		body = body[i:]
	}
	return shell.Short(4000, body)
}

// to fails the test unless the form redirects to a path with this prefix, and returns the path.
func (p reply) to(t *testing.T, prefix string) string {
	t.Helper()
	got := p.header.Get("Location")
	if p.status != http.StatusSeeOther || !strings.HasPrefix(got, prefix) {
		t.Fatalf("went to %q, want %s…: %s", got, prefix, p)
	}
	return got
}

func TestNewSiteInThreeSteps(t *testing.T) {
	t.Parallel()
	var asked *fetch.Credential
	w := newWorld(t, func(c *Config) {
		c.Repositories = repositories{
			func(_ context.Context, _ account.OwnerID, repo string, cr *fetch.Credential) ([]string, string, error) {
				asked = cr
				if repo == "git.test/acme/secret" && (cr == nil || cr.Token != "tok-123") {
					return nil, "", &fault.Error{
						Kind:    fault.Invalid,
						Message: "The repository wants a credential",
						Code:    "credential_refused",
					}
				}
				if repo == "git.test/acme/broken" {
					return nil, "", errors.New("disk on fire")
				}
				return []string{"dev", "trunk", hostile}, "trunk", nil
			},
			func(_ context.Context, _ account.OwnerID, repo, branch string, _ *fetch.Credential, o framework.Overrides) (framework.Plan, error) {
				if branch == "dev" {
					return framework.Plan{}, &fault.Error{Kind: fault.Invalid, Message: "No site in here " + hostile}
				}
				return framework.Plan{
					Framework: "vite", Name: "Vite", Why: "package.json names vite " + hostile, Runtime: "static",
					Build: []framework.Command{{Argv: []string{"npm", "run", "build"}}}, Output: "dist",
				}, nil
			},
		}
	})
	u := w.user("ada@example.test", false)
	b := w.as("ada@example.test")
	b.get("/new").want(t, 200, `name="repository"`)

	p := b.post("/new", "type", "static", "step", "look", "repository", "not a repository").want(t, 422, "not a repository")
	if !p.has("wrong-repository") {
		t.Error("the fault is not at its field")
	}
	p = b.post("/new", "type", "static", "step", "look", "repository", "git.test/acme/secret", "token", "wrong-token").want(
		t,
		422,
		"wants a credential",
		"wrong-token",
	)
	if !p.has("wrong-credential") {
		t.Error("the fault is not at the credential")
	}
	b.post("/new", "type", "static", "step", "look", "repository", "git.test/acme/broken").want(t, 500)

	p = b.post("/new", "type", "static", "step", "look", "repository", "https://git.test/acme/secret.git", "token", "tok-123").
		want(t, 200, "git.test/acme/secret", `value="trunk"`, "npm run build", "dist", `value="tok-123"`, `name="name" value="secret"`)
	if strings.Contains(p.body, "<script>alert") {
		t.Error("a branch's name is markup")
	}
	b.post("/new", "type", "static", "step", "look", "repository", "git.test/acme/secret", "token", "tok-123", "branch", "dev").want(
		t,
		200,
		"No site in here",
	)
	b.post("/new", "type", "static", "step", "back", "repository", "git.test/acme/secret", "token", "tok-123", "name", "Mine").want(
		t, 200, "tok-123", `value="Mine"`, `value="git.test/acme/secret"`,
	)

	form := []string{
		"type", "static", "step", "create", "repository", "git.test/acme/secret", "token", "tok-123", "branch",
		"trunk", "build_output", "../out",
	}
	b.post("/new", append(form, "name", "Shop")...).want(t, 422, `value="Shop"`, `data-test="wrong-build_output"`, "tok-123")
	form[len(form)-1] = "out"
	b.post("/new", append(form, "name", "")...).want(t, 422, `data-test="wrong-name"`)
	b.post("/new", append(form, "name", "Shop", "env", "A=1\noops")...).want(t, 422, `data-test="wrong-env"`, "Line 2 has no =", "A=1")
	b.post("/new", append(form, "name", "Shop", "env", manyVariables(101))...).want(t, 422, "Too many variables")
	to := b.post("/new", append(form, "name", "Shop", "env", "GREETING=Ahoy\nAPI_KEY=k3y\n")...).to(t, "/sites/")
	id := site.ID(strings.Split(to, "/")[2])
	s, err := w.dash.Sites.Get(t.Context(), u.Owner, id)
	must(t, err)
	if s.Name != "Shop" || s.Repository != "git.test/acme/secret" || s.Branch != "trunk" || !s.Credential || s.Build.Output == nil ||
		*s.Build.Output != "out" ||
		s.Build.Command != nil {
		t.Errorf("the site is %+v", s)
	}
	if vars, err := w.dash.Sites.Env(t.Context(), u.Owner, id); err != nil || len(vars) != 2 || vars[0].Key != "API_KEY" || !vars[0].Secret ||
		vars[1].Value != "Ahoy" || vars[1].Secret {
		t.Errorf("variables %+v, %v", vars, err)
	}
	if c, err := w.dash.Sites.CredentialOf(t.Context(), s); err != nil || c.Token != "tok-123" || asked.Token != "tok-123" {
		t.Errorf("credential %v, %v", c, err)
	}
	b.get(to).want(t, 200, "Setting up your site") // no worker runs
	dep := w.deployment(s)
	b.get(to).to(t, sites.DeploymentPath(id, dep))

	b.get("/new?type=wordpress").want(t, 200, "A WordPress site with its own database")
	b.post("/new", "type", "wordpress", "step", "create", "name", "Press").to(t, "/sites/")
}

// manyVariables returns a .env file with n variables.
func manyVariables(n int) string {
	var out strings.Builder
	for i := range n {
		fmt.Fprintf(&out, "V%d=1\n", i)
	}
	return out.String()
}

// lacks fails the test if the page has one of these texts.
func (p reply) lacks(t *testing.T, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if strings.Contains(p.body, text) {
			t.Errorf("the page has %q", text)
		}
	}
}

// A WordPress with a repository is deployed like any other site, but without previews. One without a repository has
// nothing to deploy, and can get a repository.
func TestWordPressRepository(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	u := w.user("ada@example.test", false)
	b := w.as("ada@example.test")
	base := func(form ...string) string {
		to := b.post("/new", append([]string{"type", "wordpress", "step", "create"}, form...)...).to(t, "/sites/")
		return "/sites/" + strings.Split(to, "/")[2]
	}
	press := base("name", "Press", "repository", "git.test/acme/press", "branch", "main")
	b.get(press).want(t, 200, `data-test="deploy"`, `href="`+press+`/git"`)
	b.get(press+"/deployments").want(t, 200, `name="commit"`).lacks(t, `name="branch" value="" placeholder`)
	b.get(press+"/git").want(t, 200, "no previews", `data-test="save-git"`).lacks(t, `id="f-previews"`)
	b.post(
		press+"/git",
		"auto_deploy", "1", "previews", "off", "preview_days", "30", "forks", "approval", "deleted_branches", "end",
		"tags", "ignore", "poll_minutes", "5",
	).to(t, press+"/git")
	b.get(press+"/settings").want(t, 200, `value="git.test/acme/press"`, `data-test="save-build"`).lacks(t, `id="f-framework"`)
	b.post(press+"/deploy").to(t, press+"/deployments/")

	plain := base("name", "Plain")
	b.get(plain).want(t, 200).lacks(t, `data-test="deploy"`)
	b.get(plain+"/settings").want(t, 200, `data-test="save-source"`).lacks(t, `data-test="save-build"`)
	b.post(plain+"/settings", "part", "source", "repository", "git.test/acme/themes", "branch", "").to(t, plain+"/settings")
	if s, err := w.dash.Sites.Get(
		t.Context(),
		u.Owner,
		site.ID(strings.TrimPrefix(plain, "/sites/")),
	); err != nil || s.Repository != "git.test/acme/themes" {
		t.Errorf("%+v, %v", s, err)
	}
	b.get(plain).want(t, 200, `data-test="deploy"`)
}

// If a repository can't be inspected, its site can still be created.
func TestNewSiteUnseen(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.user("ada@example.test", false)
	b := w.as("ada@example.test")
	b.post("/new", "type", "static", "step", "look", "repository", "git.test/acme/site").want(
		t,
		200,
		"Not checked until it is deployed",
		`name="branch"`,
	)
	b.post("/new", "type", "static", "step", "create", "repository", "git.test/acme/site", "name", "S", "branch", "").to(t, "/sites/")
}

// Names from users and repositories are escaped on every page.
func TestHostileText(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	u := w.user("ada@example.test", false)
	b := w.as("ada@example.test")
	s := w.site(u, "N "+hostile)
	dep, dom, hook := w.parts(u, s.ID)
	ctx := t.Context()
	must(t, w.db.Write(ctx, func(tx *db.Tx) error {
		if _, err := w.dash.Sites.SetEnvTx(ctx, tx, u.Owner, s.ID, []site.NewVar{{Key: "A", Value: hostile}}); err != nil {
			return err
		}
		if _, err := w.dash.Sites.CreateHookTx(ctx, tx, u.Owner, s.ID, site.NewHook{Name: "H " + hostile}); err != nil {
			return err
		}
		_, err := tx.Exec(
			ctx,
			`UPDATE deployments SET branch = $2, title = $2, commit_message = $2, commit_author = $2, commit_hash = $2, error = $2, status = 'failed', completed_at = 1,
			stages = '[{"name":"\"><script>alert(1)</script>","status":"\"><script>alert(1)</script>"}]', plan = '{"name":"<script>alert(1)</script>","why":"<script>alert(1)</script>"}' WHERE id = $1`,
			dep,
			hostile,
		)
		return err
	}))
	w.lines(dep, 1, journal.Line{
		Message: hostile,
		Stage:   hostile,
	}, journal.Line{Message: "x", Raw: "\x1b[31m" + hostile + "\x1b[38;5;\"><script>alert(1)</script>m"})
	base := "/sites/" + string(s.ID)
	for _, path := range []string{
		base,
		base + "/deployments",
		sites.DeploymentPath(s.ID, dep),
		base + "/domains",
		base + "/domains/" + string(dom),
		base + "/env",
		base + "/env/var/A",
		base + "/hooks",
		base + "/settings",
		"/webhooks/" + string(hook),
		"/",
		"/new?repository=" + url.QueryEscape(hostile) + "&name=" + url.QueryEscape(hostile),
	} {
		p := b.get(path).want(t, 200)
		for _, bad := range []string{"<script>alert", "<img src=x", `onerror=alert(2)>`} {
			if strings.Contains(strings.ReplaceAll(p.body, "&gt;", ""), bad) {
				t.Errorf("%s holds %s", path, bad)
			}
		}
	}
	p := b.post(base+"/env/import", "step", "preview", "text", "B='"+strings.ReplaceAll(hostile, "'", "")+"'\n").want(t, 200, "alert(1)")
	if strings.Contains(p.body, "<script>alert") {
		t.Error("the preview holds markup")
	}
}

func TestDeployAndRollBack(t *testing.T) {
	t.Parallel()
	w, b, s := ada(t)
	base := "/sites/" + string(s.ID)
	to := b.post(base+"/deploy").to(t, base+"/deployments/dep_")
	first := deployment.ID(strings.TrimPrefix(to, base+"/deployments/"))
	b.get(to).want(t, 200, `data-test="waits"`, "Next in the queue")
	w.live(s, first)
	b.get(to).want(t, 200, `data-test="live-link"`, ">Redeploy<")

	p := b.post(base+"/deploy", "branch", "bad branch;", "title", "My title").want(t, 422, "bad branch;", "My title")
	if !p.has("wrong-branch") {
		t.Error("the fault is not at the branch")
	}
	to = b.post(base+"/deploy", "branch", "dev", "title", "Second", "clear_cache", "1").to(t, base+"/deployments/dep_")
	second := deployment.ID(strings.TrimPrefix(to, base+"/deployments/"))
	x, err := w.dash.Deployments.Get(t.Context(), s.Owner, second)
	must(t, err)
	if x.Branch != "dev" || x.Title != "Second" || !x.ClearCache || x.Cause != deployment.ByDashboard {
		t.Errorf("deployment %+v", x)
	}
	w.live(s, second)
	p = b.get(base).want(t, 200, "roll-"+string(first), "will serve")
	if strings.Contains(p.body, "roll-"+string(second)) {
		t.Error("the live deployment can be rolled back to")
	}
	b.post(base+"/rollback", "deployment", string(first)).to(t, base)
	b.get(base).want(t, 200, "Rolled back")
	if got, err := w.dash.Sites.Get(t.Context(), s.Owner, s.ID); err != nil || got.LiveRelease != id.Release("rel_"+string(first)) {
		t.Errorf("live is %s, %v", got.LiveRelease, err)
	}

	third := w.deployment(s)
	b.post(sites.DeploymentPath(s.ID, third)+"/cancel").to(t, sites.DeploymentPath(s.ID, third))
	b.get(sites.DeploymentPath(s.ID, third)).want(t, 200, "Canceled", "Retry")
	b.post(sites.DeploymentPath(s.ID, third)+"/retry").to(t, base+"/deployments/dep_")
	b.post(base+"/rollback", "deployment", string(third)).want(t, 409, "no release")
	b.post(sites.DeploymentPath(s.ID, first)+"/cancel").want(t, 409)

	w.end(third, deployment.Failed, "npm ran out of luck")
	b.get(sites.DeploymentPath(s.ID, third)).want(t, 200, `data-test="why"`, "npm ran out of luck", "still live")
	var audit int
	must(
		t,
		w.db.QueryRow(t.Context(), `SELECT count(*) FROM audit WHERE action IN ('deployment.triggered', 'deployment.rolled_back', 'deployment.canceled', 'deployment.retried')`).
			Scan(&audit),
	)
	if audit != 5 {
		t.Errorf("%d lines in the audit log, want 5", audit)
	}
	for range 30 {
		w.end(w.deployment(s), deployment.Canceled, "")
	}
	b.get(base+"/deployments").want(t, 200, "Page 1 of 2")
	b.get(base+"/deployments?page=2").want(t, 200, "Page 2 of 2", string(first))
}

// A site's resources are a 404 below another site's path, even if both belong to Ada.
func TestOtherSitesParts(t *testing.T) {
	t.Parallel()
	w, b, s := ada(t)
	other := w.site(w.users["ada@example.test"], "Other")
	dep, dom, _ := w.parts(w.users["ada@example.test"], other.ID)
	var hook site.Hook
	must(t, w.db.Write(t.Context(), func(tx *db.Tx) (err error) {
		hook, err = w.dash.Sites.CreateHookTx(t.Context(), tx, s.Owner, other.ID, site.NewHook{Name: "h"})
		return err
	}))
	base := "/sites/" + string(s.ID)
	for _, path := range []string{
		"/deployments/" + string(dep),
		"/deployments/" + string(dep) + "/log",
		"/deployments/" + string(dep) + "/log/follow",
		"/domains/" + string(dom),
		"/domains/" + string(dom) + "/follow",
		"/env/var/GREETING",
	} {
		b.get(base+path).want(t, 404)
	}
	for _, path := range []string{
		"/deployments/" + string(dep) + "/cancel",
		"/domains/" + string(dom) + "/delete",
		"/domains/" + string(dom) + "/primary",
		"/env/var/GREETING/delete",
	} {
		b.post(base+path).want(t, 404)
	}
	b.post(base+"/rollback", "deployment", string(dep)).want(t, 404)
	b.post(base+"/hooks/delete", "hook", hook.ID.Reveal()).want(t, 404)
}

// event is a server-sent event.
type event struct{ name, id, data string }

// follow opens a stream and passes its events to see until see returns true.
func (b *browser) follow(path, last string, see func(event) bool) {
	b.w.t.Helper()
	ctx, cancel := context.WithTimeout(b.w.t.Context(), time.Minute)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, b.w.srv.URL+path, nil)
	must(b.w.t, err)
	r.Header.Set("Accept", "text/event-stream")
	if last != "" {
		r.Header.Set("Last-Event-ID", last)
	}
	resp, err := b.client.Do(r)
	must(b.w.t, err)
	defer resp.Body.Close()
	if resp.StatusCode != 200 {
		b.w.t.Fatalf("%s: %d", path, resp.StatusCode)
	}
	in := bufio.NewScanner(resp.Body)
	in.Buffer(nil, 8<<20)
	var e event
	for in.Scan() {
		name, value, _ := strings.Cut(in.Text(), ": ")
		switch {
		case in.Text() == "":
			if e != (event{}) && see(e) {
				return
			}
			e = event{}
		case name == "event":
			e.name = value
		case name == "id":
			e.id = value
		case name == "data":
			e.data += value
		}
	}
	b.w.t.Fatalf("%s ended early: %v", path, in.Err())
}

func TestLogStream(t *testing.T) {
	t.Parallel()
	w, b, s := ada(t)
	dep := w.deployment(s)
	path := sites.DeploymentPath(s.ID, dep)
	w.lines(dep, 1, journal.Line{Message: "one"}, journal.Line{Message: "green", Raw: "\x1b[32mgreen\x1b[0m"})
	b.get(path).want(t, 200, `id="L1"`, `<span class="f2">green</span>`, `data-after="2"`)

	var got []string
	ids := regexp.MustCompile(`id="L(\d+)"`)
	b.follow(path+"/log/follow?after=1", "", func(e event) bool {
		switch e.name {
		case "lines":
			for _, m := range ids.FindAllStringSubmatch(e.data, -1) {
				got = append(got, m[1])
			}
			if e.id == "2" { // written while the stream is open
				w.lines(dep, 3, journal.Line{Message: "three", Level: "error"})
				w.end(dep, deployment.Failed, "no luck")
			}
		case "end":
			if e.data != "failed" {
				t.Errorf("ended as %q", e.data)
			}
			return true
		}
		return false
	})
	if !slices.Equal(got, []string{"2", "3"}) {
		t.Errorf("got lines %v", got)
	}
	got = nil // a reconnected stream continues after the last event, whatever the URL says
	b.follow(path+"/log/follow?after=0", "2", func(e event) bool {
		for _, m := range ids.FindAllStringSubmatch(e.data, -1) {
			got = append(got, m[1])
		}
		return e.name == "end"
	})
	if !slices.Equal(got, []string{"3"}) {
		t.Errorf("resumed with lines %v", got)
	}
	b.get(path+"/log/error").to(t, path+"?after=0#L3")
	text := b.get(path+"/log").want(t, 200, "one\n", "green\n", "error build    three\n")
	if !strings.Contains(text.header.Get("Content-Disposition"), "attachment") || strings.Contains(text.body, "\x1b") {
		t.Error("the download is not plain text for a file")
	}

	var many []journal.Line
	for i := range 450 {
		many = append(many, journal.Line{Message: fmt.Sprintf("line %d %s", i, strings.Repeat("x", 300))})
	}
	long := w.deployment(s)
	w.lines(long, 1, many...)
	p := b.get(sites.DeploymentPath(s.ID, long)).want(t, 200, "Show lines after")
	if len(p.body) > 100<<10 {
		t.Errorf("the page weighs %d bytes", len(p.body))
	}
	b.get(sites.DeploymentPath(s.ID, long)+"?after=440").want(t, 200, `id="L441"`, `id="L450"`, "Show from the beginning")
	n := 0
	w.live(s, long)
	b.follow(sites.DeploymentPath(s.ID, long)+"/log/follow", "", func(e event) bool {
		n += len(ids.FindAllString(e.data, -1))
		return e.name == "end"
	})
	if n != 450 {
		t.Errorf("streamed %d lines, want 450", n)
	}
}

// The live parts of a deployment, of the overview and of a new site update.
func TestLiveSiteParts(t *testing.T) {
	t.Parallel()
	w, b, s := ada(t)
	dep := w.deployment(s)
	seen := ""
	b.follow(sites.DeploymentPath(s.ID, dep)+"/follow", "", func(e event) bool {
		if e.name == "html" {
			if seen == "" {
				w.live(s, dep)
			}
			seen = e.data
		}
		return e.name == "end"
	})
	if !strings.Contains(seen, `data-test="live-link"`) {
		t.Errorf("the last part has no link to the site: %s", seen)
	}
	b.follow("/sites/"+string(s.ID)+"/follow", "", func(e event) bool { return strings.Contains(e.data, `data-test="status-active"`) })
	b.follow("/sites/"+string(s.ID)+"/first/follow", "", func(e event) bool { return e.name == "end" })
}

func TestSettings(t *testing.T) {
	t.Parallel()
	w, b, s := ada(t)
	base := "/sites/" + string(s.ID)
	w.live(s, w.deployment(s))
	read := func() site.Site {
		got, err := w.dash.Sites.Get(t.Context(), s.Owner, s.ID)
		must(t, err)
		return got
	}
	b.post(base+"/settings", "part", "name", "name", strings.Repeat("x", 101)).want(
		t,
		422,
		`data-test="wrong-name"`,
		strings.Repeat("x", 101),
		`value="git.test/acme/site"`,
	)
	b.post(base+"/settings", "part", "name", "name", "Journal").to(t, base+"/settings")
	b.post(base+"/settings", "part", "source", "repository", "git.test/acme/other", "branch", "next").to(t, base+"/settings")
	b.post(base+"/settings", "part", "source", "repository", "file:///etc/passwd", "branch", "next").want(
		t,
		422,
		`data-test="wrong-repository"`,
		"file:///etc/passwd",
	)
	b.post(base+"/settings", "part", "build", "framework", "vite", "build_root", "web", "build_output", "", "build_command", "make").to(
		t,
		base+"/settings",
	)
	b.post(base+"/settings", "part", "build", "build_root", "/etc").want(t, 422, `data-test="wrong-build_root"`)
	b.post(base+"/settings", "part", "credential", "token", "t0ken-of-mine").to(t, base+"/settings")
	got := read()
	if got.Name != "Journal" || got.Repository != "git.test/acme/other" || got.Branch != "next" || got.Framework != "vite" ||
		*got.Build.Root != "web" ||
		*got.Build.Command != "make" ||
		!got.Credential {
		t.Errorf("the site is %+v", got)
	}
	p := b.get(base+"/settings").want(t, 200, "Replace or remove the stored credential", `value="make"`)
	if strings.Contains(p.body, "t0ken-of-mine") {
		t.Error("the page tells the token")
	}
	if !p.has("needs-redeploy") {
		t.Error("the page does not say that a deployment is due")
	}
	b.post(base+"/settings", "part", "credential").want(t, 422, `data-test="wrong-token"`)
	b.post(base+"/settings", "part", "forget").to(t, base+"/settings")
	b.post(base+"/settings", "part", "build", "build_root", "").to(t, base+"/settings")
	if got = read(); got.Credential || got.Build.Root != nil {
		t.Errorf("the site is %+v", got)
	}
	b.post(base+"/settings", "part", "nonsense").want(t, 422)

	b.post(base+"/stop").to(t, base)
	b.get(base).want(t, 200, "Stopped", `data-test="start"`)
	b.post(base+"/start").to(t, base)

	b.post(base+"/delete", "confirm", "Blog").want(t, 422, "Nothing was deleted")
	b.post(base+"/delete", "confirm", "Journal").to(t, "/")
	b.get(base).want(t, 404)
}

func TestDomains(t *testing.T) {
	t.Parallel()
	w, b, s := ada(t)
	base := "/sites/" + string(s.ID) + "/domains"
	b.post(base, "domain", "not a name").want(t, 422, `data-test="wrong-domain"`, "not a name")
	to := b.post(base, "domain", "Shop.Example.com").to(t, base+"/dom_")
	b.get(to).want(
		t, 200, "shop.example.com", "_slipway.shop.example.com", "CNAME", "data-copy",
		"It verifies ownership and sends traffic", `data-test="alternatives"`, `<code>shop</code>`,
		"/api/v1/domains/dom_",
	)
	b.post(base, "domain", "shop.example.com").want(t, 409, `data-test="wrong-domain"`)
	b.get(base).want(t, 200, "shop.example.com", "Waiting for DNS", "Built-in address of the site", "local certificate authority")
	b.follow(base+"/follow", "", func(e event) bool { return strings.Contains(e.data, "shop.example.com") })
	b.follow(to+"/follow", "", func(e event) bool { return strings.Contains(e.data, "_slipway.shop.example.com") })
	second := b.post(base, "domain", "www.example.com").to(t, base+"/dom_")
	b.post(second+"/redirect", "redirect_to", "no host/at all").want(t, 422, `data-test="wrong-redirect_to"`, "no host/at all")
	b.post(second+"/redirect", "redirect_to", "shop.example.com").to(t, second)
	b.post(second+"/primary").want(t, 422, "can&#39;t be primary")
	b.post(second+"/redirect", "redirect_to", "").to(t, second)
	b.post(second+"/primary").to(t, second)
	list, err := w.dash.Domains.ForSite(t.Context(), s.Owner, s.ID)
	must(t, err)
	if len(list) != 2 || !list[1].Primary || list[1].Name != "www.example.com" || list[1].RedirectTo != "" {
		t.Errorf("domains %+v", list)
	}
	if p := b.get(to).want(t, 200); p.has("twin") {
		t.Error("a name below an apex has no www of its own")
	}
	b.get(second).want(t, 200, `data-test="add-twin"`, `name="domain" value="example.com"`, `name="redirect_to" value="www.example.com"`)
	apex := b.post(base, "domain", "example.com", "redirect_to", "www.example.com").to(t, base+"/dom_")
	for _, path := range []string{second, apex} {
		if p := b.get(path).want(t, 200); p.has("twin") {
			t.Errorf("%s asks for what is there", path)
		}
	}
	b.get(apex).want(t, 200, "Redirects to www.example.com, with path and query")
	b.post(second+"/delete").to(t, base)
	b.get(second).want(t, 404)
}

// A warning about a domain's DNS is shown once for all records and checks it concerns, and a record that is no longer
// needed isn't requested.
func TestDomainSaysThingsOnce(t *testing.T) {
	t.Parallel()
	w, b, s := ada(t)
	to := b.post("/sites/"+string(s.ID)+"/domains", "domain", "shop.example.com").to(t, "/sites/"+string(s.ID)+"/domains/dom_")
	found := func(status, provenAt, reason string, dns domain.RecordStatus, problems ...string) string {
		t.Helper()
		record := func(kind, name string, status domain.RecordStatus, why string) domain.Record {
			return domain.Record{Type: kind, Name: name, Required: "value-of-" + kind, Status: status, Reason: why}
		}
		f := map[string]any{
			"verification": []domain.Record{
				record("CNAME", "shop.example.com", dns, reason),
				record("TXT", "_slipway.shop.example.com", domain.RecordPending, "No TXT record was found"),
			},
			"dns": []domain.Record{record("CNAME", "shop.example.com", dns, reason)},
		}
		var list []domain.Problem
		for _, p := range problems {
			list = append(list, domain.Problem{Code: "wrong_target", Message: p})
		}
		f["problems"] = list
		text, err := json.Marshal(f)
		must(t, err)
		must(
			t,
			w.db.Admin(
				t.Context(),
				fmt.Sprintf(
					"UPDATE domains SET status = '%s', proven_at = %s, reason = '%s', findings = '%s'", status,
					provenAt, reason, text,
				),
			),
		)
		return b.get(to).want(t, 200).body
	}
	const warning = "Shop.example.com points to another server"
	for _, status := range []string{"failed", "pending"} {
		body := found(status, "1", warning, domain.RecordInvalid, strings.ToLower(warning[:1])+warning[1:], "IPv6: "+warning)
		// Once as the record's reason, once in the sentence that explains it.
		if n := strings.Count(strings.ToLower(body), strings.ToLower(warning)); n < 1 || n > 2 {
			t.Errorf("%s: the warning is shown %d times", status, n)
		}
		body = found(status, "1", warning, domain.RecordInvalid, warning, warning)
		if n := strings.Count(body, warning); n != 1 {
			t.Errorf("%s: the warning is shown %d times", status, n)
		}
	}
	body := found("active", "1", "", domain.RecordValid)
	for _, needless := range []string{"No TXT record was found", "Not found", "value-of-TXT", `data-test="alternatives"`} {
		if strings.Contains(body, needless) {
			t.Errorf("proven by its CNAME, and still: %s", needless)
		}
	}
	if !strings.Contains(body, "value-of-CNAME") || !strings.Contains(body, "Valid") {
		t.Error("the record that is needed is not shown")
	}
	body = found("pending", "0", "", domain.RecordPending)
	if before, _, ok := strings.Cut(
		body,
		`data-test="alternatives"`,
	); !ok || strings.Contains(before, "value-of-TXT") || strings.Count(before, "value-of-CNAME") == 0 {
		t.Error("before the proof one CNAME leads, and the TXT record is folded away")
	}
}

func TestEnv(t *testing.T) {
	t.Parallel()
	w, b, s := ada(t)
	base := "/sites/" + string(s.ID) + "/env"
	w.live(s, w.deployment(s))
	read := func() map[string]site.Var {
		list, err := w.dash.Sites.Env(t.Context(), s.Owner, s.ID)
		must(t, err)
		out := map[string]site.Var{}
		for _, v := range list {
			out[v.Key] = v
		}
		return out
	}
	both := []string{"target", "build", "target", "runtime"}
	b.post(base, append(both, "key", "1BAD", "value", "kept")...).want(t, 422, `data-test="wrong-key"`, "1BAD", "kept")
	b.post(base, "key", "A", "value", "x").want(t, 422, `data-test="wrong-target"`)
	b.post(base, append(both, "key", "PLAIN", "value", "one\r\ntwo")...).to(t, base)
	b.post(base, "key", "TOKEN", "value", "s3cret-value", "secret", "1", "target", "build").to(t, base)
	b.post(base, append(both, "key", "TOKEN", "value", "again")...).want(t, 409, "already")
	v := read()
	if v["PLAIN"].Value != "one\ntwo" || !v["TOKEN"].Secret || !slices.Equal(v["TOKEN"].Target, []string{"build"}) {
		t.Errorf("variables %+v", v)
	}
	for _, path := range []string{base, base + "/var/TOKEN", base + "/export"} {
		if p := b.get(path).want(t, 200, "TOKEN"); strings.Contains(p.body, "s3cret") {
			t.Errorf("%s tells the secret", path)
		}
	}
	b.get(base).want(t, 200, `data-test="needs-redeploy"`, "build only")
	b.get(base+"/var/PLAIN").want(t, 200, ">\none\ntwo</textarea>")
	b.post(base+"/var/TOKEN", "secret", "1", "value", "", "target", "runtime").to(t, base)
	b.post(base+"/var/TOKEN", "value", "", "target", "runtime").want(t, 409, "readable")
	if all, err := w.dash.Sites.Variables(
		t.Context(),
		s.ID,
		"runtime",
		"production",
		"main",
	); err != nil || len(all) != 2 || all[1].Value != "s3cret-value" {
		t.Errorf("the secret did not stay: %v", err)
	}
	b.post(base+"/var/PLAIN", append(both, "value", "three")...).to(t, base)
	b.post(base+"/var/NONE", append(both, "value", "x")...).want(t, 404)

	// Imported names that look secret become secrets unless the form says otherwise.
	b.post(base+"/import", "step", "apply", "text", "STRIPE_KEY=sk_live\nNEXT_PUBLIC_KEY=pk\nPORT=80\n").to(t, base)
	if v = read(); !v["STRIPE_KEY"].Secret || v["NEXT_PUBLIC_KEY"].Secret || v["PORT"].Secret {
		t.Errorf("variables %+v", v)
	}
	b.post(base+"/import", "step", "apply", "secrets", "none", "text", "SORT_KEY=name\n").to(t, base)
	b.post(base+"/import", "step", "apply", "secrets", "all", "text", "HIDDEN=name\n").to(t, base)
	if v = read(); v["SORT_KEY"].Secret || !v["HIDDEN"].Secret {
		t.Errorf("variables %+v", v)
	}
	// Several variables are deleted together, all or none.
	b.post(base+"/delete").want(t, 422, "No variables selected")
	b.post(base+"/delete", "var", v["PORT"].ID, "var", "NONE").want(t, 404)
	if v = read(); v["PORT"].ID == "" {
		t.Error("a deletion that failed deleted a variable")
	}
	b.post(base+"/delete", "var", v["PORT"].ID, "var", v["STRIPE_KEY"].ID, "var", v["NEXT_PUBLIC_KEY"].ID, "var", v["SORT_KEY"].ID, "var", v["HIDDEN"].ID).to(t, base)
	if v = read(); len(v) != 2 {
		t.Errorf("variables %+v", v)
	}

	text := "PLAIN=three\nNEW='a b'\nexport TOKEN=\"sw0rdfish\"\n"
	p := b.post(base+"/import", "step", "preview", "text", text).want(t, 200, "Import 2 variables", "Unchanged", "NEW=&#39;a b&#39;")
	if strings.Count(p.body, "sw0rdfish") != 1 { // only in the text area
		t.Errorf("the preview tells a secret %d times", strings.Count(p.body, "sw0rdfish"))
	}
	if _, there := read()["NEW"]; there {
		t.Error("the preview has written")
	}
	b.post(base+"/import", "step", "apply", "text", "oops\n").want(t, 422, "Line 1 has no =", ">\noops")
	b.post(base+"/import", "step", "apply", "text", text).to(t, base)
	if v = read(); v["NEW"].Value != "a b" || v["NEW"].Secret || !v["TOKEN"].Secret || len(v) != 3 ||
		!slices.Equal(v["TOKEN"].Target, []string{"runtime"}) {
		t.Errorf("variables %+v", v)
	}
	b.get(base+"/export").want(t, 200, "NEW='a b'\n", "# TOKEN is secret", "PLAIN=three\n")
	b.get(base).want(t, 200, `data-test="add-var-deploy"`)
	b.post(base, append(both, "key", "1BAD", "value", "kept", "then", "deploy")...).want(t, 422, `data-test="wrong-key"`, "kept")
	b.post(base, append(both, "key", "LATER", "value", "x", "then", "deploy")...).to(t, "/sites/"+string(s.ID)+"/deployments/dep_")
	b.post("/sites/"+string(s.ID)+"/stop").to(t, "/sites/")
	if p := b.get(base).want(t, 200); p.has("add-var-deploy") {
		t.Error("a stopped site offers to deploy")
	}
	b.post(base+"/var/LATER", append(both, "value", "y", "then", "deploy")...).to(t, base)
	b.get(base).want(t, 200, "Updated LATER. Not deployed")
	if v = read(); v["LATER"].Value != "y" {
		t.Errorf("LATER is %q", v["LATER"].Value)
	}
	b.post(base+"/var/NEW/delete").to(t, base)
	if _, there := read()["NEW"]; there {
		t.Error("NEW is still there")
	}
}

func TestHooks(t *testing.T) {
	t.Parallel()
	w, b, s := ada(t)
	base := "/sites/" + string(s.ID) + "/hooks"
	b.get(base).want(t, 200, "No deploy hooks yet")
	b.get("/sites/"+string(s.ID)).want(t, 200, `data-test="first-hook"`)
	b.post(base, "name", "", "branch", "dev").want(t, 422, `data-test="wrong-name"`, `value="dev"`)
	b.post(base, "name", "CMS", "branch", "", "any_branch", "1").to(t, base)
	one := func() site.Hook {
		list, err := w.dash.Sites.Hooks(t.Context(), s.Owner, s.ID)
		must(t, err)
		if len(list) != 1 {
			t.Fatalf("%d hooks", len(list))
		}
		return list[0]
	}
	h := one()
	b.get(base).want(
		t,
		200,
		w.srv.URL+"/hooks/deploy/"+h.ID.Reveal(),
		"curl -X POST "+w.srv.URL,
		"Never called",
		"the branch in the request",
	)
	b.post(base+"/switch", "hook", h.ID.Reveal(), "to", "off").to(t, base)
	if one().Active {
		t.Error("the hook is still on")
	}
	b.post(base+"/switch", "hook", h.ID.Reveal(), "to", "on").to(t, base)
	b.post(base+"/rotate", "hook", h.ID.Reveal()).to(t, base)
	n := one()
	if n.ID == h.ID || !n.Active {
		t.Error("the hook has its old address, or is off")
	}
	b.post(base+"/delete", "hook", h.ID.Reveal()).want(t, 404)
	var told int
	must(
		t,
		w.db.QueryRow(t.Context(), `SELECT count(*) FROM audit WHERE detail LIKE '%dhk\_%' ESCAPE '\' OR subject LIKE 'dhk%'`).Scan(&told),
	)
	if told != 0 {
		t.Error("the audit log tells a hook's id")
	}
	b.post(base+"/delete", "hook", n.ID.Reveal()).to(t, base)
	b.get(base).want(t, 200, "No deploy hooks yet")
	for i := range 45 {
		b.post(base, "name", fmt.Sprintf("hook %d", i)).to(t, base)
	}
	if p := b.get(base).want(t, 200, "Page 1 of 3", "hook 44"); len(p.body) > 100<<10 {
		t.Errorf("a page of hooks weighs %d bytes", len(p.body))
	}
}

// linkOn returns the first link on a page that begins with begin.
func linkOn(t *testing.T, p reply, begin string) string {
	t.Helper()
	_, rest, ok := strings.Cut(p.body, `href="`+begin)
	if !ok {
		t.Fatalf("no link to %s", begin)
	}
	end, _, _ := strings.Cut(rest, `"`)
	return begin + end
}

func TestWebhooks(t *testing.T) {
	t.Parallel()
	w, b, _ := ada(t)
	owner := w.users["ada@example.test"].Owner
	b.get("/webhooks").want(t, 200, "No webhooks yet")
	b.get("/webhooks/new").want(
		t, 200, "deployment.completed", "deployment.succeeded", "ssl.renewed", "Some events have two names",
	)
	b.post("/webhooks/new", "form-events", "1", "url", "http://plain.example.com/x", "events", "domain.added").want(
		t, 422, `data-test="wrong-url"`, "http://plain.example.com/x", `value="domain.added" checked`,
	)
	b.post("/webhooks/new", "form-events", "1", "url", "https://hooks.example.com/in").want(t, 422, `data-test="wrong-events"`)
	to := b.post(
		"/webhooks/new", "form-events", "1", "url", "https://hooks.example.com/in", "events", "deployment.completed",
		"events", "deployment.succeeded",
	).to(t, "/webhooks/hook_")
	id := webhook.ID(strings.TrimPrefix(to, "/webhooks/"))
	secret, err := w.dash.Webhooks.Reveal(t.Context(), owner, id)
	must(t, err)
	secret = strings.ReplaceAll(secret, "+", "&#43;") // as html/template escapes it
	b.get(to).want(t, 200, secret, `data-test="secret-shown"`)
	if p := b.get(to).want(t, 200); strings.Contains(p.body, secret) {
		t.Error("the secret is shown a second time unasked")
	}
	b.post(to+"/secret").want(t, 200, secret)
	b.post(to+"/ping").to(t, to)
	b.get(to).want(t, 200, `data-test="deliveries"`, "ping", "No attempts yet")
	must(t, w.db.Write(t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), `INSERT INTO webhook_attempts (delivery_id, n, started_at, duration, status, error, answer, late)
			SELECT id, 1, $1, 42, 500, '', $2, FALSE FROM webhook_deliveries`, db.Now(), hostile)
		return err
	}))
	page := linkOn(t, b.get(to).want(t, 200, "HTTP 500", "42 ms", "&lt;script&gt;alert(1)"), to+"/deliveries/")
	b.get(page).want(t, 200, "HTTP 500", "42 ms", "&lt;script&gt;alert(1)", "&#34;event&#34;: &#34;ping&#34;", `data-copy="{&#34;id`)
	for _, path := range []string{to, page} {
		if strings.Contains(b.get(path).body, "<script>alert") {
			t.Errorf("%s: an endpoint's answer is markup", path)
		}
		b.follow(path+"/follow", "", func(e event) bool { return strings.Contains(e.data, "HTTP 500") })
	}
	w.user("eve@example.test", false)
	w.as("eve@example.test").get(page).want(t, 404)
	b.get(strings.Replace(page, "dlv_", "dlv_0", 1)).want(t, 404)
	for range 25 {
		b.post(to+"/ping").to(t, to)
	}
	// The worst case: every attempt stores a response that takes the most space as HTML.
	must(t, w.db.Write(t.Context(), func(tx *db.Tx) error {
		for n := range 20 {
			_, err := tx.Exec(t.Context(), `INSERT INTO webhook_attempts (delivery_id, n, started_at, duration, status, error, answer, late)
				SELECT id, $1, $2, 42, 500, '', $3, FALSE FROM webhook_deliveries`, n+10, db.Now(), strings.Repeat(`"+<&`, 1000))
			if err != nil {
				return err
			}
		}
		_, err := tx.Exec(t.Context(), `UPDATE webhook_events SET body = $1`, `{"x": "`+strings.Repeat("+", 100_000)+`"}`)
		return err
	}))
	list := b.get(to).want(t, 200, "Page 1 of 2")
	one := b.get(page).want(t, 200, "Attempt 29", "…")
	if strings.Contains(one.body, "data-copy=\"{") {
		t.Error("a long text is there twice")
	}
	for _, p := range []reply{list, one} {
		if len(p.body) > 100<<10 {
			t.Errorf("a page of the worst deliveries weighs %d bytes", len(p.body))
		}
	}
	b.post(to, "form-events", "1", "url", "https://hooks.example.com/other", "events", "site.deleted").to(t, to)
	b.post(to, "form-events", "1", "url", "https://hooks.example.com/other").want(t, 422, `data-test="wrong-events"`)
	b.post(to+"/switch", "to", "off").to(t, to)
	b.post(to+"/ping").want(t, 409)
	got, err := w.dash.Webhooks.Get(t.Context(), owner, id)
	must(t, err)
	if got.URL != "https://hooks.example.com/other" || !slices.Equal(got.Events, []string{"site.deleted"}) || got.Active {
		t.Errorf("webhook %+v", got)
	}
	own := b.post(
		"/webhooks/new", "form-events", "1", "url", "https://hooks.example.com/own", "events", "site.deleted",
		"secret", "brought by myself",
	).to(t, "/webhooks/hook_")
	if p := b.get(own).want(t, 200, "You provided the secret"); strings.Contains(p.body, "brought by myself") {
		t.Error("the page tells a secret that its owner knows")
	}
	b.post(own+"/secret").want(t, 409)
	b.post(own+"/delete").to(t, "/webhooks")
	b.get(own).want(t, 404)
}
