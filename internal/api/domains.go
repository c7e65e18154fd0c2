package api

import (
	"context"

	"slipway/internal/account"
	"slipway/internal/domain"
)

type domainBody struct {
	ID           string          `json:"id" example:"dom_25o5kzh3mc7yw4tn6pqd2xlfae"`
	Name         string          `json:"name" example:"shop.example.com"`
	Status       string          `json:"status" enum:"pending,active,failed"`
	StatusReason *string         `json:"statusReason" doc:"Why it is not active, in words."`
	SSLStatus    string          `json:"sslStatus" enum:"pending,active,failed,expired"`
	SiteID       string          `json:"siteId"`
	Primary      bool            `json:"primary"`
	RedirectTo   *string         `json:"redirectTo" doc:"Where visitors are sent; null when it serves the site."`
	Verification []recordBody    `json:"verification" doc:"How ownership is proven: one valid record is enough."`
	DNS          []recordBody    `json:"dns" doc:"Where the name must point."`
	Problems     []dnsProblem    `json:"problems" doc:"What else stands in the way."`
	Certificate  certificateBody `json:"certificate"`
	CheckedAt    *string         `json:"checkedAt" format:"date-time"`
	CreatedAt    string          `json:"createdAt" format:"date-time"`
	UpdatedAt    string          `json:"updatedAt" format:"date-time"`
}

type dnsProblem struct {
	Code    string `json:"code" doc:"caa, ipv6_mismatch, mixed_addresses, cdn, wrong_target, no_answer, foreign_token, …"`
	Message string `json:"message"`
}

type recordBody struct {
	Type    string   `json:"type" enum:"TXT,CNAME,A,AAAA"`
	Name    string   `json:"name"`
	Value   string   `json:"value" doc:"What it should hold."`
	Current []string `json:"current" doc:"What was found."`
	Status  string   `json:"status" enum:"pending,valid,invalid"`
	Reason  *string  `json:"reason"`
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
	Price     int    `json:"price" doc:"A year, in whole units of the currency."`
	Currency  string `json:"currency" example:"USD"`
	Source    string `json:"source" enum:"local,rdap,dns" doc:"Who answered: this installation, the registry, or the DNS."`
}

func (a *API) domainRoutes() {
	get(a, Route{Path: "/domains", ID: "listDomains", Tag: "Domains", Scope: account.DomainsRead, Summary: "List domains",
		Doc: "All domains of the user's sites, by name."}, a.listDomains)
	ask(a, Route{Path: "/domains/check", ID: "checkDomain", Tag: "Domains", Scope: account.DomainsRead, Summary: "Check a domain's availability",
		Doc: "Whether it can be registered or transferred, and for how much. Answers within a few seconds whatever the registry does."}, a.checkDomain)
}

func (a *API) listDomains(ctx context.Context, c account.Caller, _ *struct{}) (data[domainBody], error) {
	list, err := a.Domains.List(ctx, c.User)
	out := data[domainBody]{[]domainBody{}}
	for _, d := range list {
		if c.Allows(d.SiteID) {
			out.Data = append(out.Data, showDomain(d))
		}
	}
	return out, err
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
		return recordBody{r.Type, r.Name, r.Required, append([]string{}, r.Current...), string(r.Status), some(r.Reason)}
	}
	c := d.Certificate
	return domainBody{ID: string(d.ID), Name: d.Name, Status: string(d.Status), StatusReason: some(d.Reason), SSLStatus: string(d.SSL), SiteID: d.SiteID,
		Primary: d.Primary, RedirectTo: some(d.RedirectTo), Verification: each(d.Verification, record), DNS: each(d.DNS, record),
		Problems:    each(d.Problems, func(p domain.Problem) dnsProblem { return dnsProblem(p) }),
		Certificate: certificateBody{some(c.Issuer), when(c.NotBefore), when(c.ExpiresAt), some(c.LastError), when(c.NextAttemptAt)},
		CheckedAt:   when(d.CheckedAt), CreatedAt: d.CreatedAt.String(), UpdatedAt: d.UpdatedAt.String()}
}
