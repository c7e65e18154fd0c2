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

// runRelease runs the release command once per deployment: if it succeeded before a crash, it isn't repeated.
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

// noteBundle records a program's bundle, so that starts and garbage collection find it.
func noteBundle(ctx context.Context, x deployment.Deployment, p *progress) error {
	return p.Commit(ctx, func(tx *db.Tx) error {
		if _, err := tx.Exec(
			ctx, `UPDATE deployments SET bundle = $2, runtime = $3, plan = $4, branch = $5 WHERE id = $1`, x.ID, x.Bundle,
			x.Runtime, string(x.Plan), x.Branch, // the default branch for a site that names none; the program gets it as a variable
		); err != nil {
			return fmt.Errorf("note bundle: %w", err)
		}
		return nil
	})
}

// bundled stores a build's output as the program's bundle, and makes a release of the static files.
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
	ruled := func(w *release.Writer) error { // the edge applies the rules of PHP
		if plan.Runtime != framework.PHP {
			return nil
		}
		if err := d.serving(ctx, w, s, tree, plan); err != nil {
			return err
		}
		return publish.ProgramRules(w, plan, a)
	}
	rel, err := d.publish(ctx, s, func(w *release.Writer) error {
		if err := ruled(w); err != nil {
			return err
		}
		return publish.Assets(ctx, w, tree, plan, a, p.Printf)
	})
	if fault.Is(err, fault.Invalid) && fault.As(err).Code != "release_rules" { // the program runs without a public file
		p.Printf("warn", "Static files are left to the application: %s", err)
		rel, err = d.publish(ctx, s, ruled)
	}
	for _, problem := range rel.Problems {
		p.Printf("warn", "%s", problem)
	}
	if err == nil && rel.Files > 0 {
		p.Printf("info", "%d static files are served without the application", rel.Files)
	}
	return rel, err
}

// addedByBundle returns how many bytes of a bundle aren't in the site's current one.
func (d *Deployments) addedByBundle(ctx context.Context, s site.Site, id bundle.ID) (int64, error) {
	var live bundle.ID
	err := d.c.DB.QueryRow(ctx, `SELECT bundle FROM deployments WHERE id = $1`, s.LiveDeployment).Scan(&live)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return 0, fmt.Errorf("find the live bundle: %w", err)
	}
	return d.c.Bundles.Added(ctx, id, live)
}

// startProgram starts the deployment's program beside the current one and returns when it is healthy. If it doesn't
// become healthy, its last lines are added to the log.
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
		if errors.Is(err, job.ErrStopping) { // the deployment is retried, and starts it again
			return nil, err
		}
		return nil, explained(err, d.showLastLines(ctx, x, p), plan)
	}
	p.Printf("info", "The application is healthy")
	return done, nil
}

// unused returns warnings about variables that an application doesn't get.
func unused(vars []site.Var) (warnings []string) {
	for _, v := range vars {
		if v.Key == "PORT" || v.Key == "HOST" || v.Key == "HOSTNAME" {
			warnings = append(warnings, "The variable "+v.Key+" of the site is not used: Slipway chooses the address on which the application "+
				"must listen, and puts it into PORT and HOST")
		}
	}
	return warnings
}

// showLastLines adds the last lines of a failed deployment's program to the log, and returns them.
func (d *Deployments) showLastLines(ctx context.Context, x deployment.Deployment, p *progress) []string {
	lines := d.c.Programs.LastLines(ctx, x.Site, x.ID)
	for _, line := range lines {
		p.Printf("error", "%s", line)
	}
	return lines
}

// causeLines is how many lines of a release command's output are searched for the cause of its failure.
const causeLines = 60

// explained adds the cause that lines show to the fault of a program that didn't start or answers with errors.
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
