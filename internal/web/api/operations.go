package api

import (
	"context"
	"encoding/json"

	"slipway/internal/tenant/account"
	"slipway/internal/tenant/operation"
)

type operationBody struct {
	ID          string          `json:"id" example:"op_25o5kzh3mc7yw4tn6pqd2xlfae"`
	Kind        string          `json:"kind" example:"webhook.redeliver"`
	SiteID      *string         `json:"siteId" doc:"Null if the operation is about no site, or several."`
	Status      string          `json:"status" enum:"pending,running,success,failed,canceled"`
	Progress    *float64        `json:"progress" minimum:"0" maximum:"1" doc:"Null if unknown."`
	Message     *string         `json:"message"`
	Error       *string         `json:"error" doc:"Why it failed."`
	Result      json.RawMessage `json:"result" doc:"The result, by kind. Null until it has ended."`
	CreatedAt   string          `json:"createdAt" format:"date-time"`
	CompletedAt *string         `json:"completedAt" format:"date-time"`
}

func (a *API) operationRoutes() {
	r := func(path, id, summary, doc string) Route {
		return Route{Path: path, ID: id, Tag: "Operations", Summary: summary, Doc: doc, Scope: account.SitesRead, Noun: "operation"}
	}
	get(
		a,
		r(
			"/operations/{id}",
			"getOperation",
			"Read an operation",
			"Progress and result of long-running work other than deployments. Ended operations are kept for 30 days.",
		),
		a.getOperation,
	)
	get(a, r("/sites/{id}/operations", "listOperations", "List a site's operations", "Newest first."), a.listOperations)
}

func (a *API) getOperation(ctx context.Context, c account.Caller, in *ByID) (operationBody, error) {
	o, err := a.Operations.Get(ctx, c.Owner, operation.ID(in.ID))
	if err != nil {
		return operationBody{}, err
	}
	if o.Site == "" {
		err = c.RequireAllSites()
	} else {
		err = c.RequireSite(o.Site)
	}
	return showOperation(o), err
}

type listOperationsIn struct {
	ByID
	PageIn
}

func (a *API) listOperations(ctx context.Context, c account.Caller, in *listOperationsIn) (page[operationBody], error) {
	p, err := in.parse()
	if err != nil {
		return page[operationBody]{}, err
	}
	if _, err := a.site(ctx, c, in.ID); err != nil {
		return page[operationBody]{}, err
	}
	list, total, err := a.Operations.List(ctx, c.Owner, in.ID, p.page, p.limit)
	return paged(each(list, showOperation), p, total), err
}

func showOperation(o operation.Operation) operationBody {
	b := operationBody{
		ID:          string(o.ID),
		Kind:        o.Kind,
		SiteID:      some(o.Site),
		Status:      string(o.Status),
		Message:     some(o.Message),
		Error:       some(o.Error),
		Result:      o.Result,
		CreatedAt:   o.CreatedAt.String(),
		CompletedAt: when(o.CompletedAt),
	}
	if o.Progress >= 0 {
		b.Progress = &o.Progress
	}
	return b
}
