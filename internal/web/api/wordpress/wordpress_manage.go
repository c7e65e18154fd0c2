package wordpress

import (
	"context"
	"net/http"
	"strconv"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/audit"
	"slipway/internal/tenant/site"
	"slipway/internal/web/api/contract"
	"slipway/internal/wordpress/wordpress"
)

// wordpressManagement registers the operations on plugins, themes and users.
func (a *API) wordpressManagement() {
	r := func(path, id, summary, doc string) contract.Route {
		return contract.Route{
			Path: "/sites/{id}/wordpress/" + path, ID: id, Tag: "WordPress", Summary: summary, Doc: doc,
			Scope: account.SitesWrite, Noun: "WordPress", Status: http.StatusAccepted,
		}
	}
	const both = " Where one of them isn't installed or can't be changed, the operation fails and says why. `result.changed` " +
		"has the slugs that were changed."
	contract.Post(a.API, r("plugins", "manageWordPressPlugins", "Manage WordPress plugins",
		"Activates, deactivates or deletes plugins, or turns their automatic updates on or off. After an activation a set of pages "+
			"is compared with their responses before; if one fails or a fatal error is logged, the plugins are deactivated again. "+
			"The site is backed up before a deletion, and active plugins aren't deleted."+both), a.managePlugins)
	contract.Post(a.API, r("themes", "manageWordPressThemes", "Manage WordPress themes",
		"Activates a theme, deletes themes, or turns their automatic updates on or off. After an activation a set of pages is "+
			"compared with their responses before; if one fails or a fatal error is logged, the previous theme is activated again. "+
			"The site is backed up before a deletion, and the active theme and its parent aren't deleted."+both),
		a.manageThemes)
	users := func(path, id, summary, doc string) contract.Route {
		x := r(path, id, summary, doc)
		x.Role, x.Noun, x.NoApps = account.RoleManager, "WordPress user", true
		return x
	}
	contract.Post(a.API, users("users", "createWordPressUser", "Create a WordPress user",
		"Creates a user and emails them a link to set a password. Takes an admin of the team, or a manager of the site."),
		a.createWordPressUser)
	contract.Change(a.API, http.MethodPatch, users("users/{user}", "updateWordPressUser",
		"Change a WordPress user's role",
		"Replaces the user's roles with one. The last administrator keeps their role. Takes an admin of the team, or a manager of the site."),
		a.updateWordPressUser)
	contract.Post(a.API, users("users/{user}/reset-password", "resetWordPressPassword",
		"Send a WordPress password reset",
		"Emails the user a link to set a new password. The current password stays valid until then. Takes an admin of the team, "+
			"or a manager of the site."), a.resetWordPressPassword)
}

type managePluginsIn struct {
	contract.ByID[site.ID]
	Body struct {
		Action  string   `json:"action" enum:"activate,deactivate,delete,enable_auto_update,disable_auto_update" doc:"enable_auto_update: new versions are installed once a day, with a backup before and a check after."`
		Plugins []string `json:"plugins" minItems:"1" maxItems:"200" doc:"Slugs." example:"[\"akismet\"]"`
	}
}

type manageThemesIn struct {
	contract.ByID[site.ID]
	Body struct {
		Action string   `json:"action" enum:"activate,delete,enable_auto_update,disable_auto_update"`
		Themes []string `json:"themes" minItems:"1" maxItems:"200" doc:"Slugs. One for activate." example:"[\"twentytwentyfive\"]"`
	}
}

func (a *API) managePlugins(
	ctx context.Context, tx *db.Tx, c account.Caller, in *managePluginsIn,
) (contract.OperationBody, audit.Event, error) {
	return a.manage(ctx, tx, c, in.ID, wordpress.Manage{Kind: wordpress.Plugin, Action: in.Body.Action, Slugs: in.Body.Plugins})
}

