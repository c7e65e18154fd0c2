package teams

import (
	"context"

	"slipway/internal/platform/db"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/audit"
	"slipway/internal/tenant/sso"
	"slipway/internal/web/api/contract"
)

// ProviderBody is a team's sign-in provider, without its secret.
type ProviderBody struct {
	ID          sso.ProviderID `json:"id" example:"sso_25o5kzh3mc7yw4tn6pqd2xlfae"`
	Kind        string         `json:"kind" enum:"oidc,google,microsoft,gitlab"`
	Name        string         `json:"name" doc:"Name on the sign-in button."`
	Issuer      string         `json:"issuer"`
	ClientID    string         `json:"clientId"`
	RedirectURI string         `json:"redirectUri" doc:"Redirect URI to register at the provider."`
	JoinRole    *string        `json:"joinRole" doc:"Role of people who join the team by signing in: developer, contributor or viewer. Null: they need an invitation."`
	Domains     []SSODomain    `json:"domains"`
	CreatedAt   string         `json:"createdAt" format:"date-time"`
}

// SSODomain is an email domain of a team's provider, which signs in its addresses once verified.
type SSODomain struct {
	ID         sso.DomainID `json:"id" example:"sdm_25o5kzh3mc7yw4tn6pqd2xlfae"`
	Domain     string       `json:"domain"`
	Status     string       `json:"status" enum:"pending,verified,missing" doc:"missing: verified before, but the TXT record wasn't found at the last check. Nobody can join by this domain until it is there again; after 3 days the domain is no longer verified."`
	Record     string       `json:"record" doc:"Name of the TXT record."`
	Value      string       `json:"value" doc:"Value of the TXT record."`
	VerifiedAt *string      `json:"verifiedAt" format:"date-time"`
	CheckedAt  *string      `json:"checkedAt" format:"date-time"`
	Problem    *string      `json:"problem" doc:"What the last check found wrong. Null: nothing."`
}

func (a *API) teamSSORoutes() {
	if a.SSO == nil {
		return
	}
	r := func(path, id, summary, doc string) contract.Route {
		return contract.Route{
			Path: "/teams/{id}/sso" + path, ID: id, Tag: "Single sign-on", Summary: summary, Doc: doc, Scope: account.TeamWrite,
			Noun: "sign-in provider",
			Role: account.RoleOwner, Wide: true,
		}
	}
	list := r("", "listTeamProviders", "List sign-in providers", "A team's providers with their email domains, by name.")
	list.Role = ""
	contract.Get(a.API, list, a.listTeamProviders)
	create := r("", "createTeamProvider", "Add a sign-in provider",
		"An issuer of OpenID Connect that members sign in with. Register `redirectUri` there, then add the email domains of your "+
			"team. Requires an owner. A team has at most 3 providers.")
	create.Status = 201
	contract.Post(a.API, create, a.createTeamProvider)
	contract.Change(a.API, "PATCH", r("/{provider}", "updateTeamProvider", "Change a sign-in provider",
		"The issuer can't be changed: linked accounts belong to it. Requires an owner."),
		a.updateTeamProvider)
	contract.Change(a.API, "DELETE", r("/{provider}", "deleteTeamProvider", "Delete a sign-in provider",
		"Its domains are removed, and sessions that began with it end. Linked accounts work again when a provider with the same "+
			"issuer is added. Requires an owner."), a.deleteTeamProvider)
	claim := r("/{provider}/domains", "addTeamDomain", "Add an email domain",
		"The provider speaks for addresses of the domain once the TXT record `record` with the value `value` was found. Domains "+
			"where anybody can get an address are refused.")
	claim.Status, claim.Noun = 201, "email domain"
	contract.Post(a.API, claim, a.addTeamDomain)
	check := r("/{provider}/domains/{domain}/verify", "verifyTeamDomain", "Check an email domain now",
		"Looks up the TXT record. Checks also run automatically.")
	contract.PostPrepared(a.API, check, a.lookAtTeamDomain, a.verifyTeamDomain)
	contract.Change(a.API, "DELETE", r("/{provider}/domains/{domain}", "deleteTeamDomain", "Remove an email domain",
		"Members who linked their account can still sign in."), a.deleteTeamDomain)
}

