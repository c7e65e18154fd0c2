package account

import (
	"context"
	"strings"

	"slipway/internal/git/forge"
	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/audit"
	"slipway/internal/tenant/connection"
	"slipway/internal/web/dashboard/shell"
)

func (d *Pages) connectionRoutes() []shell.Route {
	return []shell.Route{
		shell.Get("/account/git", shell.User, d.connectionsPage),
		shell.Post("/account/git", shell.User, d.connect, d.connectionsPage),
		shell.Post("/account/git/{connection}/disconnect", shell.User, d.disconnect, d.connectionsPage),
		shell.Post("/account/git/sign-in", shell.User, d.signInAtForge, d.connectionsPage).AtMain("/account/git"),
		shell.Get(connection.CallbackPath, shell.User, d.signedInAtForge).AtMain("/account/git"),
		shell.Get(connection.SetupPath, shell.User, d.appInstalled),
	}
}

// tokenGuide says where to create a Git provider's access token.
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

// Install returns the page that grants repositories to a connection's GitHub App, or "" for other connections.
func (c connectionsData) Install(id connection.AppID) string {
	for _, a := range c.Apps {
		if a.ID == id {
			return a.InstallURL()
		}
	}
	return ""
}

func (d *Pages) connectionsPage(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	list, err := d.Connections.List(ctx, d.DB, q.Caller.Owner)
	if err != nil {
		return shell.Answer{}, err
	}
	apps, err := d.Connections.Apps(ctx, d.DB)
	return shell.Page("account_git", "Git accounts", connectionsData{list, apps, tokenGuides}), err
}

// signInAtForge redirects to a Git provider's sign-in.
func (d *Pages) signInAtForge(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	var to string
	err := d.DB.Write(ctx, func(tx *db.Tx) (err error) {
		to, err = d.Connections.BeginTx(ctx, tx, q.Session.ID, connection.AppID(q.Value("app")), !q.Checked("read_only"))
		return err
	})
	if err != nil {
		return shell.Answer{}, err
	}
	return shell.Onward(shell.OnwardData{To: to}), nil
}

// signedInAtForge handles the Git provider's response to a sign-in begun in this session, and connects the account. If
// a GitHub App has none of the user's repositories, it redirects to the page that grants them.
func (d *Pages) signedInAtForge(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	k, app, err := d.Connections.Finish(ctx, q.Session.ID, q.URL.Query())
	if err != nil {
		return shell.Answer{}, err
	}
	err = d.ActOn(ctx, q, func(tx *db.Tx) (audit.Event, error) {
		c, err := d.Connections.CreateTx(ctx, tx, q.Caller.Owner, k)
		return audit.Event{Action: "connection.created", Subject: string(c.ID), Detail: c.Login + " at " + c.Host}, err
	})
	if err != nil {
		return shell.Answer{}, err
	}
	if has, err := d.Connections.HasRepositories(ctx, k); err == nil && !has {
		return shell.Onward(shell.OnwardData{To: app.InstallURL()}), nil
	}
	return shell.GoTo("/account/git", "Account connected"), nil
}

// appInstalled handles GitHub's redirect after an app was granted repositories. It ignores the URL's parameters, which
// aren't trusted.
func (d *Pages) appInstalled(context.Context, *shell.Request) (shell.Answer, error) {
	return shell.GoTo("/new", "Repositories updated"), nil
}

func (d *Pages) connect(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	k, err := d.Connections.Check(ctx, connection.NewConnection{
		Provider: forge.Provider(q.Value("provider")),
		Host:     q.Value("host"),
		Token:    q.Value("token"),
		User:     q.Value("username"),
	})
	if err != nil {
		return shell.Answer{}, atConnection(err)
	}
	err = d.ActOn(ctx, q, func(tx *db.Tx) (audit.Event, error) {
		c, err := d.Connections.CreateTx(ctx, tx, q.Caller.Owner, k)
		return audit.Event{Action: "connection.created", Subject: string(c.ID), Detail: c.Login + " at " + c.Host}, err
	})
	return shell.GoTo("/account/git", "Account connected"), err
}

// atConnection assigns a fault to a field of the form.
func atConnection(err error) error {
	f := fault.As(err)
	switch {
	case f == nil:
		return err
	case f.Code == "token_refused" || strings.Contains(f.Message, "token"):
		return shell.At("token", err)
	case f.Code == "forge_unavailable" || strings.Contains(strings.ToLower(f.Message), "host") || strings.Contains(f.Message, "Git provider"):
		return shell.At("host", err)
	}
	return err
}

func (d *Pages) disconnect(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	id := shell.PathID[connection.ID](q, "connection")
	err := d.Act(ctx, q, "connection.deleted", func(tx *db.Tx) (string, error) {
		return string(id), d.Connections.DeleteTx(ctx, tx, q.Caller.Owner, id)
	})
	return shell.GoTo("/account/git", "Account disconnected"), err
}
