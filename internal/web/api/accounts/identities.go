package accounts

import (
	"context"
	"net/url"

	"slipway/internal/platform/db"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/audit"
	"slipway/internal/tenant/sso"
	"slipway/internal/web/api/contract"
)

// IdentityBody is an external account that signs in the user.
type IdentityBody struct {
	ID         sso.IdentityID `json:"id" example:"idn_25o5kzh3mc7yw4tn6pqd2xlfae"`
	Issuer     string         `json:"issuer" example:"https://accounts.google.com"`
	ProviderID *string        `json:"providerId" doc:"Sign-in provider that the account signs in with. Null if none has this issuer any more: the account doesn't sign in until one is added."`
	Provider   *string        `json:"provider" doc:"Name of the provider."`
	TeamID     *string        `json:"teamId" doc:"Team whose provider it is. Null: the installation's."`
	Email      *string        `json:"email" doc:"As the provider told it last. Never compared."`
	LastUsedAt *string        `json:"lastUsedAt" format:"date-time"`
	CreatedAt  string         `json:"createdAt" format:"date-time"`
}

// LinkableBody is a sign-in provider whose accounts can be linked.
type LinkableBody struct {
	ID      sso.ProviderID `json:"id" example:"google"`
	Kind    string         `json:"kind" enum:"oidc,google,microsoft,gitlab,github"`
	Name    string         `json:"name"`
	Issuer  string         `json:"issuer"`
	TeamID  *string        `json:"teamId" doc:"Team whose provider it is. Null: the installation's, or of a team that the user isn't a member of yet."`
	Linked  bool           `json:"linked" doc:"Whether an account at this provider is linked."`
	LinkURL string         `json:"linkUrl" format:"uri" doc:"Page to link an account. Open it in the browser: linking takes a signed-in session."`
}

func (a *API) identityRoutes() {
	if a.SSO == nil {
		return
	}
	r := func(path, id, summary, doc, noun string) contract.Route {
		return contract.Route{
			Path: "/account" + path, ID: id, Tag: "Account", Summary: summary, Doc: doc, Noun: noun, Scope: account.All, Person: true, Wide: true,
		}
	}
	contract.Get(a.API, r("/identities", "listIdentities", "List linked accounts",
		"Accounts at sign-in providers that sign in the user, oldest first. Requires a key of the personal account with all scopes.", ""),
		a.listIdentities)
	contract.Get(a.API, r("/providers", "listSignInProviders", "List sign-in providers",
		"Providers whose accounts the user can link: the installation's, and those of the user's teams. Requires a key of the "+
			"personal account with all scopes.", ""),
		a.listSignInProviders)
	contract.Change(a.API, "DELETE", r("/identities/{identity}", "unlinkIdentity", "Unlink an account",
		"The account no longer signs in the user, and sessions that it began end. The last way to sign in can't be removed: 409 `last_way_in`. "+
			"Requires a key of the personal account with all scopes.", "linked account"), a.unlinkIdentity)
}

// linkable returns the providers whose accounts a user may link, and the ids of the user's teams by owner.
func (a *API) linkable(ctx context.Context, user account.UserID) ([]sso.Provider, map[account.OwnerID]string, error) {
	u, err := a.Accounts.User(ctx, user)
	if err != nil {
		return nil, nil, err
	}
	teams, err := a.Teams.List(ctx, user)
	if err != nil {
		return nil, nil, err
	}
	ids := map[account.OwnerID]string{}
	for _, t := range teams {
		ids[t.Owner] = string(t.ID)
	}
	list, err := a.SSO.Linkable(ctx, u)
	return list, ids, err
}

func (a *API) listIdentities(ctx context.Context, c account.Caller, in *contract.PartIn) (contract.Data[IdentityBody], error) {
	if err := in.Check(); err != nil {
		return contract.Data[IdentityBody]{}, err
	}
	providers, teams, err := a.linkable(ctx, c.User)
	if err != nil {
		return contract.Data[IdentityBody]{}, err
	}
	list, err := a.SSO.Identities(ctx, c.User)
	return contract.Part(*in, contract.Each(list, func(i sso.Identity) IdentityBody {
		b := IdentityBody{
			ID: i.ID, Issuer: i.Issuer, Email: contract.Some(i.Email), TeamID: contract.Some(teams[i.Owner]),
			LastUsedAt: contract.When(i.UsedAt), CreatedAt: i.CreatedAt.String(),
		}
		for _, p := range providers {
			if p.Issuer == i.Issuer && p.Owner == i.Owner {
				b.ProviderID, b.Provider = contract.Some(string(p.ID)), contract.Some(p.Name)
			}
		}
		return b
	}), err)
}

func (a *API) listSignInProviders(ctx context.Context, c account.Caller, in *contract.PartIn) (contract.Data[LinkableBody], error) {
	if err := in.Check(); err != nil {
		return contract.Data[LinkableBody]{}, err
	}
	providers, teams, err := a.linkable(ctx, c.User)
	if err != nil {
		return contract.Data[LinkableBody]{}, err
	}
	own, err := a.SSO.Identities(ctx, c.User)
	return contract.Part(*in, contract.Each(providers, func(p sso.Provider) LinkableBody {
		b := LinkableBody{
			ID: p.ID, Kind: string(p.Kind), Name: p.Name, Issuer: p.Issuer, TeamID: contract.Some(teams[p.Owner]),
			LinkURL: a.BaseURL + "/account/security?link=" + url.QueryEscape(string(p.ID)),
		}
		for _, i := range own {
			b.Linked = b.Linked || i.Issuer == p.Issuer && i.Owner == p.Owner
		}
		return b
	}), err)
}

type identityIn struct {
	Identity sso.IdentityID `path:"identity"`
}

func (a *API) unlinkIdentity(
	ctx context.Context, tx *db.Tx, c account.Caller, in *identityIn,
) (_ contract.Message, did audit.Event, _ error) {
	did, err := a.SSO.UnlinkTx(ctx, tx, c.User, in.Identity)
	return contract.Message{Message: "Account unlinked"}, did, err
}