func (a *API) listTeamProviders(ctx context.Context, c account.Caller, in *contract.PartOf[string]) (contract.Data[ProviderBody], error) {
	if err := a.own(ctx, c, in.ID); err != nil {
		return contract.Data[ProviderBody]{}, err
	}
	list, err := a.SSO.OfTeam(ctx, c.Owner)
	if err != nil {
		return contract.Data[ProviderBody]{}, err
	}
	domains, err := a.SSO.Domains(ctx, c.Owner)
	return contract.Part(in.PartIn, contract.Each(list, func(p sso.Provider) ProviderBody { return a.showProvider(p, domains) }), err)
}

type createTeamProviderIn struct {
	contract.ByID[string]
	Body struct {
		Kind         string  `json:"kind" enum:"oidc,google,microsoft,gitlab" doc:"oidc: any other issuer, such as Okta, Keycloak, Authentik or Zitadel."`
		Name         string  `json:"name,omitempty" doc:"1 to 40 characters. Default: the name of the kind."`
		Issuer       string  `json:"issuer,omitempty" doc:"Exactly as the discovery document names it. Not needed for google, microsoft and gitlab.com." example:"https://acme.okta.com"`
		Tenant       string  `json:"tenant,omitempty" doc:"For microsoft: the directory (tenant) ID."`
		ClientID     string  `json:"clientId"`
		ClientSecret string  `json:"clientSecret" doc:"Stored encrypted, and never returned."`
		JoinRole     *string `json:"joinRole,omitempty" enum:"developer,contributor,viewer" doc:"Role of people who join the team by signing in. Default: they need an invitation."`
	}
}

func (a *API) createTeamProvider(
	ctx context.Context, tx *db.Tx, c account.Caller, in *createTeamProviderIn,
) (_ ProviderBody, did audit.Event, _ error) {
	if err := a.own(ctx, c, in.ID); err != nil {
		return ProviderBody{}, did, err
	}
	b := in.Body
	p, err := a.SSO.CreateForTx(ctx, tx, c.Owner, sso.NewTeamProvider{
		Kind: sso.Kind(b.Kind), Name: b.Name, Issuer: b.Issuer, Tenant: b.Tenant, ClientID: b.ClientID, Secret: sso.Secret(b.ClientSecret),
		JoinRole: joinRole(b.JoinRole),
	})
	return a.showProvider(p, nil), audit.Event{Action: "sso_provider.added", Subject: string(p.ID), Detail: p.Issuer}, err
}

// joinRole is an optional role.
func joinRole(r *string) account.Role {
	if r == nil {
		return ""
	}
	return account.Role(*r)
}

// ProviderIn is the input of operations on one provider of a team.
type ProviderIn struct {
	contract.ByID[string]
	Provider sso.ProviderID `path:"provider"`
}

type updateTeamProviderIn struct {
	ProviderIn
	Body struct {
		Name         *string `json:"name,omitempty"`
		ClientID     *string `json:"clientId,omitempty"`
		ClientSecret *string `json:"clientSecret,omitempty"`
		JoinRole     *string `json:"joinRole,omitempty" enum:"developer,contributor,viewer" nullable:"true" doc:"Null: people need an invitation."`
	}
}

func (a *API) updateTeamProvider(
	ctx context.Context, tx *db.Tx, c account.Caller, in *updateTeamProviderIn,
) (_ ProviderBody, did audit.Event, _ error) {
	if err := a.own(ctx, c, in.ID); err != nil {
		return ProviderBody{}, did, err
	}
	id := in.Provider
	p, err := a.SSO.TeamProvider(ctx, tx, c.Owner, id)
	if err != nil {
		return ProviderBody{}, did, err
	}
	b := in.Body
	if err := contract.CheckPatch(ctx, "sign-in provider", []string{"name", "clientId", "clientSecret", "joinRole"}, a.showProvider(p, nil),
		map[string]string{"domains": "use POST /teams/:id/sso/:provider/domains", "issuer": "add a provider with the other issuer"}); err != nil {
		return ProviderBody{}, did, err
	}
	change := sso.TeamProviderPatch{
		Name: b.Name, ClientID: b.ClientID, Secret: (*sso.Secret)(b.ClientSecret),
		JoinRole: (*account.Role)(b.JoinRole),
	}
	if contract.IsNull(ctx, "joinRole") {
		change.JoinRole = new(account.Role)
	}
	if p, err = a.SSO.ChangeForTx(ctx, tx, c.Owner, id, change); err != nil {
		return ProviderBody{}, did, err
	}
	out, err := a.providerTx(ctx, tx, c, p)
	return out, audit.Event{Action: "sso_provider.updated", Subject: string(p.ID), Detail: p.Name}, err
}

