package dashboard

import (
	"context"

	"slipway/internal/git/forge"
	"slipway/internal/platform/db"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/connection"
)

func (d *Dashboard) operatorGitRoutes() []route {
	return []route{
		get("/operator/git", operator, d.appsPage),
		post("/operator/git", operator, d.addApp, d.appsPage),
		post("/operator/git/github", operator, d.createGitHubApp, d.appsPage),
		get(connection.CreatedPath, operator, d.gitHubAppCreated),
		post("/operator/git/{app}/delete", operator, d.deleteApp, d.appsPage),
	}
}

// appGuide says where a forge's OAuth app is registered.
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

func (d *Dashboard) appsPage(ctx context.Context, q *request) (answer, error) {
	list, err := d.Connections.Apps(ctx, d.DB)
	return page("operator_git", "Git apps", appsData{list, appGuides, d.BaseURL + connection.CallbackPath}), err
}

// addApp stores an OAuth app that the operator has registered at a forge.
func (d *Dashboard) addApp(ctx context.Context, q *request) (answer, error) {
	if err := d.prove(ctx, q); err != nil {
		return answer{}, err
	}
	err := d.actOn(ctx, q, func(tx *db.Tx) (account.AuditEvent, error) {
		a, err := d.Connections.CreateAppTx(ctx, tx, connection.NewApp{
			Provider: forge.Provider(q.value("provider")),
			Host:     q.value("host"),
			ClientID: q.value("client_id"),
			Secret:   q.value("client_secret"),
		})
		return account.AuditEvent{Action: "git_app.created", Subject: string(a.ID), Detail: a.Name + " at " + a.Host}, err
	})
	return goTo(
			"/operator/git",
			"App added",
		), atCode(err, map[string]string{
			"invalid_connection":    "host",
			"app_exists":            "host",
			"invalid_client_id":     "client_id",
			"invalid_client_secret": "client_secret",
		})
}

// onwardData is a page that leads to another host: by a form, or by an address.
type onwardData struct {
	Host     string
	To       string
	Manifest string // that the form sends; empty: there is no form
	Back     bool   // to where they came from
}

// createGitHubApp sends GitHub the description of an app, by the operator's browser.
func (d *Dashboard) createGitHubApp(ctx context.Context, q *request) (answer, error) {
	if err := d.prove(ctx, q); err != nil {
		return answer{}, err
	}
	var c connection.Creation
	n := connection.NewGitHubApp{Host: q.value("github_host"), Organization: q.value("organization"), Public: q.checked("public")}
	err := d.DB.Write(ctx, func(tx *db.Tx) (err error) {
		c, err = d.Connections.CreationTx(ctx, tx, string(q.session.ID), n)
		return err
	})
	if err != nil {
		return answer{}, atCode(err, map[string]string{
			"invalid_connection":   "github_host",
			"app_exists":           "github_host",
			"invalid_organization": "organization",
		})
	}
	return onward(onwardData{To: c.To, Manifest: c.Manifest}), nil
}

// gitHubAppCreated takes GitHub's answer and stores the app.
func (d *Dashboard) gitHubAppCreated(ctx context.Context, q *request) (answer, error) {
	made, err := d.Connections.Created(ctx, string(q.session.ID), q.URL.Query())
	if err != nil {
		return answer{}, err
	}
	err = d.actOn(ctx, q, func(tx *db.Tx) (account.AuditEvent, error) {
		a, err := d.Connections.StoreAppTx(ctx, tx, made)
		return account.AuditEvent{Action: "git_app.created", Subject: string(a.ID), Detail: a.Name + " at " + a.Host}, err
	})
	return goTo("/operator/git", "GitHub App created"), err
}

func (d *Dashboard) deleteApp(ctx context.Context, q *request) (answer, error) {
	err := d.actOn(ctx, q, func(tx *db.Tx) (account.AuditEvent, error) {
		a, err := d.Connections.DeleteAppTx(ctx, tx, connection.AppID(q.PathValue("app")))
		return account.AuditEvent{Action: "git_app.deleted", Subject: string(a.ID), Detail: a.Name + " at " + a.Host}, err
	})
	return goTo("/operator/git", "App deleted"), err
}
