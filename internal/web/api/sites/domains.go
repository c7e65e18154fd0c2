package sites

import (
	"context"
	"slices"

	"slipway/internal/tenant/site"

	"slipway/internal/platform/db"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/audit"
	"slipway/internal/tenant/domain"
	"slipway/internal/web/api/contract"
)

type domainBody struct {
	ID           domain.ID       `json:"id" example:"dom_25o5kzh3mc7yw4tn6pqd2xlfae"`
	Name         string          `json:"name" example:"shop.example.com"`
	Status       string          `json:"status" enum:"pending,active,failed"`
	StatusReason *string         `json:"statusReason" doc:"Why it is not active, or will stop being active."`
	SSLStatus    string          `json:"sslStatus" enum:"pending,active,failed,expired"`
	SiteID       site.ID         `json:"siteId"`
	Primary      bool            `json:"primary"`
	RedirectTo   *string         `json:"redirectTo" doc:"Host that visitors are redirected to. Null: no redirect."`
	Verification []recordBody    `json:"verification" doc:"Records that verify ownership; one valid record is enough."`
	DNS          []recordBody    `json:"dns" doc:"Records that send traffic to Slipway, and for a wildcard the record that its certificate needs."`
	Challenge    *recordBody     `json:"challenge" doc:"Optional record that lets a verified domain get its certificate, and be served, before its other records point to Slipway. Null for wildcards, whose record is in dns, and where the operator hasn't configured DNS challenges."`
	Problems     []dnsProblem    `json:"problems" doc:"Other problems."`
	Certificate  certificateBody `json:"certificate"`
	CheckedAt    *string         `json:"checkedAt" format:"date-time"`
	NextCheckAt  *string         `json:"nextCheckAt" format:"date-time" doc:"Time of the next DNS check."`
	CreatedAt    string          `json:"createdAt" format:"date-time"`
	UpdatedAt    string          `json:"updatedAt" format:"date-time"`
}

type dnsProblem struct {
	Code    string `json:"code" doc:"caa, ipv6_mismatch, mixed_addresses, cdn, wrong_target, no_answer, foreign_token, challenge, no_wildcards, redirect_target, wrong_name, hidden_wildcard, …"`
	Message string `json:"message"`
}

type recordBody struct {
	Type    string   `json:"type" enum:"TXT,CNAME,A,AAAA"`
	Name    string   `json:"name"`
	Value   string   `json:"value" doc:"The expected value."`
	Current []string `json:"current" doc:"The current value."`
	Status  string   `json:"status" enum:"pending,valid,invalid"`
	Reason  *string  `json:"reason"`
	TTL     *uint32  `json:"ttl,omitempty" doc:"TTL of the current value in seconds, as the domain's name servers have it. Absent if unknown, and for records that don't send traffic."`
}

type certificateBody struct {
	Issuer        *string `json:"issuer"`
	NotBefore     *string `json:"notBefore" format:"date-time"`
	ExpiresAt     *string `json:"expiresAt" format:"date-time"`
	LastError     *string `json:"lastError"`
	NextAttemptAt *string `json:"nextAttemptAt" format:"date-time"`
}

type availability struct {
	Domain    string `json:"domain" example:"example.com"`
	Available bool   `json:"available"`
	Price     int    `json:"price" doc:"Price per year, in whole units of the currency."`
	Currency  string `json:"currency" example:"USD"`
	Source    string `json:"source" enum:"local,rdap,dns" doc:"Source of the result: this installation, the registry or DNS."`
}

