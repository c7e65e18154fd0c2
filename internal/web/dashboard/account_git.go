package dashboard

import (
	"context"
	"strings"

	"slipway/internal/git/forge"
	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/connection"
)

func (d *Dashboard) connectionRoutes() []route {
	return []route{
		get("/account/git", user, d.connectionsPage),
		post("/account/git", user, d.connect, d.connectionsPage),
		post("/account/git/{connection}/disconnect", user, d.disconnect, d.connectionsPage),
		post("/account/git/sign-in", user, d.signInAtForge, d.connectionsPage),
		get(connection.CallbackPath, user, d.signedInAtForge),
		get(connection.SetupPath, user, d.appInstalled),
	}
}

// tokenGuide says where a forge's access token is made.
type tokenGuide struct{ Provider, Name, Link, Needs string }

var tokenGuides = []tokenGuide{
	{
		"github",
		"GitHub",
		"https://github.com/settings/personal-access-tokens/new",
		"A fine-grained token with Contents: read, Commit statuses, Deployments and Pull requests: write.",
	},
	{
		"gitlab",
		"GitLab",
		"https://gitlab.com/-/user_settings/personal_access_tokens",
		"A personal, group or project access token with the scope api, or read_repository and read_api without reports.",
	},
	{"gitea", "Gitea or Forgejo", "", "A token with repository: read and write, issue: write and user: read."},
	{
		"bitbucket",
		"Bitbucket",
		"https://bitbucket.org/account/settings/app-passwords/",
		"An access token, or an app password with its username, that may read repositories and write pull requests.",
	},
}

type connectionsData struct {
	List   []connection.Connection
	Apps   []connection.App
	Guides []tokenGuide
}

// Install is where a connection's GitHub App is given repositories; empty for others.
func (c connectionsData) Install(id connection.AppID) string {
	for _, a := range c.Apps {
		if a.ID == id {
			return a.InstallURL()
		}
	}
	return ""
}

func (d *Dashboard) connectionsPage(ctx context.Context, q *request) (answer, error) {
	list, err := d.Connections.List(ctx, d.DB, q.caller.Owner)
	if err != nil {
		return answer{}, err
	}
	apps, err := d.Connections.Apps(ctx, d.DB)
	return page("account_git", "Git accounts", connectionsData{list, apps, tokenGuides}), err
}

// signInAtForge leads to the sign-in of a forge, from where the browser comes back.
func (d *Dashboard) signInAtForge(ctx context.Context, q *request) (answer, error) {
	var to string
	err := d.DB.Write(ctx, func(tx *db.Tx) (err error) {
		to, err = d.Connections.BeginTx(ctx, tx, string(q.session.ID), connection.AppID(q.value("app")), !q.checked("read_only"))
		return err
	})
	if err != nil {
		return answer{}, err
	}
	return onward(onwardData{To: to}), nil
}

// signedInAtForge takes the forge's answer to a sign-in that was begun in this session, and
// connects the account. Who signed in with a GitHub App that has no repository of theirs
// goes on to where it gets some.
func (d *Dashboard) signedInAtForge(ctx context.Context, q *request) (answer, error) {
	k, app, err := d.Connections.Finish(ctx, string(q.session.ID), q.URL.Query())
	if err != nil {
		return answer{}, err
	}
	err = d.actOn(ctx, q, func(tx *db.Tx) (account.AuditEvent, error) {
		c, err := d.Connections.CreateTx(ctx, tx, q.caller.Owner, k)
		return account.AuditEvent{Action: "connection.created", Subject: string(c.ID), Detail: c.Login + " at " + c.Host}, err
	})
	if err != nil {
		return answer{}, err
	}
	if has, err := d.Connections.HasRepositories(ctx, k); err == nil && !has {
		return onward(onwardData{To: app.InstallURL()}), nil
	}
	return goTo("/account/git", "Account connected"), nil
}

// appInstalled is where GitHub leads back to after an app was given repositories. What the
// address says is not trusted: it is only a page to come back to.
func (d *Dashboard) appInstalled(context.Context, *request) (answer, error) {
	return goTo("/new", "Repositories updated"), nil
}

func (d *Dashboard) connect(ctx context.Context, q *request) (answer, error) {
	k, err := d.Connections.Check(ctx, connection.NewConnection{
		Provider: forge.Provider(q.value("provider")),
		Host:     q.value("host"),
		Token:    q.value("token"),
		User:     q.value("username"),
	})
	if err != nil {
		return answer{}, atConnection(err)
	}
	err = d.actOn(ctx, q, func(tx *db.Tx) (account.AuditEvent, error) {
		c, err := d.Connections.CreateTx(ctx, tx, q.caller.Owner, k)
		return account.AuditEvent{Action: "connection.created", Subject: string(c.ID), Detail: c.Login + " at " + c.Host}, err
	})
	return goTo("/account/git", "Account connected"), err
}

// atConnection says at which field of the form a fault belongs.
func atConnection(err error) error {
	f := fault.As(err)
	switch {
	case f == nil:
		return err
	case f.Code == "token_refused" || strings.Contains(f.Message, "token"):
		return at("token", err)
	case f.Code == "forge_unavailable" || strings.Contains(f.Message, "host") || strings.Contains(f.Message, "forge"):
		return at("host", err)
	}
	return err
}

func (d *Dashboard) disconnect(ctx context.Context, q *request) (answer, error) {
	id := connection.ID(q.PathValue("connection"))
	err := d.act(ctx, q, "connection.deleted", func(tx *db.Tx) (string, error) {
		return string(id), d.Connections.DeleteTx(ctx, tx, q.caller.Owner, id)
	})
	return goTo("/account/git", "Account disconnected"), err
}
