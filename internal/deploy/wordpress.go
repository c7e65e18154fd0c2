package deploy

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"

	"slipway/internal/bundle"
	"slipway/internal/db"
	"slipway/internal/fault"
	"slipway/internal/framework"
	"slipway/internal/release"
	"slipway/internal/site"
)

// WordPress is how sites of that type come to run. Both functions may be called again for
// the same site.
type WordPress struct {
	// Prepare returns what the site runs from, with its database made.
	Prepare func(ctx context.Context, s site.Site, say func(format string, args ...any)) (bundle.ID, error)
	// Install installs it in the deployment's program, which runs, where it isn't yet.
	Install func(ctx context.Context, s site.Site, deployment string, say func(format string, args ...any)) error
}

// runWordPress brings a WordPress site to life, or onto the core that new sites get: its
// program starts beside the one that serves, and the installation runs in it before any
// visitor reaches it.
func (d *Deployments) runWordPress(ctx context.Context, s site.Site, x *Deployment, p *progress) error {
	if d.c.WordPress.Prepare == nil || d.c.StartProgram == nil {
		return &fault.Error{Kind: fault.Unavailable, Message: "WordPress can't run on this server", Details: cmp.Or(d.c.WhyNot, "this node doesn't have the worker role")}
	}
	if s.Repository != "" {
		return &fault.Error{Kind: fault.Invalid, Message: "A WordPress site can't be deployed from a repository yet", Details: "create it without one, and upload themes and plugins in wp-admin"}
	}
	say := func(format string, args ...any) { p.Printf("info", format, args...) }
	p.enter("prepare", Building)
	id, err := d.c.WordPress.Prepare(ctx, s, say)
	if err != nil {
		return err
	}
	plan := framework.Plan{Framework: "wordpress", Name: "WordPress", Runtime: framework.WordPress, Why: "the site is of this type", Start: &framework.Start{}}
	x.Bundle, x.Runtime, x.Framework = id, plan.Runtime, plan.Framework
	if x.Plan, err = json.Marshal(plan); err != nil {
		return err
	}
	// On record before it runs, as for every program.
	err = p.commit(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, `UPDATE deployments SET bundle = $2, runtime = $3, plan = $4 WHERE id = $1`, x.ID, x.Bundle, x.Runtime, string(x.Plan))
		return err
	})
	if err != nil {
		return fmt.Errorf("note bundle: %w", err)
	}
	rel, err := d.publish(ctx, s, func(*release.Writer) error { return nil })
	if err != nil {
		return err
	}
	done, err := d.startProgram(ctx, *x, plan, p)
	if err != nil {
		return err
	}
	defer done() // once the site serves it
	p.enter("install", Deploying)
	if err := d.c.WordPress.Install(ctx, s, string(x.ID), say); err != nil {
		for _, line := range d.lastLines(ctx, *x) {
			p.Printf("error", "%s", line)
		}
		return err
	}
	p.enter("activate", Deploying)
	return d.activate(ctx, *x, rel, plan, false, p)
}
