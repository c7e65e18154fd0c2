package operator

import (
	"context"

	"slipway/internal/git/forge"
	"slipway/internal/platform/db"
	"slipway/internal/tenant/audit"
	"slipway/internal/tenant/connection"
	"slipway/internal/web/dashboard/shell"
)

func (d *Pages) operatorGitRoutes() []shell.Route {
	return []shell.Route{
		shell.Get("/operator/git", shell.Operator, d.appsPage),
		shell.Post("/operator/git", shell.Operator, d.addApp, d.appsPage),
		shell.Post("/operator/git/github", shell.Operator, d.createGitHubApp, d.appsPage),
		shell.Get(connection.CreatedPath, shell.Operator, d.gitHubAppCreated),
		shell.Post("/operator/git/{app}/delete", shell.Operator, d.deleteApp, d.appsPage),
	}
}

// appGuide says where to register a Git provider's OAuth app.
type appGuide struct{ Provider, Name, Where, Scopes string }

var appGuides = []appGuide{
	{
		"gitlab",
		"GitLab",
		"Admin area, Applications; or Group or User settings, Applications.",
		"Confidential, with the scopes api, read_api and read_repository.",
	},
	{
		"gitea",
		"Gitea or Forgejo",
		"Site administration, Integrations, Applications; or user settings, Applications.",
		"A confidential client. Scopes need no choice.",
	},
	{
		"bitbucket",
		"Bitbucket",
		"Workspace settings, OAuth consumers.",
		"A private consumer with Account: read, Repositories: write and Pull requests: write.",
	},
}

type appsData struct {
	List     []connection.App
	Guides   []appGuide
	Callback string
}

func (d *Pages) appsPage(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	list, err := d.Connections.Apps(ctx, d.DB)
	return shell.Page("operator_git", "Git apps", appsData{list, appGuides, d.BaseURL + connection.CallbackPath}), err
}

// addApp stores an OAuth app that the operator has registered.
func (d *Pages) addApp(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	if err := d.Prove(ctx, q); err != nil {
		return shell.Answer{}, err
	}
	err := d.ActOn(ctx, q, func(tx *db.Tx) (audit.Event, error) {
		a, err := d.Connections.CreateAppTx(ctx, tx, connection.NewApp{
			Provider: forge.Provider(q.Value("provider")),
			Host:     q.Value("host"),
			ClientID: q.Value("client_id"),
			Secret:   q.Value("client_secret"),
		})
		return audit.Event{Action: "git_app.created", Subject: string(a.ID), Detail: a.Name + " at " + a.Host}, err
	})
	return shell.GoTo("/operator/git", "App added"), shell.AtCode(err, map[string]string{
		"invalid_connection":    "host",
		"app_exists":            "host",
		"invalid_client_id":     "client_id",
		"invalid_client_secret": "client_secret",
	})
}

// createGitHubApp sends an app's description to GitHub through the operator's browser.
func (d *Pages) createGitHubApp(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	if err := d.Prove(ctx, q); err != nil {
		return shell.Answer{}, err
	}
	var c connection.Creation
	n := connection.NewGitHubApp{Host: q.Value("github_host"), Organization: q.Value("organization"), Public: q.Checked("public")}
	err := d.DB.Write(ctx, func(tx *db.Tx) (err error) {
		c, err = d.Connections.CreationTx(ctx, tx, q.Session.ID, n)
		return err
	})
	if err != nil {
		return shell.Answer{}, shell.AtCode(err, map[string]string{
			"invalid_connection":   "github_host",
			"app_exists":           "github_host",
			"invalid_organization": "organization",
		})
	}
	return shell.Onward(shell.OnwardData{To: c.To, Manifest: c.Manifest}), nil
}

// gitHubAppCreated handles GitHub's response and stores the app.
func (d *Pages) gitHubAppCreated(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	made, err := d.Connections.Created(ctx, q.Session.ID, q.URL.Query())
	if err != nil {
		return shell.Answer{}, err
	}
	err = d.ActOn(ctx, q, func(tx *db.Tx) (audit.Event, error) {
		a, err := d.Connections.StoreAppTx(ctx, tx, made)
		return audit.Event{Action: "git_app.created", Subject: string(a.ID), Detail: a.Name + " at " + a.Host}, err
	})
	return shell.GoTo("/operator/git", "GitHub App created"), err
}

func (d *Pages) deleteApp(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	err := d.ActOn(ctx, q, func(tx *db.Tx) (audit.Event, error) {
		a, err := d.Connections.DeleteAppTx(ctx, tx, shell.PathID[connection.AppID](q, "app"))
		return audit.Event{Action: "git_app.deleted", Subject: string(a.ID), Detail: a.Name + " at " + a.Host}, err
	})
	return shell.GoTo("/operator/git", "App deleted"), err
}
