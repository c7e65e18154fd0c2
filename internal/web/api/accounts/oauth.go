package accounts

import (
	"context"

	"slipway/internal/platform/db"
	"slipway/internal/platform/id"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/audit"
	"slipway/internal/tenant/oauth"
	"slipway/internal/web/api/contract"
)

// AppBody is an OAuth app as its owner sees it.
type AppBody struct {
	ID             oauth.AppID `json:"id" doc:"The app's client_id." example:"app_25o5kzh3mc7yw4tn6pqd2xlfae"`
	Name           string      `json:"name" doc:"Name shown on the consent page."`
	Website        *string     `json:"website"`
	RedirectURIs   []string    `json:"redirectUris" doc:"Compared byte for byte, except for the port of a loopback address."`
	Confidential   bool        `json:"confidential" doc:"Whether the app has a client secret."`
	SecretHint     *string     `json:"secretHint" doc:"First characters of the current secret."`
	OldSecretUntil *string     `json:"oldSecretUntil" format:"date-time" doc:"When the previous secret expires. Null if there is none."`
	Disabled       bool        `json:"disabled" doc:"Whether the operator disabled the app."`
	CreatedAt      string      `json:"createdAt" format:"date-time"`
}

type newAppBody struct {
	AppBody
	ClientSecret *string `json:"clientSecret" doc:"The secret of a confidential app. Returned only once." example:"sls_4fT0qZ…"`
}

// GrantBody describes what a user allowed an app.
type GrantBody struct {
	ID           oauth.GrantID  `json:"id" example:"grt_25o5kzh3mc7yw4tn6pqd2xlfae"`
	App          grantApp       `json:"app"`
	Scopes       []string       `json:"scopes"`
	Sites        []id.Site      `json:"sites" doc:"Ids of the sites it is restricted to. Empty: all sites."`
	ExpiresAt    string         `json:"expiresAt" format:"date-time"`
	LastUsedAt   *string        `json:"lastUsedAt" format:"date-time"`
	LastUsedFrom *string        `json:"lastUsedFrom" doc:"IP address of its last use."`
	CreatedAt    string         `json:"createdAt" format:"date-time"`
	UserID       account.UserID `json:"userId" doc:"Who authorized the app."`
	Created      int            `json:"created" doc:"Webhooks, deploy hooks and notification channels that the app created. They are deleted when its access ends."`
}

type grantApp struct {
	ID      oauth.AppID `json:"id"`
	Name    string      `json:"name"`
	Website *string     `json:"website"`
}

func (a *API) oauthRoutes() {
	if a.OAuth == nil {
		return
	}
	const tag = "OAuth"
	contract.Get(a.API, contract.Route{
		Path: "/oauth/apps", ID: "listApps", Tag: tag, Scope: account.AppsWrite, Wide: true, Summary: "List OAuth apps",
		Doc: "Apps that the account registered, newest first, without their secrets.",
	}, a.listApps)
	contract.Post(a.API, contract.Route{
		Path: "/oauth/apps", ID: "createApp", Tag: tag, Scope: account.AppsWrite, Wide: true,
		Status: 201, Noun: "app", Private: true, Limited: true,
		Summary: "Register an OAuth app",
		Doc:     "The secret of a confidential app is returned once, in `clientSecret`. Public apps have no secret and use PKCE.",
	}, a.createApp)
	contract.Get(a.API, contract.Route{
		Path: "/oauth/apps/{id}", ID: "getApp", Tag: tag, Scope: account.AppsWrite, Wide: true,
		Summary: "Read an OAuth app",
	}, a.getApp)
	contract.Change(a.API, "PATCH", contract.Route{
		Path: "/oauth/apps/{id}", ID: "updateApp", Tag: tag, Scope: account.AppsWrite, Wide: true, Noun: "app", Summary: "Update an OAuth app",
	}, a.updateApp)
	contract.Change(a.API, "DELETE", contract.Route{
		Path: "/oauth/apps/{id}", ID: "deleteApp", Tag: tag, Scope: account.AppsWrite, Wide: true, Summary: "Delete an OAuth app",
		Doc: "Revokes all grants of the app immediately.",
	}, a.deleteApp)
	contract.Post(a.API, contract.Route{
		Path: "/oauth/apps/{id}/rotate-secret", ID: "rotateAppSecret", Tag: tag, Scope: account.AppsWrite, Wide: true, Private: true,
		Summary: "Rotate an app's secret",
		Doc:     "Returns a new secret once. The previous one works for another 24 hours.",
	}, a.rotateAppSecret)
	contract.Get(a.API, contract.Route{
		Path: "/oauth/grants", ID: "listGrants", Tag: tag, Scope: account.AccountRead, Summary: "List authorized apps",
		Doc: "Grants of apps for this account, one per device, newest first. An access token lists only its own grant.",
	}, a.listGrants)
	contract.Change(a.API, "DELETE", contract.Route{
		Path: "/oauth/grants/{id}", ID: "revokeGrant", Tag: tag, Scope: account.AppsWrite, Wide: true, Summary: "Revoke an app's access",
		Doc: "Its tokens stop working immediately; open streams end within 5 seconds. Apps revoke their own tokens at `/oauth/revoke`.",
	}, a.revokeGrant)
}

