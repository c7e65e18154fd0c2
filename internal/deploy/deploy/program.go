package deploy

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"slipway/internal/build/build"
	"slipway/internal/build/bundle"
	"slipway/internal/build/framework"
	"slipway/internal/build/publish"
	"slipway/internal/build/release"
	"slipway/internal/deploy/deployment"
	"slipway/internal/deploy/project"
	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/job"
	"slipway/internal/tenant/site"
)

// runRelease runs the release command, once for a deployment: one that succeeded before a
// crash is not repeated.
func (d *Deployments) runRelease(ctx context.Context, x deployment.Deployment, plan framework.Plan, p *progress) error {
	if plan.Release == nil {
		return nil
	}
	p.enter("release", deployment.Deploying)
	var at db.Time
	if err := d.c.DB.QueryRow(ctx, `SELECT released_at FROM deployments WHERE id = $1`, x.ID).Scan(&at); err != nil {
		return fmt.Errorf("read release command: %w", err)
	}
	if at != 0 {
		p.Printf("info", "The release command has succeeded before")
		return nil
	}
	p.Printf("info", "$ %s", plan.Release)
	err := d.c.Programs.Release(ctx, x.ID, *plan.Release, func(stream, line string) {
		level := "info"
		if stream == "system" {
			level = "warn"
		}
		p.Line(level, line, "")
	})
	if err != nil {
		return err
	}
	return p.Commit(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, `UPDATE deployments SET released_at = $2 WHERE id = $1`, x.ID, db.Now())
		return err
	})
}

// noteBundle puts on record what a program is about to run from: who starts it reads it
// there, and garbage collection finds it.
func noteBundle(ctx context.Context, x deployment.Deployment, p *progress) error {
	return p.Commit(ctx, func(tx *db.Tx) error {
		if _, err := tx.Exec(
			ctx, `UPDATE deployments SET bundle = $2, runtime = $3, plan = $4 WHERE id = $1`, x.ID, x.Bundle,
			x.Runtime,
			string(x.Plan),
		); err != nil {
			return fmt.Errorf("note bundle: %w", err)
		}
		return nil
	})
}

// bundled stores what a build has left for a program to run from, and makes a release of
// the files that are served without it.
func (d *Deployments) bundled(
	ctx context.Context,
	s site.Site,
	x *deployment.Deployment,
	tree sourceTree,
	plan framework.Plan,
	a build.Artefact,
	p *progress,
) (release.Sealed, error) {
	p.Printf("info", "Storing the application")
	stored, err := publish.Program(ctx, d.c.Bundles, a)
	if err != nil {
		return release.Sealed{}, err
	}
	for _, name := range stored.Left {
		p.Printf("warn", "Skipped %q: it points outside, or is not a file", name)
	}
	p.Printf("info", "Stored %d files, %s", stored.Files, publish.Size(stored.Bytes))
	x.Bundle, x.Runtime = stored.ID, a.Runtime
	if err := noteBundle(ctx, *x, p); err != nil {
		return release.Sealed{}, err
	}
	p.stored = stored.Bytes
	if p.added, err = d.addedByBundle(ctx, s, stored.ID); err != nil {
		return release.Sealed{}, err
	}
	rel, err := d.publish(ctx, s, func(w *release.Writer) error { return publish.Assets(ctx, w, tree, plan, a, p.Printf) })
	if fault.Is(err, fault.Invalid) { // a file that can't be published is no reason not to run
		p.Printf("warn", "Static files are left to the application: %s", err)
		return d.publish(ctx, s, func(*release.Writer) error { return nil })
	}
	if err == nil && rel.Files > 0 {
		p.Printf("info", "%d static files are served without the application", rel.Files)
	}
	return rel, err
}

// addedByBundle is how many bytes of a bundle the one that the site runs doesn't have.
func (d *Deployments) addedByBundle(ctx context.Context, s site.Site, id bundle.ID) (int64, error) {
	var live bundle.ID
	err := d.c.DB.QueryRow(ctx, `SELECT bundle FROM deployments WHERE id = $1`, s.LiveDeployment).Scan(&live)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return 0, fmt.Errorf("find the live bundle: %w", err)
	}
	return d.c.Bundles.Added(ctx, id, live)
}

// startProgram brings the deployment's program up beside the one that serves, and returns
// when it is healthy. Where it isn't, the log ends with its last lines.
func (d *Deployments) startProgram(
	ctx context.Context,
	x deployment.Deployment,
	plan framework.Plan,
	p *progress,
) (done func(), err error) {
	p.enter("start", deployment.Deploying)
	p.Printf("info", "Starting %s", project.StartedBy(plan))
	done, err = d.c.Programs.Start(ctx, x.ID, func(line string) { p.Printf("warn", "%s", line) })
	if err != nil {
		if !errors.Is(err, job.ErrStopping) { // it is started again
			d.showLastLines(ctx, x, p)
		}
		return nil, err
	}
	p.Printf("info", "The application is healthy")
	return done, nil
}

// showLastLines adds what the deployment's program printed last to the log of one that failed.
func (d *Deployments) showLastLines(ctx context.Context, x deployment.Deployment, p *progress) {
	for _, line := range d.c.Programs.LastLines(ctx, x.Site, x.ID) {
		p.Printf("error", "%s", line)
	}
}
