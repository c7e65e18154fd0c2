package accounts

import (
	"context"
	"strconv"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/audit"
	"slipway/internal/tenant/site"
	"slipway/internal/tenant/team"
	"slipway/internal/web/api/contract"
)

type deleteUserIn struct {
	ID      account.UserID `path:"id" doc:"The user's id."`
	Sites   string         `query:"sites" doc:"Number of sites that the user has. Default: 0." example:"2"`
	Confirm string         `query:"confirm" doc:"The user's email address. Required for a user who has sites." example:"ada@example.com"`
}

// usersRoutes registers the operations with which operators manage users.
func (a *API) usersRoutes() {
	contract.ChangePrepared(a.API, "DELETE", contract.Route{
		Path: "/admin/users/{id}", ID: "deleteUser", Tag: "Account", Summary: "Delete a user", Noun: "user", Operator: true, Person: true,
		Doc: "For operators of the installation. Deletes the user with everything of their personal account: sites, keys, sessions, " +
			"apps and webhooks. The last owner of a team, the last operator and the operator who asks can't be deleted. The audit log is kept.",
	}, a.findUser, a.deleteUser)
}

// leaver is a user about to be deleted.
type leaver struct {
	user  account.User
	sites []site.ID
	told  team.UserDeletion
}

func (a *API) findUser(ctx context.Context, _ account.Caller, in *deleteUserIn) (l leaver, err error) {
	l.told.Confirm = in.Confirm
	if in.Sites != "" {
		if l.told.Sites, err = strconv.Atoi(in.Sites); err != nil {
			return l, fault.New(fault.Invalid, "invalid_sites", "Invalid number of sites", "sites must be a number").Got(in.Sites)
		}
	}
	if l.user, err = a.Accounts.User(ctx, in.ID); err != nil {
		return l, err
	}
	l.sites, err = a.Teams.SitesOf(ctx, l.user.Owner)
	return l, err
}

func (a *API) deleteUser(
	ctx context.Context, tx *db.Tx, c account.Caller, _ *deleteUserIn, l leaver,
) (_ contract.Message, did audit.Event, _ error) {
	did, err := a.Teams.DeleteUserTx(ctx, tx, c.Actor(contract.From(ctx).Addr), l.user, l.sites, l.told)
	return contract.Message{Message: "User deleted"}, did, err
}