func (a *API) deleteTeamProvider(
	ctx context.Context, tx *db.Tx, c account.Caller, in *ProviderIn,
) (_ contract.Message, did audit.Event, _ error) {
	if err := a.own(ctx, c, in.ID); err != nil {
		return contract.Message{}, did, err
	}
	p, _, err := a.SSO.DeleteForTx(ctx, tx, c.Owner, in.Provider)
	return contract.Message{Message: "Provider deleted"}, audit.Event{
		Action: "sso_provider.removed", Subject: string(p.ID),
		Detail: p.Issuer,
	}, err
}

type addTeamDomainIn struct {
	ProviderIn
	Body struct {
		Domain string `json:"domain" doc:"The part of your addresses after the @. Subdomains are added on their own." example:"acme.com"`
	}
}

func (a *API) addTeamDomain(ctx context.Context, tx *db.Tx, c account.Caller, in *addTeamDomainIn) (_ SSODomain, did audit.Event, _ error) {
	if err := a.own(ctx, c, in.ID); err != nil {
		return SSODomain{}, did, err
	}
	d, err := a.SSO.ClaimTx(ctx, tx, c.Owner, in.Provider, in.Body.Domain)
	return showSSODomain(d), audit.Event{Action: "sso_domain.added", Subject: string(d.ID), Detail: d.Name}, err
}

// TeamDomainIn is the input of operations on one email domain.
type TeamDomainIn struct {
	ProviderIn
	Domain sso.DomainID `path:"domain"`
}

// lookedAt is the DNS content at a domain's verification record.
type lookedAt struct {
	id    sso.DomainID
	found []string
	err   error
}

func (a *API) lookAtTeamDomain(ctx context.Context, c account.Caller, in *TeamDomainIn) (lookedAt, error) {
	if err := a.own(ctx, c, in.ID); err != nil {
		return lookedAt{}, err
	}
	d, err := a.SSO.Domain(ctx, a.DB, c.Owner, in.Provider, in.Domain)
	if err != nil {
		return lookedAt{}, err
	}
	found, err := a.SSO.Look(ctx, d)
	return lookedAt{d.ID, found, err}, nil
}

func (a *API) verifyTeamDomain(
	ctx context.Context, tx *db.Tx, _ account.Caller, _ *TeamDomainIn, l lookedAt,
) (_ SSODomain, did audit.Event, _ error) {
	d, err := a.SSO.VerifyTx(ctx, tx, l.id, l.found, l.err)
	return showSSODomain(d), audit.Event{Action: "sso_domain.checked", Subject: string(d.ID), Detail: d.Name}, err
}

func (a *API) deleteTeamDomain(
	ctx context.Context, tx *db.Tx, c account.Caller, in *TeamDomainIn,
) (_ contract.Message, did audit.Event, _ error) {
	if err := a.own(ctx, c, in.ID); err != nil {
		return contract.Message{}, did, err
	}
	d, err := a.SSO.UnclaimTx(ctx, tx, c.Owner, in.Provider, in.Domain)
	return contract.Message{Message: "Domain removed"}, audit.Event{Action: "sso_domain.removed", Subject: string(d.ID), Detail: d.Name}, err
}

func (a *API) providerTx(ctx context.Context, tx *db.Tx, c account.Caller, p sso.Provider) (ProviderBody, error) {
	domains, err := a.SSO.DomainsTx(ctx, tx, c.Owner)
	return a.showProvider(p, domains), err
}

func (a *API) showProvider(p sso.Provider, domains []sso.Domain) ProviderBody {
	b := ProviderBody{
		ID: p.ID, Kind: string(p.Kind), Name: p.Name, Issuer: p.Issuer, ClientID: p.ClientID, RedirectURI: a.SSO.Callback(p.ID),
		JoinRole: contract.Some(string(p.JoinRole)), Domains: []SSODomain{}, CreatedAt: p.CreatedAt.String(),
	}
	for _, d := range domains {
		if d.Provider == p.ID {
			b.Domains = append(b.Domains, showSSODomain(d))
		}
	}
	return b
}

func showSSODomain(d sso.Domain) SSODomain {
	return SSODomain{
		ID: d.ID, Domain: d.Name, Status: d.Status(), Record: d.Record(), Value: d.Token, VerifiedAt: contract.When(d.VerifiedAt),
		CheckedAt: contract.When(d.CheckedAt), Problem: contract.Some(d.Problem),
	}
}
