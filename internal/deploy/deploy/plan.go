package deploy

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"

	"slipway/internal/build/framework"
	"slipway/internal/build/release"
	"slipway/internal/deploy/deployment"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/site"
)

// plan detects the kind of project and decides how to build it.
func (d *Deployments) plan(
	ctx context.Context,
	s site.Site,
	x *deployment.Deployment,
	tree sourceTree,
	p *progress,
) (framework.Plan, error) {
	plan, err := d.planOf(ctx, s, *x, tree)
	if err != nil {
		return framework.Plan{}, err
	}
	if x.Plan, err = json.Marshal(plan); err != nil {
		return framework.Plan{}, err
	}
	x.Framework = plan.Framework
	p.Printf("info", "%s: %s", plan.Name, plan.Why)
	for _, w := range plan.Warnings {
		p.Printf("warn", "%s", w)
	}
	if plan.Runtime != framework.Static && d.c.Programs != nil && plan.Start != nil {
		return plan, d.readyPHP(ctx, plan, p)
	}
	if plan.Runtime != framework.Static {
		return framework.Plan{}, d.needsServer(plan)
	}
	return plan, nil
}

// needsServer returns the fault of an application that can't run on this server.
func (d *Deployments) needsServer(plan framework.Plan) error {
	return &fault.Error{
		Kind:    fault.Invalid,
		Message: fmt.Sprintf("This is a %s application that needs a running server", plan.Name),
		Details: cmp.Or(d.c.WhyNot,
			"there is no start command: set run.command in the site's settings, or a start script in package.json"),
	}
}

// release makes the release that the plan describes, after a build if it needs one, and returns the plan as the build
// has changed it.
func (d *Deployments) release(
	ctx context.Context,
	s site.Site,
	x *deployment.Deployment,
	tree sourceTree,
	plan framework.Plan,
	p *progress,
) (release.Sealed, framework.Plan, error) {
	if len(plan.Install)+len(plan.Build) > 0 || plan.Runtime != framework.Static {
		return d.built(ctx, s, x, tree, plan, p)
	}
	rel, err := d.publishCommit(ctx, s, tree, plan, p)
	return rel, plan, err
}

// readyPHP makes sure, before a build, that the plan's PHP version is available.
func (d *Deployments) readyPHP(ctx context.Context, plan framework.Plan, p *progress) error {
	if plan.Runtime != framework.PHP || d.c.Programs == nil {
		return nil
	}
	say := func(format string, args ...any) { p.Printf("info", format, args...) }
	version, lease, err := d.c.Builds.Roots().PHP(ctx, plan.Asks("php"), plan.Extensions(), say)
	if err != nil {
		return fmt.Errorf("choose PHP: %w", err)
	}
	defer lease.Release()
	p.Printf("info", "PHP %s%s", version.Number, lease.From())
	return nil
}
