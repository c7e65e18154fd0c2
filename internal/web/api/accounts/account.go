package accounts

import (
	"context"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/id"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/audit"
	"slipway/internal/tenant/limits"
	"slipway/internal/web/api/contract"
)

type accountBody struct {
	ID        account.UserID `json:"id" example:"usr_25o5kzh3mc7yw4tn6pqd2xlfae"`
	Email     string         `json:"email"`
	Admin     bool           `json:"admin" doc:"Whether the user is an operator of the installation."`
	CreatedAt string         `json:"createdAt" format:"date-time"`
	Key       accountKey     `json:"key" doc:"The calling key, or the permissions of the calling access token."`

	App *accountApp `json:"app" doc:"The app of the calling access token. Null for API keys."`

	Limits map[string]limitBody `json:"limits" doc:"Maximum and current use of each limit, by name. Exceeding one is answered with 402."`
}

type limitBody struct {
	Limit *int64 `json:"limit" doc:"Null if unlimited."`
	Used  int64  `json:"used"`

	Throttle int64 `json:"throttle,omitempty" doc:"Of bandwidth.bytes: bytes per second that all sites together get once the limit is reached. Absent: sites are paused then."`

	PeriodStart *string `json:"periodStart,omitempty" format:"date-time" doc:"Of bandwidth.bytes and build.minutes: what was used since then counts. Usually the start of the calendar month (UTC)."`
	PeriodEnd   *string `json:"periodEnd,omitempty" format:"date-time" doc:"When they start over at zero."`
}

type accountKey struct {
	ID        account.KeyID `json:"id" doc:"Empty for access tokens."`
	Scopes    []string      `json:"scopes"`
	ExpiresAt *string       `json:"expiresAt" format:"date-time"`
}

type accountApp struct {
	ID      string `json:"id" example:"app_25o5kzh3mc7yw4tn6pqd2xlfae"`
	Name    string `json:"name"`
	GrantID string `json:"grantId" example:"grt_25o5kzh3mc7yw4tn6pqd2xlfae"`
}

type KeyBody struct {
	ID           account.KeyID `json:"id" example:"key_25o5kzh3mc7yw4tn6pqd2xlfae"`
	Name         string        `json:"name"`
	Hint         string        `json:"hint" doc:"First characters of the secret." example:"slw_4fT0qZ"`
	Scopes       []string      `json:"scopes"`
	Sites        []id.Site     `json:"sites" doc:"Ids of the sites it is restricted to. Empty: all sites."`
	Addresses    []string      `json:"addresses" doc:"Address ranges it may be used from. Empty: any."`
	ExpiresAt    *string       `json:"expiresAt" format:"date-time"`
	LastUsedAt   *string       `json:"lastUsedAt" format:"date-time"`
	LastUsedFrom *string       `json:"lastUsedFrom" doc:"IP address of its last use."`
	CreatedAt    string        `json:"createdAt" format:"date-time"`
	Service      bool          `json:"service,omitempty" doc:"Whether it is a service key: it acts for a team and is kept when its creator leaves."`
	CreatedBy    string        `json:"createdBy,omitempty" doc:"For keys of a team: the creator's email address."`
}

type newKeyBody struct {
	KeyBody
	Key string `json:"key" doc:"The secret. Returned only once." example:"slw_4fT0qZ…"`
}

func (a *API) accountRoutes() {
	contract.Get(a.API, contract.Route{
		Path:    "/account",
		ID:      "getAccount",
		Tag:     "Account",
		Scope:   account.AccountRead,
		Summary: "Read the current account",
	}, a.getAccount)
	contract.Get(a.API, contract.Route{
		Path: "/keys", ID: "listKeys", Tag: "Keys", Scope: account.KeysWrite, Summary: "List API keys",
		Doc: "The user's keys with at most the permissions of the calling key, newest first, without their secrets.",
	}, a.listKeys)
	contract.Post(a.API, contract.Route{
		Path:    "/keys",
		ID:      "createKey",
		Tag:     "Keys",
		Scope:   account.KeysWrite,
		Status:  201,
		Noun:    "key",
		Private: true,
		Limited: true,
		Finds:   true,
		Summary: "Create an API key",
		Doc: "The secret is returned once, in `key`. A key can only create keys with at most its own permissions: no further " +
			"scopes, sites or addresses, and no later expiry.",
	}, a.createKey)
	contract.Change(a.API, "DELETE", contract.Route{
		Path: "/keys/{id}", ID: "revokeKey", Tag: "Keys", Scope: account.KeysWrite, Summary: "Revoke an API key",
		Doc: "The key stops working immediately; open streams end within 5 seconds. A key can revoke itself and keys with at most " +
			"its own permissions; others are not found.",
	}, a.revokeKey)
}

func (a *API) getAccount(ctx context.Context, c account.Caller, _ *struct{}) (accountBody, error) {
	u, err := a.Accounts.User(ctx, c.User)
	if err != nil {
		return accountBody{}, err
	}
	use, err := a.Limits.Use(ctx, a.DB, c.Owner)
	if err != nil {
		return accountBody{}, err
	}
	bodies := map[string]limitBody{}
	for _, l := range use {
		body := limitBody{Used: l.Used, PeriodStart: contract.When(l.Window.From), PeriodEnd: contract.When(l.Window.To)}
		if l.Limit != limits.Unlimited {
			body.Limit, body.Throttle = &l.Limit, l.Throttle
		}
		bodies[string(l.Name)] = body
	}
	body := accountBody{
		ID: u.ID, Email: u.Email, Admin: u.Admin, CreatedAt: u.CreatedAt.String(), Limits: bodies,
		Key: accountKey{c.Key, names(c.Scopes), contract.When(c.Expires)},
	}
	if c.Grant != "" {
		body.App = &accountApp{c.App, c.Via, c.Grant}
	}
	return body, nil
}