func (a *API) manageThemes(
	ctx context.Context, tx *db.Tx, c account.Caller, in *manageThemesIn,
) (contract.OperationBody, audit.Event, error) {
	return a.manage(ctx, tx, c, in.ID, wordpress.Manage{Kind: wordpress.Theme, Action: in.Body.Action, Slugs: in.Body.Themes})
}

func (a *API) manage(
	ctx context.Context, tx *db.Tx, c account.Caller, id site.ID, m wordpress.Manage,
) (contract.OperationBody, audit.Event, error) {
	if err := a.Allowed(ctx, tx, c, id); err != nil {
		return contract.OperationBody{}, audit.Event{}, err
	}
	o, err := a.WordPress.ManageTx(ctx, tx, c.Owner, id, m)
	return contract.ShowOperation(o), audit.Event{Action: "wordpress.extensions", Subject: string(id), Detail: m.Words()}, err
}

type createWordPressUserIn struct {
	contract.ByID[site.ID]
	Body struct {
		Login string `json:"login" minLength:"3" maxLength:"60" example:"grace"`
		Email string `json:"email" format:"email" maxLength:"100"`
		Role  string `json:"role" maxLength:"60" example:"administrator" doc:"A role of this WordPress: administrator, editor, author, contributor, subscriber, or one that a plugin adds."`
	}
}

type wordpressUserIn struct {
	contract.ByID[site.ID]
	User string `path:"user" doc:"The user's id in WordPress."`
}

type updateWordPressUserIn struct {
	contract.ByID[site.ID]
	User string `path:"user" doc:"The user's id in WordPress."`
	Body struct {
		Role string `json:"role" maxLength:"60" example:"editor"`
	}
}

// userNumber parses a user's id; 0 if it is invalid.
func userNumber(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

func (a *API) createWordPressUser(
	ctx context.Context, tx *db.Tx, c account.Caller, in *createWordPressUserIn,
) (contract.OperationBody, audit.Event, error) {
	return a.changeWordPressUser(ctx, tx, c, in.ID, wordpress.UserChange{
		Action: wordpress.CreateUser, Login: in.Body.Login, Email: in.Body.Email, Role: in.Body.Role,
	})
}

func (a *API) updateWordPressUser(
	ctx context.Context, tx *db.Tx, c account.Caller, in *updateWordPressUserIn,
) (contract.OperationBody, audit.Event, error) {
	err := contract.CheckPatch(ctx, "WordPress user", []string{"role"}, struct{}{}, map[string]string{
		"login": "it can't be changed", "email": "change it in wp-admin", "name": "change it in wp-admin", "roles": "send role",
	})
	if err == nil && in.Body.Role == "" {
		err = fault.New(fault.Invalid, "invalid_wordpress_user", "There is nothing to change", "send role")
	}
	if err != nil {
		return contract.OperationBody{}, audit.Event{}, err
	}
	return a.changeWordPressUser(ctx, tx, c, in.ID, wordpress.UserChange{
		Action: wordpress.ChangeRole, ID: userNumber(in.User),
		Role: in.Body.Role,
	})
}

func (a *API) resetWordPressPassword(
	ctx context.Context, tx *db.Tx, c account.Caller, in *wordpressUserIn,
) (contract.OperationBody, audit.Event, error) {
	return a.changeWordPressUser(ctx, tx, c, in.ID, wordpress.UserChange{Action: wordpress.ResetPassword, ID: userNumber(in.User)})
}

func (a *API) changeWordPressUser(
	ctx context.Context, tx *db.Tx, c account.Caller, id site.ID, u wordpress.UserChange,
) (contract.OperationBody, audit.Event, error) {
	if err := a.Allowed(ctx, tx, c, id); err != nil {
		return contract.OperationBody{}, audit.Event{}, err
	}
	o, err := a.WordPress.ChangeUserTx(ctx, tx, c.Owner, id, u)
	return contract.ShowOperation(o), audit.Event{Action: "wordpress.user", Subject: string(id), Detail: u.Words()}, err
}
