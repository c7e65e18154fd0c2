package deploy

import (
	"context"
	"encoding/json"
	"fmt"

	"slipway/internal/build/framework"
	"slipway/internal/deploy/project"
	"slipway/internal/platform/db"
	"slipway/internal/tenant/site"
)

// CheckInstances refuses several instances if the site's live deployment has storage.
func (d *Deployments) CheckInstances(ctx context.Context, r db.Reader, s site.Site) error {
	if s.Run.Instances == nil || s.LiveDeployment == "" {
		return nil
	}
	x, err := d.ByID(ctx, r, s.LiveDeployment)
	if err != nil || len(x.Plan) == 0 {
		return err
	}
	var plan framework.Plan
	if err := json.Unmarshal(x.Plan, &plan); err != nil {
		return fmt.Errorf("read plan of %s: %w", x.ID, err)
	}
	return project.CheckInstances(s.Run, plan)
}
