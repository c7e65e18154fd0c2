package dashboard

import (
	"context"
	"strings"
	"testing"

	"slipway/internal/tenant/connection"

	"slipway/internal/build/framework"
	"slipway/internal/git/fetch"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/site"
)

// A site is created by choosing a connected account and searching its repositories. A private repository needs no
// pasted token.
func TestNewSiteFromAnAccount(t *testing.T) {
	t.Parallel()
	var asked *fetch.Credential
	w := newWorld(t, func(c *Config) {
		c.Repositories = repositories{func(_ context.Context, _ account.OwnerID, _ string, cr *fetch.Credential) ([]string, string, error) {
			asked = cr
			return []string{"main", "dev"}, "main", nil
		}, func(context.Context, account.OwnerID, string, string, *fetch.Credential, framework.Overrides) (framework.Plan, error) {
			return framework.Plan{Framework: "static", Name: "Static files", Runtime: "static"}, nil
		}}
	})
	u := w.user("ada@example.test", false)
	b := w.as("ada@example.test")
	b.get("/new").want(t, 200, "Connect account", `name="repository"`)
	if p := b.post(
		"/account/git", "provider", "github", "token", "bad-token",
	); p.status != 422 || !p.has("wrong-token") || strings.Contains(p.body, "bad-token") {
		t.Errorf("a wrong token: %s", p)
	}
	b.post("/account/git", "provider", "github", "token", "good-token").to(t, "/account/git")
	b.get("/account/git").want(t, 200, "octo", "github.com", "0 sites")
	b.get(w.siteWith(u, "github.com/octo/menu")).want(t, 200, "Slipway can't add the webhook for you", "Create Git hook")
	list, err := w.dash.Connections.List(t.Context(), w.db, u.Owner)
	must(t, err)
	id := string(list[0].ID)
	b.get("/new?account="+id).want(t, 200, "github.com/octo/site", "github.com/octo/other", "Private")
	p := b.get("/new?account="+id+"&search=SITE").want(t, 200, "github.com/octo/site")
	if strings.Contains(p.body, "octo/other") {
		t.Error("the search found what it should not")
	}
	b.post("/new", "type", "static", "step", "look", "account", id, "repository", "github.com/octo/site", "branch", "main").want(
		t,
		200,
		"Connected as octo",
		`name="account" value="`+id+`"`,
	)
	if asked == nil || asked.Token != "good-token" || asked.Host != "github.com" {
		t.Error("the repository was not read with the account")
	}
	to := b.post(
		"/new", "type", "static", "step", "create", "account", id, "repository", "github.com/octo/site", "branch",
		"main", "name", "Site",
	).to(t, "/sites/")
	made := site.ID(strings.Split(to, "/")[2])
	use, err := w.dash.Connections.UseOf(t.Context(), w.db, made)
	if err != nil || use.Connection != connection.ID(id) || !use.Report {
		t.Errorf("the site uses %+v, %v", use, err)
	}
	if p := b.post(
		"/new", "type", "static", "step", "look", "account", id, "repository", "git.test/octo/site",
	); p.status != 409 || !p.has("wrong-repository") {
		t.Errorf("another host: %s", p)
	}
	w.user("eve@example.test", false)
	eve := w.as("eve@example.test")
	if p := eve.get("/new?account=" + id); strings.Contains(p.body, "octo") {
		t.Error("another user's account can be picked")
	}
	if p := b.get("/account/git"); strings.Contains(p.body, "good-token") {
		t.Error("the token is shown")
	}
	b.post("/account/git/"+id+"/disconnect").to(t, "/account/git")
	if p := b.get("/new"); !strings.Contains(p.body, "Connect account") {
		t.Error("the account can still be picked")
	}
}

// A pasted URL of a repository's page sets the branch and folder.
func TestNewSiteFromAPage(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *Config) {
		c.Repositories = repositories{func(context.Context, account.OwnerID, string, *fetch.Credential) ([]string, string, error) {
			return []string{"main", "dev"}, "main", nil
		}, func(context.Context, account.OwnerID, string, string, *fetch.Credential, framework.Overrides) (framework.Plan, error) {
			return framework.Plan{Framework: "static", Name: "Static files", Runtime: "static"}, nil
		}}
	})
	w.user("ada@example.test", false)
	b := w.as("ada@example.test")
	b.post("/new", "type", "static", "step", "look", "repository", "https://github.com/o/r/tree/dev/apps/web").
		want(t, 200, `name="repository" value="github.com/o/r"`, `<option selected value="dev">`, `value="apps/web"`)
}

func TestNotificationsPage(t *testing.T) {
	t.Parallel()
	w, b, s := ada(t)
	if p := b.post(
		"/account/notifications", "kind", "slack", "url", "http://x.test/", "event", "domain.failed",
	); p.status != 422 || !p.has("wrong-url") {
		t.Errorf("plain http: %s", p)
	}
	if p := b.post("/account/notifications", "kind", "slack", "url", "https://x.test/"); p.status != 422 || !p.has("wrong-event") {
		t.Errorf("no event: %s", p)
	}
	b.post(
		"/account/notifications", "kind", "discord", "url", "https://discord.test/api/webhooks/planted", "site",
		string(s.ID),
		"event",
		"domain.failed",
		"event",
		"deployment.failed",
	).to(t, "/account/notifications")
	p := b.get("/account/notifications").want(t, 200, "discord.test", "Domain needs attention", "Deployment failed", s.Name)
	if strings.Contains(p.body, "planted") {
		t.Error("the address is shown")
	}
	list, err := w.dash.Notify.List(t.Context(), w.db, s.Owner)
	must(t, err)
	path := "/account/notifications/" + string(list[0].ID)
	b.post(path+"/test").to(t, "/account/notifications")
	b.post(path+"/switch", "to", "off").to(t, "/account/notifications")
	b.get("/account/notifications").want(t, 200, "Disabled")
	b.post(path+"/delete").to(t, "/account/notifications")
	if list, _ := w.dash.Notify.List(t.Context(), w.db, s.Owner); len(list) != 0 {
		t.Error("the channel is still there")
	}
}

// repositories is a Repositories whose answers are functions.
type repositories struct {
	branches func(ctx context.Context, who account.OwnerID, repository string, c *fetch.Credential) ([]string, string, error)
	detect   func(ctx context.Context, who account.OwnerID, repository, branch string, c *fetch.Credential, o framework.Overrides) (framework.Plan, error)
}

func (r repositories) Branches(ctx context.Context, who account.OwnerID, repository string, c *fetch.Credential) ([]string, string, error) {
	return r.branches(ctx, who, repository, c)
}

func (r repositories) Detect(
	ctx context.Context,
	who account.OwnerID,
	repository, branch string,
	c *fetch.Credential,
	o framework.Overrides,
) (framework.Plan, error) {
	return r.detect(ctx, who, repository, branch, c, o)
}
