package deploy

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"slipway/internal/build/build"
	"slipway/internal/build/buildlog"
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
	var last []string
	err := d.c.Programs.Release(ctx, x.ID, *plan.Release, func(stream, line string) {
		last = append(last, line)
		if len(last) > causeLines {
			last = last[1:]
		}
		level := "info"
		if stream == "system" {
			level = "warn"
		}
		p.Line(level, line, "")
	})
	if err != nil {
		return explained(err, last, plan)
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
			ctx, `UPDATE deployments SET bundle = $2, runtime = $3, plan = $4, branch = $5 WHERE id = $1`, x.ID, x.Bundle,
			x.Runtime, string(x.Plan), x.Branch, // of a site without one the default branch, which the program is told
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
	if plan.Runtime == framework.Node {
		vars, err := d.Variables(ctx, x, "runtime")
		if err != nil {
			return nil, err
		}
		for _, warning := range unused(vars) {
			p.Printf("warn", "%s", warning)
		}
	}
	p.Printf("info", "Starting %s", project.StartedBy(plan))
	done, err = d.c.Programs.Start(ctx, x.ID, func(line string) { p.Printf("warn", "%s", line) })
	if err != nil {
		if errors.Is(err, job.ErrStopping) { // it is started again
			return nil, err
		}
		return nil, explained(err, d.showLastLines(ctx, x, p), plan)
	}
	p.Printf("info", "The application is healthy")
	return done, nil
}

// unused warns of variables of a site whose values an application doesn't get.
func unused(vars []site.Var) (warnings []string) {
	for _, v := range vars {
		if v.Key == "PORT" || v.Key == "HOST" || v.Key == "HOSTNAME" {
			warnings = append(warnings, "The variable "+v.Key+" of the site is not used: Slipway chooses the address on which the application "+
				"must listen, and puts it into PORT and HOST")
		}
	}
	return warnings
}

// showLastLines adds what the deployment's program printed last to the log of one that failed, and returns it.
func (d *Deployments) showLastLines(ctx context.Context, x deployment.Deployment, p *progress) []string {
	lines := d.c.Programs.LastLines(ctx, x.Site, x.ID)
	for _, line := range lines {
		p.Printf("error", "%s", line)
	}
	return lines
}

// causeLines is how many lines of a release command are looked at for why it failed.
const causeLines = 60

// explained gives the fault of a program that didn't start, or answers with errors, the cause that its last lines show.
func explained(err error, lines []string, plan framework.Plan) error {
	f := fault.As(err)
	if f == nil || !slices.Contains([]string{"application_crashed", "application_unhealthy", "release_failed"}, f.Code) ||
		strings.Contains(f.Details, "memory limit") {
		return err
	}
	cause := buildlog.StartCause(lines, plan.Root)
	if cause == "" && len(lines) == 0 && f.Details == "see its log" {
		cause = "it printed nothing that says why"
	}
	if cause == "" {
		return err
	}
	own := *f
	own.Details = cause
	return &own
}