func (a *API) domainRoutes() {
	r := func(path, id, summary, doc string, s account.Scope) contract.Route {
		return contract.Route{Path: path, ID: id, Tag: "Domains", Summary: summary, Doc: doc, Scope: s, Noun: "domain"}
	}
	contract.Get(a.API, r("/domains", "listDomains", "List domains", "All domains of the user's sites, by name.", account.DomainsRead),
		a.listDomains)
	check := r("/domains/check", "checkDomain", "Check a domain's availability",
		"Whether the domain can be registered or transferred, and its price. Responds within a few seconds.",
		account.DomainsRead)
	check.Noun = ""
	contract.Ask(a.API, check, a.checkDomain)
	contract.Get(a.API, r("/sites/{id}/domains", "listSiteDomains", "List a site's domains", "By name.", account.DomainsRead),
		a.listSiteDomains)
	create := r("/sites/{id}/domains", "createDomain", "Add a domain to a site",
		"The domain isn't served and gets no certificate until one of the records in `verification` proves ownership. `dns` lists "+
			"the records that send traffic to Slipway. Checks run automatically; `verify` runs one immediately.",
		account.DomainsWrite)
	create.Status = 201
	create.Limited = true
	contract.PostPrepared(a.API, create, a.prepareDomain, a.createDomain)
	contract.Get(a.API, r("/domains/{id}", "getDomain", "Read a domain", "", account.DomainsRead), a.getDomain)
	contract.Change(a.API, "PATCH",
		r("/domains/{id}", "updateDomain", "Change a domain",
			"Changes the given fields. With `siteId` the domain moves to another site without interruption.",
			account.DomainsWrite),
		a.updateDomain)
	contract.Change(a.API, "DELETE",
		r("/domains/{id}", "deleteDomain", "Remove a domain",
			"The domain is no longer served once the response arrives. For 30 days, another account can verify a previously verified "+
				"name only with the TXT record.", account.DomainsWrite),
		a.deleteDomain)
	contract.Ask(a.API,
		r("/domains/{id}/verify", "verifyDomain", "Check a domain now",
			"Checks DNS and returns the result within about 10 seconds. A failed domain becomes pending again.",
			account.DomainsWrite),
		a.verifyDomain)
}

// domain returns a domain that the caller may access.
func (a *API) domain(ctx context.Context, r db.Reader, c account.Caller, id domain.ID) (domain.Domain, error) {
	d, err := a.Domains.Get(ctx, r, c.Owner, id)
	if err != nil {
		return d, err
	}
	return d, c.RequireSite(d.SiteID)
}

func (a *API) listSiteDomains(ctx context.Context, c account.Caller, in *contract.PartOf[site.ID]) (contract.Data[domainBody], error) {
	if _, err := a.Site(ctx, c, in.ID); err != nil {
		return contract.Data[domainBody]{}, err
	}
	list, err := a.Domains.ForSite(ctx, c.Owner, in.ID)
	return contract.Part(in.PartIn, contract.Each(list, showDomain), err)
}

type createDomainIn struct {
	contract.ByID[site.ID]
	Body struct {
		Name       string `json:"name" doc:"A host name, or a wildcard such as *.example.com." example:"shop.example.com"`
		RedirectTo string `json:"redirectTo,omitempty" doc:"Redirect visitors to this host."`
		Primary    bool   `json:"primary,omitempty" doc:"Whether this is the site's primary domain. The first eligible domain is."`
	}
}

func (a *API) prepareDomain(ctx context.Context, c account.Caller, in *createDomainIn) (domain.NewDomain, error) {
	if _, err := a.Site(ctx, c, in.ID); err != nil {
		return domain.NewDomain{}, err
	}
	b := in.Body
	return a.Domains.Prepare(ctx, c.Owner, domain.NewDomain{Name: b.Name, RedirectTo: b.RedirectTo, Primary: b.Primary})
}

func (a *API) createDomain(
	ctx context.Context,
	tx *db.Tx,
	c account.Caller,
	in *createDomainIn,
	n domain.NewDomain,
) (_ domainBody, did audit.Event, _ error) {
	d, err := a.Domains.CreateTx(ctx, tx, c.Owner, in.ID, n)
	did = audit.Event{Action: "domain.added", Subject: string(d.ID), Detail: d.Name}
	return showDomain(d), did, err
}

func (a *API) getDomain(ctx context.Context, c account.Caller, in *contract.ByID[domain.ID]) (domainBody, error) {
	d, err := a.domain(ctx, a.DB, c, in.ID)
	return showDomain(d), err
}

type updateDomainIn struct {
	contract.ByID[domain.ID]
	Body struct {
		SiteID     *site.ID `json:"siteId,omitempty" doc:"Move the domain to another site of the same owner, without interruption."`
		RedirectTo *string  `json:"redirectTo,omitempty" nullable:"true" doc:"Null or empty: no redirect."`
		Primary    *bool    `json:"primary,omitempty"`
	}
}

