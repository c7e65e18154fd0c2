package git

import (
	"context"
	"net/http"

	"slipway/internal/platform/id"

	"slipway/internal/deploy/pushes"
	"slipway/internal/git/forge"
	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/lazyregexp"
	"slipway/internal/tenant/audit"
	"slipway/internal/tenant/connection"
	"slipway/internal/tenant/site"
	"slipway/internal/web/api/contract"
)

type callGitHubAppIn struct {
	Hook string `path:"hook"`
}

type appSiteBody struct {
	SiteID       site.ID       `json:"siteId"`
	Message      string        `json:"message"`
	DeploymentID id.Deployment `json:"deploymentId,omitempty"`
	Status       string        `json:"status,omitempty"`
	Skipped      bool          `json:"skipped,omitempty"`
	Reason       string        `json:"reason,omitempty"`
}

type calledGitHubApp struct {
	Message string        `json:"message"`
	Skipped bool          `json:"skipped,omitempty" doc:"True if nothing was deployed."`
	Reason  string        `json:"reason,omitempty"`
	Sites   []appSiteBody `json:"sites,omitempty" doc:"Result for each site of the repository."`
}

// answerGitHubApp handles a GitHub App's event.
func (a *API) answerGitHubApp(ctx context.Context, r contract.Route, in *callGitHubAppIn) (*contract.Reply, error) {
	out, err := a.callGitHubApp(ctx, in.Hook)
	if err != nil {
		return nil, err
	}
	kept, err := r.Keep(out)
	return contract.Unkeep(kept, false, err)
}

func (a *API) callGitHubApp(ctx context.Context, hook string) (out calledGitHubApp, err error) {
	req := contract.From(ctx)
	if len(req.Body) > forge.MaxBody {
		return out, forge.TooLarge(forge.MaxBody)
	}
	app, err := a.Connections.AppEvent(ctx, hook, req.HTTP.Header, req.Body)
	if err != nil {
		return out, err
	}
	event, err := forge.Read(req.HTTP.Header, req.Body)
	if err != nil {
		return out, err
	}
	ctx, cancel := context.WithTimeout(db.WithShare(ctx, contract.AppPrefix+string(app.ID)), contract.HandlerTimeout)
	defer cancel()
	var list []pushes.AppOutcome
	err = a.DB.Write(ctx, func(tx *db.Tx) (err error) {
		list, err = a.Git.HandleAppTx(ctx, tx, app.Host, event, req.HTTP.Header, req.Body, func(s site.Site) (bool, error) {
			return a.usesApp(ctx, tx, s, app.ID)
		})
		for _, x := range list {
			for _, d := range x.Deployments {
				if err == nil {
					err = a.Accounts.AuditTx(ctx, tx, audit.Actor{
						Owner: x.Site.Owner,
						Via:   "GitHub App",
						Addr:  req.Addr,
					}, audit.Event{Action: "deployment.triggered", Subject: string(d.ID)})
				}
			}
		}
		return err
	})
	if err != nil {
		return out, err
	}
	out = calledGitHubApp{
		Message: "Nothing to deploy",
		Skipped: true,
		Reason:  "No site uses this repository with the app, or the event deploys nothing",
	}
	for _, x := range list {
		one := appSiteBody{SiteID: x.Site.ID, Message: x.Message, Skipped: x.Reason != "", Reason: x.Reason}
		if len(x.Deployments) > 0 {
			one.DeploymentID, one.Status = x.Deployments[0].ID, string(x.Deployments[0].Status)
			out.Message, out.Skipped, out.Reason = "Deployment triggered", false, ""
		}
		out.Sites = append(out.Sites, one)
	}
	return out, nil
}

// usesApp reports whether an app's events apply to a site: its owner connected an account with the app, and isn't
// suspended.
func (a *API) usesApp(ctx context.Context, tx *db.Tx, s site.Site, id connection.AppID) (bool, error) {
	uses, err := a.Connections.UsesApp(ctx, tx, s.ID, id)
	if err != nil || !uses {
		return false, err
	}
	err = a.Accounts.Stands(ctx, tx, s.Owner)
	if fault.As(err) != nil {
		return false, nil
	}
	return err == nil, err
}

var appHookForm = lazyregexp.New(`^` + connection.HookPath + `([A-Za-z0-9_-]{43})$`)

// appCalls handles calls of GitHub Apps' webhooks.
type appCalls struct{ a *API }

func (appCalls) Most() int { return forge.MaxBody }

func (appCalls) Is(path string) bool { return appHookForm.MatchString(path) }

func (c appCalls) Key(ctx context.Context, r *http.Request) (string, bool) {
	m := appHookForm.FindStringSubmatch(r.URL.Path)
	if m == nil {
		return "", false
	}
	app, err := c.a.Connections.ByHook(ctx, c.a.DB, m[1])
	return contract.AppPrefix + string(app.ID), err == nil
}
