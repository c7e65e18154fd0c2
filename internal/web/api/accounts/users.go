package accounts

import (
	"context"
	"slices"
	"strconv"
	"strings"

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
	Erase   bool           `query:"erase" doc:"Also takes the user's email and IP addresses out of the audit log."`
}

type listUsersIn struct {
	contract.PageIn
	Email string `query:"email" doc:"Only the user with this email address." example:"ada@example.com"`
}

type userIn struct {
	ID account.UserID `path:"id" doc:"The user's id."`
}

type updateUserIn struct {
	ID   account.UserID `path:"id" doc:"The user's id."`
	Body struct {
		Role string `json:"role" enum:"operator,user" doc:"An operator who becomes a user is signed out everywhere."`
	}
}

type userBody struct {
	ID          account.UserID `json:"id" example:"usr_01ht9x5m0aaaaaaaaaaaaaaaaa"`
	Email       string         `json:"email"`
	Role        string         `json:"role" enum:"operator,user"`
	CreatedAt   string         `json:"createdAt"`
	SuspendedAt *string        `json:"suspendedAt" doc:"null: the user isn't suspended."`
}

func showUser(u account.User) userBody {
	role := "user"
	if u.Admin {
		role = "operator"
	}
	return userBody{u.ID, u.Email, role, u.CreatedAt.String(), contract.When(u.Suspended)}
}

type linkBody struct {
	URL       string `json:"url" doc:"Opens a page that sets a new password, once."`
	ExpiresAt string `json:"expiresAt"`
}

// usersRoutes registers the operations with which operators manage users.
func (a *API) usersRoutes() {
	r := func(path, id, summary, doc string) contract.Route {
		return contract.Route{
			Path: "/admin/users" + path, ID: id, Tag: "Account", Summary: summary, Doc: "For operators of the installation. " + doc,
			Noun: "user", Operator: true, Person: true, Private: true,
		}
	}
	contract.Get(a.API, r("", "listUsers", "List users", "All users, the oldest first."), a.listUsers)
	contract.Get(a.API, r("/{id}", "getUser", "Get a user", "One user."), a.getUser)
	contract.ChangePrepared(a.API, "PATCH", r("/{id}", "updateUser", "Change a user's role", "The last operator stays one."),
		func(ctx context.Context, _ account.Caller, in *updateUserIn) (account.User, error) {
			return a.Accounts.User(ctx, in.ID)
		},
		a.updateUser)
	contract.PostPrepared(a.API, r("/{id}/reset-link", "createUserResetLink", "Create a password reset link",
		"Returns a one-time link with which the user sets a new password. It isn't emailed."), a.oneUser, a.createResetLink)
	contract.ChangePrepared(a.API, "DELETE", r("/{id}/two-factor", "disableUserTwoFactor", "Disable a user's two-factor authentication",
		"For a user who lost their device. Also removes the user's passkeys. The user is told by email."), a.oneUser, a.dropFactors)
	contract.PostPrepared(a.API, r("/{id}/export", "exportUser", "Export a user's data",
		"What the installation stores about a user: profile, sign-in methods, sessions, API keys, teams, sites, webhooks and the "+
			"audit log. It holds no secrets."), a.findExport, a.exportUser)
	contract.ChangePrepared(a.API, "DELETE", contract.Route{
		Path: "/admin/users/{id}", ID: "deleteUser", Tag: "Account", Summary: "Delete a user", Noun: "user", Operator: true, Person: true,
		Doc: "For operators of the installation. Deletes the user with everything of their personal account: sites, keys, sessions, " +
			"apps and webhooks. The last owner of a team, the last operator and the operator who asks can't be deleted. The audit log is kept; " +
			"`erase` takes the user's email and IP addresses out of it.",
	}, a.findUser, a.deleteUser)
}

// leaver is a user about to be deleted.
type leaver struct {
	user  account.User
	sites []site.ID
	told  team.UserDeletion
}