func (a *API) updateDomain(
	ctx context.Context,
	tx *db.Tx,
	c account.Caller,
	in *updateDomainIn,
) (_ domainBody, did audit.Event, _ error) {
	now, err := a.domain(ctx, tx, c, in.ID)
	if err != nil {
		return domainBody{}, did, err
	}
	u, shown, changeable := domain.Update(in.Body), showDomain(now), []string{"siteId", "primary", "redirectTo"}
	if contract.IsNull(ctx, "redirectTo") {
		u.RedirectTo, shown.RedirectTo, changeable = new(string), nil, changeable[:2]
	}
	if err := contract.CheckPatch(ctx, "domain", changeable, shown, map[string]string{
		"name": "add the other name as a domain of its own",
	}); err != nil {
		return domainBody{}, did, err
	}
	if u.SiteID != nil {
		if err := a.Allowed(ctx, tx, c, *u.SiteID); err != nil {
			return domainBody{}, did, err
		}
	}
	d, err := a.Domains.UpdateTx(ctx, tx, c.Owner, in.ID, u)
	did = audit.Event{Action: "domain.updated", Subject: string(in.ID), Detail: d.Name}
	return showDomain(d), did, err
}

func (a *API) deleteDomain(
	ctx context.Context, tx *db.Tx, c account.Caller, in *contract.ByID[domain.ID],
) (_ contract.Message, did audit.Event, _ error) {
	d, err := a.domain(ctx, tx, c, in.ID)
	if err != nil {
		return contract.Message{}, did, err
	}
	did = audit.Event{Action: "domain.removed", Subject: string(in.ID), Detail: d.Name}
	_, err = a.Domains.DeleteTx(ctx, tx, c.Owner, in.ID)
	return contract.Message{Message: "Domain removed"}, did, err
}

func (a *API) verifyDomain(ctx context.Context, c account.Caller, in *contract.ByID[domain.ID]) (domainBody, error) {
	if _, err := a.domain(ctx, a.DB, c, in.ID); err != nil {
		return domainBody{}, err
	}
	d, err := a.Domains.Verify(ctx, c.Owner, in.ID)
	return showDomain(d), err
}

func (a *API) listDomains(ctx context.Context, c account.Caller, in *contract.PartIn) (contract.Data[domainBody], error) {
	list, err := a.Domains.List(ctx, c.Owner)
	list = slices.DeleteFunc(list, func(d domain.Domain) bool { return !c.Allows(d.SiteID) })
	return contract.Part(*in, contract.Each(list, showDomain), err)
}

type checkDomainIn struct {
	Body struct {
		Domain string `json:"domain" example:"example.com"`
	}
}

func (a *API) checkDomain(ctx context.Context, _ account.Caller, in *checkDomainIn) (availability, error) {
	v, err := a.Domains.Check(ctx, in.Body.Domain)
	return availability(v), err
}

func showDomain(d domain.Domain) domainBody {
	record := func(r domain.Record) recordBody {
		out := recordBody{r.Type, r.Name, r.Required, append([]string{}, r.Current...), string(r.Status), contract.Some(r.Reason), nil}
		if r.TTL > 0 {
			out.TTL = &r.TTL
		}
		return out
	}
	c := d.Certificate
	var challenge *recordBody
	if d.Challenge != nil {
		r := record(*d.Challenge)
		challenge = &r
	}
	return domainBody{
		ID:           d.ID,
		Name:         d.Name,
		Status:       string(d.Status),
		StatusReason: contract.Some(d.Reason),
		SSLStatus:    string(d.SSL),
		SiteID:       d.SiteID,
		Primary:      d.Primary,
		RedirectTo:   contract.Some(d.RedirectTo),
		Verification: contract.Each(d.Verification, record),
		DNS:          contract.Each(d.DNS, record),
		Challenge:    challenge,
		Problems:     contract.Each(d.Problems, func(p domain.Problem) dnsProblem { return dnsProblem(p) }),
		Certificate: certificateBody{
			contract.Some(c.Issuer), contract.When(c.NotBefore), contract.When(c.ExpiresAt),
			contract.Some(c.LastError), contract.When(c.NextAttemptAt),
		},
		CheckedAt:   contract.When(d.CheckedAt),
		NextCheckAt: contract.When(d.NextCheckAt),
		CreatedAt:   d.CreatedAt.String(),
		UpdatedAt:   d.UpdatedAt.String(),
	}
}
