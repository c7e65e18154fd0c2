package git

import (
	"context"
	"net/http"

	"slipway/internal/git/forge"
	"slipway/internal/platform/db"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/audit"
	"slipway/internal/tenant/connection"
	"slipway/internal/web/api/contract"
)

type connectionBody struct {
	ID        connection.ID `json:"id" example:"git_25o5kzh3mc7yw4tn6pqd2xlfae"`
	Provider  string        `json:"provider" enum:"github,gitlab,gitea,bitbucket"`
	BaseURL   string        `json:"baseUrl" example:"https://github.com"`
	Host      string        `json:"host" example:"github.com"`
	Login     string        `json:"login" doc:"The account's name at the Git provider."`
	Scopes    []string      `json:"scopes" doc:"The token's scopes at the Git provider. Empty if the provider doesn't report them."`
	Sites     int           `json:"sites" doc:"Number of sites that use it."`
	Error     *string       `json:"error" doc:"Last error from the Git provider, or null."`
	CreatedAt string        `json:"createdAt" format:"date-time"`
	UpdatedAt string        `json:"updatedAt" format:"date-time"`
}

type foundRepository struct {
	Repository string  `json:"repository" example:"github.com/acme/site"`
	Branch     *string `json:"branch" doc:"Its default branch."`
	Private    bool    `json:"private"`
}

func (a *API) connectionRoutes() {
	r := func(path, id, summary, doc string, s account.Scope) contract.Route {
		return contract.Route{Path: path, ID: id, Tag: "Connected accounts", Summary: summary, Doc: doc, Scope: s, Noun: "connection", Wide: true}
	}
	contract.Get(a.API,
		r("/git/accounts", "listConnections", "List connected accounts",
			"Accounts at Git providers. Tokens are never shown.", account.SitesRead),
		a.listConnections)
	create := r("/git/accounts", "createConnection", "Connect an account",
		"With an access token that may read repositories and, to report deployments, set commit statuses and comment on pull requests. "+
			"The Git provider is asked for the token's account. An existing connection to that account is replaced. Select it for a "+
			"site with `connectionId` in `PATCH /sites/{id}/git`, or when creating the site.",
		account.SitesWrite)
	create.Status = http.StatusCreated
	contract.PostPrepared(a.API, create, a.checkConnection, a.createConnection)
	contract.Change(a.API, http.MethodDelete,
		r("/git/accounts/{id}", "deleteConnection", "Disconnect an account",
			"Deletes its token. Repositories of sites that used it are read without a credential from then on.",
			account.SitesWrite),
		a.deleteConnection)
	contract.Get(a.API,
		r("/git/accounts/{id}/repositories", "findRepositories", "Find repositories of a connected account",
			"At most 100 whose name contains `search`, most recently used first.", account.SitesRead),
		a.findRepositories)
}

func showConnection(c connection.Connection) connectionBody {
	return connectionBody{
		c.ID,
		string(c.Provider),
		"https://" + c.Host,
		c.Host,
		c.Login,
		append([]string{}, c.Scopes...),
		c.Sites,
		contract.Some(c.Error),
		c.CreatedAt.String(),
		c.UpdatedAt.String(),
	}
}

func (a *API) listConnections(ctx context.Context, c account.Caller, in *contract.PartIn) (contract.Data[connectionBody], error) {
	list, err := a.Connections.List(ctx, a.DB, c.Owner)
	return contract.Part(*in, contract.Each(list, showConnection), err)
}

type createConnectionIn struct {
	Body struct {
		Provider string `json:"provider" enum:"github,gitlab,gitea,bitbucket" doc:"Use gitea for Forgejo."`
		BaseURL  string `json:"baseUrl,omitempty" maxLength:"260" doc:"URL of a self-hosted server. Default: github.com, gitlab.com or bitbucket.org." example:"https://git.example.com"`
		Token    string `json:"token" doc:"Access token. Stored encrypted, never shown, and sent only to that host."`
		Username string `json:"username,omitempty" maxLength:"200" doc:"Username of a Bitbucket app password."`
	}
}

func (a *API) checkConnection(ctx context.Context, _ account.Caller, in *createConnectionIn) (connection.Checked, error) {
	return a.Connections.Check(ctx, connection.NewConnection{
		Provider: forge.Provider(in.Body.Provider),
		Host:     in.Body.BaseURL,
		Token:    in.Body.Token,
		User:     in.Body.Username,
	})
}

func (a *API) createConnection(
	ctx context.Context,
	tx *db.Tx,
	c account.Caller,
	_ *createConnectionIn,
	k connection.Checked,
) (_ connectionBody, did audit.Event, _ error) {
	made, err := a.Connections.CreateTx(ctx, tx, c.Owner, k)
	did = audit.Event{Action: "connection.created", Subject: string(made.ID), Detail: made.Login + " at " + made.Host}
	return showConnection(made), did, err
}

func (a *API) deleteConnection(
	ctx context.Context, tx *db.Tx, c account.Caller, in *contract.ByID[connection.ID],
) (_ contract.Message, did audit.Event, _ error) {
	did = audit.Event{Action: "connection.deleted", Subject: string(in.ID)}
	return contract.Message{Message: "Account disconnected"}, did, a.Connections.DeleteTx(ctx, tx, c.Owner, in.ID)
}

type findRepositoriesIn struct {
	contract.ByID[connection.ID]
	Search string `query:"search" maxLength:"100" doc:"Text that the repository's name contains."`
}

func (a *API) findRepositories(ctx context.Context, c account.Caller, in *findRepositoriesIn) (contract.Data[foundRepository], error) {
	list, err := a.Connections.Repositories(ctx, c.Owner, in.ID, in.Search)
	return contract.Data[foundRepository]{Data: contract.Each(list, func(r connection.Repository) foundRepository {
		return foundRepository{r.Name, contract.Some(r.Default), r.Private}
	})}, err
}