func (a *API) listApps(ctx context.Context, c account.Caller, in *contract.PartIn) (contract.Data[AppBody], error) {
	list, err := a.OAuth.Apps(ctx, c.Owner)
	return contract.Part(*in, contract.Each(list, showApp), err)
}

func (a *API) getApp(ctx context.Context, c account.Caller, in *contract.ByID[oauth.AppID]) (AppBody, error) {
	app, err := a.OAuth.App(ctx, a.DB, c.Owner, in.ID)
	return showApp(app), err
}

type createAppIn struct {
	Body struct {
		Name         string   `json:"name" doc:"1 to 60 characters. It must not imitate Slipway."`
		Website      string   `json:"website,omitempty" doc:"An https URL, shown on the consent page."`
		RedirectURIs []string `json:"redirectUris,omitempty" doc:"At most 20: https, http on a loopback address, or a private scheme with a dot. Without one, users authorize the app with a device code."`
		Confidential bool     `json:"confidential,omitempty" doc:"Whether the app has a client secret. Default: false."`
	}
}

func (a *API) createApp(ctx context.Context, tx *db.Tx, c account.Caller, in *createAppIn) (newAppBody, audit.Event, error) {
	app, secret, err := a.OAuth.CreateAppTx(ctx, tx, c.Owner, oauth.NewApp{
		Name: in.Body.Name, Website: in.Body.Website, RedirectURIs: in.Body.RedirectURIs, Confidential: in.Body.Confidential,
	})
	return newAppBody{showApp(app), contract.Some(secret)}, audit.Event{Action: "app.created", Subject: string(app.ID), Detail: app.Name}, err
}

type updateAppIn struct {
	contract.ByID[oauth.AppID]
	Body struct {
		Name         *string   `json:"name,omitempty" doc:"1 to 60 characters."`
		Website      *string   `json:"website,omitempty" doc:"An https URL. Empty: remove it."`
		RedirectURIs *[]string `json:"redirectUris,omitempty" doc:"Replaces all redirect URIs."`
	}
}

func (a *API) updateApp(ctx context.Context, tx *db.Tx, c account.Caller, in *updateAppIn) (AppBody, audit.Event, error) {
	app, err := a.OAuth.UpdateAppTx(ctx, tx, c.Owner, in.ID, oauth.AppChange{
		Name: in.Body.Name, Website: in.Body.Website, RedirectURIs: in.Body.RedirectURIs,
	})
	return showApp(app), audit.Event{Action: "app.updated", Subject: string(in.ID), Detail: app.Name}, err
}

func (a *API) deleteApp(
	ctx context.Context, tx *db.Tx, c account.Caller, in *contract.ByID[oauth.AppID],
) (contract.Message, audit.Event, error) {
	err := a.OAuth.DeleteAppTx(ctx, tx, c.Owner, in.ID)
	return contract.Message{Message: "App deleted"}, audit.Event{Action: "app.deleted", Subject: string(in.ID)}, err
}

func (a *API) rotateAppSecret(
	ctx context.Context, tx *db.Tx, c account.Caller, in *contract.ByID[oauth.AppID],
) (newAppBody, audit.Event, error) {
	app, secret, err := a.OAuth.RotateSecretTx(ctx, tx, c.Owner, in.ID)
	return newAppBody{showApp(app), contract.Some(secret)}, audit.Event{
		Action: "app.secret_rotated", Subject: string(in.ID),
		Detail: app.Name,
	}, err
}

func (a *API) listGrants(ctx context.Context, c account.Caller, in *contract.PartIn) (contract.Data[GrantBody], error) {
	if c.Grant == "" { // an app's token may list its own grant, for any sites
		if err := c.RequireAllSites(); err != nil {
			return contract.Data[GrantBody]{}, err
		}
	}
	list, err := a.OAuth.Grants(ctx, c)
	return contract.Part(*in, contract.Each(list, showGrant), err)
}

func (a *API) revokeGrant(
	ctx context.Context, tx *db.Tx, c account.Caller, in *contract.ByID[oauth.GrantID],
) (contract.Message, audit.Event, error) {
	g, err := a.OAuth.RevokeGrantTx(ctx, tx, c, in.ID)
	return contract.Message{Message: "Access revoked"}, audit.Event{Action: "app.revoked", Subject: string(in.ID), Detail: g.AppName}, err
}

func showApp(a oauth.App) AppBody {
	return AppBody{
		ID: a.ID, Name: a.Name, Website: contract.Some(a.Website), RedirectURIs: append([]string{}, a.RedirectURIs...),
		Confidential: a.Confidential, SecretHint: contract.Some(a.SecretHint), OldSecretUntil: contract.When(a.OldUntil), Disabled: a.Disabled,
		CreatedAt: a.CreatedAt.String(),
	}
}

func showGrant(g oauth.Grant) GrantBody {
	b := GrantBody{
		ID: g.ID, App: grantApp{g.App, g.AppName, contract.Some(g.Website)}, Scopes: names(g.Scopes),
		Sites: append([]id.Site{}, g.Sites...), ExpiresAt: g.Expires.String(), CreatedAt: g.CreatedAt.String(),
		UserID: g.User, Created: g.Made,
	}
	if g.UsedAt > g.CreatedAt || g.UsedAddr != "" {
		b.LastUsedAt, b.LastUsedFrom = contract.When(g.UsedAt), contract.Some(g.UsedAddr)
	}
	return b
}
