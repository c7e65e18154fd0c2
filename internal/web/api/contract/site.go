package contract

import (
	"context"
	"fmt"
	"slices"

	"slipway/internal/deploy/deployment"
	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/site"
)

// Triggered is the answer of operations that trigger a deployment.
type Triggered struct {
	Message      string        `json:"message"`
	DeploymentID deployment.ID `json:"deploymentId" example:"dep_25o5kzh3mc7yw4tn6pqd2xlfae"`
	Status       string        `json:"status" example:"pending"`
}

// Site returns a site that the caller may access.
func (a *API) Site(ctx context.Context, c account.Caller, id site.ID) (site.Site, error) {
	s, err := a.Sites.Get(ctx, c.Owner, id)
	if err != nil {
		return s, err
	}
	return s, c.RequireSite(id)
}

// Allowed checks in a transaction that the site exists and the caller may access it.
func (a *API) Allowed(ctx context.Context, tx *db.Tx, c account.Caller, id site.ID) error {
	if len(c.Sites) == 0 {
		return nil // the service checks the owner
	}
	if _, err := a.Sites.GetTx(ctx, tx, c.Owner, id); err != nil {
		return err
	}
	return c.RequireSite(id)
}

// MayDeploy returns a fault for a production deployment if the caller may only deploy previews.
func MayDeploy(c account.Caller, d deployment.Deployment) error {
	if d.Target == deployment.Production {
		return c.RequireOn(account.DeploymentsWrite, d.Site)
	}
	return nil
}

// maxNamed caps the sites in a request: each is looked up in a transaction that blocks others.
const maxNamed = 100

// OwnSites refuses sites in a field that aren't the caller's.
func (a *API) OwnSites(ctx context.Context, tx *db.Tx, c account.Caller, field string, ids []site.ID) error {
	ids = slices.Compact(slices.Sorted(slices.Values(ids)))
	if len(ids) > maxNamed {
		return fault.New(fault.Invalid, "invalid_"+Snake(field), "Too many sites in "+field,
			fmt.Sprintf("at most %d; leave it out for all sites", maxNamed))
	}
	for _, id := range ids {
		if _, err := a.Sites.GetTx(ctx, tx, c.Owner, id); fault.Is(err, fault.NotFound) {
			return fault.New(fault.Invalid, "invalid_"+Snake(field), "Unknown site in "+field,
				field+" holds ids of your sites").Got(id)
		} else if err != nil {
			return err
		}
	}
	return nil
}