func (a *API) listKeys(ctx context.Context, c account.Caller, in *contract.PartIn) (contract.Data[KeyBody], error) {
	keys, err := a.Accounts.ListKeys(ctx, c)
	return contract.Part(*in, contract.Each(keys, func(k account.Key) KeyBody { return showKeyTo(c, k) }), err)
}

type createKeyIn struct {
	Body struct {
		Name      string    `json:"name" doc:"1 to 100 characters."`
		Scopes    []string  `json:"scopes" doc:"Scopes of the key."`
		Sites     []id.Site `json:"sites,omitempty" doc:"Ids of the sites it is restricted to. Default: all, including later ones."`
		Addresses []string  `json:"addresses,omitempty" doc:"Addresses or CIDR ranges it may be used from. Default: any." example:"[\"203.0.113.0/24\"]"`
		ExpiresAt *string   `json:"expiresAt,omitempty" format:"date-time" doc:"When it expires. Default: never."`
		TeamID    string    `json:"teamId,omitempty" doc:"Id or slug of the team that the key acts for. Requires a key of the personal account with all scopes. Default: the account of the calling key."`
		Service   bool      `json:"service,omitempty" doc:"Create a service key, which is kept when its creator leaves the team. Requires an admin of the team."`
	}
}

func (a *API) createKey(ctx context.Context, tx *db.Tx, c account.Caller, in *createKeyIn) (_ newKeyBody, did audit.Event, _ error) {
	scopes, err := account.ParseScopes(in.Body.Scopes)
	if err != nil {
		return newKeyBody{}, did, err
	}
	n := account.NewKey{Name: in.Body.Name, Scopes: scopes, Sites: in.Body.Sites, Service: in.Body.Service}
	for _, s := range in.Body.Addresses {
		p, err := account.ParseNet(s)
		if err != nil {
			return newKeyBody{}, did, err
		}
		n.Nets = append(n.Nets, p)
	}
	if in.Body.ExpiresAt != nil {
		t, err := time.Parse(time.RFC3339, *in.Body.ExpiresAt)
		if err != nil {
			return newKeyBody{}, did, fault.New(fault.Invalid, "invalid_expires_at", "Invalid key expiresAt",
				"expiresAt must be a timestamp such as 2027-01-31T12:00:00Z").Got(*in.Body.ExpiresAt)
		}
		n.Expires = db.At(t)
	}
	as := c
	if in.Body.TeamID != "" && in.Body.TeamID != c.Team && in.Body.TeamID != c.Slug {
		if as, err = a.inTeam(ctx, tx, c, in.Body.TeamID); err != nil {
			return newKeyBody{}, did, err
		}
	}
	k, secret, err := a.Accounts.CreateKeyTx(ctx, tx, as, n)
	if err == nil {
		err = a.OwnSites(ctx, tx, as, "sites", n.Sites)
	}
	did = audit.Event{Action: "key.created", Subject: string(k.ID), Detail: k.Name + " (" + k.Scopes.String() + ")"}
	if err == nil && as.Owner != c.Owner {
		err, did = a.LogIn(ctx, tx, c, as.Owner, did), audit.Logged
	}
	return newKeyBody{showKeyTo(as, k), secret}, did, err
}

// inTeam returns the caller acting for one of their teams. The caller must be a person with an all-scopes key of the
// personal account; restrictions of that key still apply.
func (a *API) inTeam(ctx context.Context, tx *db.Tx, c account.Caller, name string) (account.Caller, error) {
	t, err := a.Teams.Find(ctx, tx, c.User, name)
	if err != nil {
		return c, err
	}
	if c.Team != "" || !c.Scopes.Include(account.All) || len(c.Sites) > 0 {
		return c, contract.ErrMismatch(c, name)
	}
	u, err := a.Accounts.User(ctx, c.User)
	if err != nil {
		return c, err
	}
	as, err := a.Accounts.CallerFor(ctx, tx, u, t.Owner)
	if err != nil {
		return c, err
	}
	as.Nets, as.Expires = c.Nets, c.Expires
	if !as.MayMakeKeys() {
		return c, fault.New(fault.Forbidden, "role_required", "Your role doesn't allow this",
			"API keys of a team take the role developer or higher, in the team or on a site")
	}
	return as, nil
}

func (a *API) revokeKey(
	ctx context.Context, tx *db.Tx, c account.Caller, in *contract.ByID[account.KeyID],
) (_ contract.Message, did audit.Event, _ error) {
	did = audit.Event{Action: "key.revoked", Subject: string(in.ID)}
	return contract.Message{Message: "Key revoked"}, did, a.Accounts.RevokeKeyTx(ctx, tx, c, in.ID)
}

func showKey(k account.Key) KeyBody {
	b := KeyBody{
		ID:           k.ID,
		Name:         k.Name,
		Hint:         k.Hint,
		Scopes:       names(k.Scopes),
		Sites:        append([]id.Site{}, k.Sites...),
		Addresses:    []string{},
		ExpiresAt:    contract.When(k.Expires),
		LastUsedAt:   contract.When(k.UsedAt),
		LastUsedFrom: contract.Some(k.UsedAddr),
		CreatedAt:    k.CreatedAt.String(),
	}
	for _, p := range k.Nets {
		b.Addresses = append(b.Addresses, p.String())
	}
	return b
}

// showKeyTo shows a team's key, with its creator.
func showKeyTo(c account.Caller, k account.Key) KeyBody {
	b := showKey(k)
	if c.Team != "" {
		b.Service, b.CreatedBy = k.Service, k.ByEmail
	}
	return b
}

func names(s account.Scopes) []string {
	return contract.Each(s, func(v account.Scope) string { return string(v) })
}
