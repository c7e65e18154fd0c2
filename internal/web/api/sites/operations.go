package sites

import (
	"context"

	"slipway/internal/tenant/site"

	"slipway/internal/tenant/account"
	"slipway/internal/tenant/operation"
	"slipway/internal/web/api/contract"
)

func (a *API) operationRoutes() {
	r := func(path, id, summary, doc string) contract.Route {
		return contract.Route{Path: path, ID: id, Tag: "Operations", Summary: summary, Doc: doc, Scope: account.SitesRead, Noun: "operation"}
	}
	contract.Get(a.API,
		r("/operations/{id}", "getOperation", "Read an operation",
			"Progress and result of long-running work other than deployments. Ended operations are kept for 30 days."),
		a.getOperation)
	contract.Get(a.API, r("/sites/{id}/operations", "listOperations", "List a site's operations", "Newest first."), a.listOperations)
}

func (a *API) getOperation(ctx context.Context, c account.Caller, in *contract.ByID[operation.ID]) (contract.OperationBody, error) {
	o, err := a.Operations.Get(ctx, c.Owner, in.ID)
	if err != nil {
		return contract.OperationBody{}, err
	}
	if o.Site == "" {
		err = c.RequireAllSites()
	} else {
		err = c.RequireSite(o.Site)
	}
	return contract.ShowOperation(o), err
}

type listOperationsIn struct {
	contract.ByID[site.ID]
	contract.PageIn
}

func (a *API) listOperations(ctx context.Context, c account.Caller, in *listOperationsIn) (contract.Page[contract.OperationBody], error) {
	p, err := in.Parse()
	if err != nil {
		return contract.Page[contract.OperationBody]{}, err
	}
	if _, err := a.Site(ctx, c, in.ID); err != nil {
		return contract.Page[contract.OperationBody]{}, err
	}
	list, total, err := a.Operations.List(ctx, c.Owner, in.ID, p.Page, p.Limit)
	return contract.Paged(contract.Each(list, contract.ShowOperation), p, total), err
}