func (a *API) findUser(ctx context.Context, _ account.Caller, in *deleteUserIn) (l leaver, err error) {
	l.told.Confirm, l.told.Erase = in.Confirm, in.Erase
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

func (a *API) listUsers(ctx context.Context, _ account.Caller, in *listUsersIn) (out contract.Page[userBody], err error) {
	p, err := in.Parse()
	if err != nil {
		return out, err
	}
	all, err := a.Accounts.Users(ctx)
	if err != nil {
		return out, err
	}
	if in.Email != "" {
		all = slices.DeleteFunc(all, func(u account.User) bool { return !strings.EqualFold(u.Email, strings.TrimSpace(in.Email)) })
	}
	from := min((min(p.Page, len(all)+1)-1)*p.Limit, len(all))
	return contract.Paged(contract.Each(all[from:min(from+p.Limit, len(all))], showUser), p, len(all)), nil
}

func (a *API) getUser(ctx context.Context, _ account.Caller, in *userIn) (userBody, error) {
	u, err := a.Accounts.User(ctx, in.ID)
	return showUser(u), err
}

func (a *API) oneUser(ctx context.Context, _ account.Caller, in *userIn) (account.User, error) {
	return a.Accounts.User(ctx, in.ID)
}

func (a *API) updateUser(
	ctx context.Context, tx *db.Tx, c account.Caller, in *updateUserIn, u account.User,
) (_ userBody, _ audit.Event, err error) {
	// The log comes first, since an operator who revokes their own role couldn't write it afterwards.
	err = a.Accounts.AuditTx(ctx, tx, c.Actor(contract.From(ctx).Addr), audit.Event{
		Action: "user.role", Subject: string(u.ID), About: u.ID, Detail: u.Email + " is " + in.Body.Role + " now",
	})
	if err == nil {
		u, err = a.Accounts.SetRoleTx(ctx, tx, u.ID, in.Body.Role == "operator")
	}
	return showUser(u), audit.Logged, err
}

func (a *API) createResetLink(
	ctx context.Context, tx *db.Tx, _ account.Caller, _ *userIn, u account.User,
) (out linkBody, _ audit.Event, _ error) {
	token, err := a.Accounts.NewSetupLinkTx(ctx, tx, u.ID, account.LinkLife)
	out = linkBody{a.BaseURL + "/setup/" + token, db.Now().Add(account.LinkLife).String()}
	return out, audit.Event{Action: "password.link", Subject: string(u.ID), About: u.ID, Detail: u.Email}, err
}

func (a *API) dropFactors(
	ctx context.Context, tx *db.Tx, _ account.Caller, _ *userIn, u account.User,
) (_ contract.Message, did audit.Event, err error) {
	did = audit.Event{Action: "second_factor.disabled", Subject: string(u.ID), About: u.ID, Detail: "of " + u.Email}
	if err = a.Accounts.DropTOTPTx(ctx, tx, u.ID, ""); err == nil {
		_, err = a.Accounts.DropPasskeysTx(ctx, tx, u.ID)
	}
	if err == nil {
		err = a.Accounts.TellOwnerTx(ctx, tx, u.Owner, "Two-factor authentication disabled", "The operator of this installation "+
			"disabled two-factor authentication of your account and removed its passkeys. If you didn't ask for it, change your password "+
			"and reply to the operator.", "/account/security")
	}
	return contract.Message{Message: "Two-factor authentication disabled"}, did, err
}

func (a *API) findExport(ctx context.Context, _ account.Caller, in *userIn) (x team.Export, err error) {
	u, err := a.Accounts.User(ctx, in.ID)
	if err != nil {
		return x, err
	}
	return a.Teams.Export(ctx, u)
}

func (a *API) exportUser(
	_ context.Context, _ *db.Tx, _ account.Caller, in *userIn, x team.Export,
) (team.Export, audit.Event, error) {
	return x, audit.Event{Action: "user.exported", Subject: string(in.ID), About: in.ID, Detail: x.Email}, nil
}
