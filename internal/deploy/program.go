package deploy

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"slipway/internal/blob"
	"slipway/internal/build"
	"slipway/internal/bundle"
	"slipway/internal/db"
	"slipway/internal/fault"
	"slipway/internal/framework"
	"slipway/internal/release"
	"slipway/internal/site"
	"slipway/internal/source"
)

// Program holds the program of a deployment.
type Program struct {
	Site    site.Site
	Bundle  bundle.ID
	Start   framework.Start
	Root    string // the project's folder in the bundle
	Node    string // version of Node.js, "" for whatever there is
	PHP     string // constraint of composer.json, "" for any
	Runtime string // framework.Node or framework.PHP
	Preview bool
	Env     map[string]string
	Fork    bool // of a fork's pull request: it must not see what the site has stored

	Run       site.Run // what slipway.toml says; the site's own settings go before it
	Processes []framework.Process
	Crons     []framework.Cron

	Content []string // of WordPress: the folders of wp-content that the repository holds

	Secrets []string // values that no log shows
}

// runSettings returns what slipway.toml says, as the site's settings would say it.
func runSettings(r *framework.Run) (out site.Run) {
	if r == nil {
		return out
	}
	out = site.Run{SleepAfterSeconds: r.SleepAfterSeconds, MemoryMiB: r.MemoryMiB, CPUs: r.CPUs, Pids: r.Pids, DrainSeconds: r.DrainSeconds, Storage: r.Storage, StorageMiB: r.StorageMiB, Ports: r.Ports, RequestMiB: r.RequestMiB, ResponseSeconds: r.ResponseSeconds}
	if r.HealthCheckPath != nil || r.HealthCheckTimeoutSeconds != nil {
		out.HealthCheck = &site.HealthCheck{Path: r.HealthCheckPath, TimeoutSeconds: r.HealthCheckTimeoutSeconds}
	}
	return out
}

// checkCommands refuses what slipway.toml says about running where it is out of range.
func checkCommands(plan framework.Plan) error {
	err := site.CheckRun(runSettings(plan.Run))
	if f := fault.As(err); f != nil {
		return &fault.Error{Kind: fault.Invalid, Message: "slipway.toml can't be used", Details: "[run] " + strings.TrimPrefix(f.Message, "Invalid run.") + ": " + f.Details, Received: f.Received, Code: "invalid_slipway_toml"}
	}
	return err
}

// otherCommands are those of a plan that run beside its start.
func otherCommands(plan framework.Plan) (list []string) {
	if plan.Release != nil {
		list = append(list, plan.Release.String())
	}
	for _, p := range plan.Processes {
		list = append(list, p.Command.String())
	}
	for _, c := range plan.Crons {
		list = append(list, c.Command.String())
	}
	return list
}

// runRelease runs the release command, once for a deployment: one that succeeded before a
// crash is not repeated.
func (d *Deployments) runRelease(ctx context.Context, x Deployment, plan framework.Plan, p *progress) error {
	if plan.Release == nil {
		return nil
	}
	p.enter("release", Deploying)
	var at db.Time
	if err := d.c.DB.QueryRow(ctx, `SELECT released_at FROM deployments WHERE id = $1`, x.ID).Scan(&at); err != nil {
		return fmt.Errorf("read release command: %w", err)
	}
	if at != 0 {
		p.Printf("info", "The release command has succeeded before")
		return nil
	}
	p.Printf("info", "$ %s", plan.Release)
	err := d.c.RunCommand(ctx, x.ID, *plan.Release, func(stream, line string) {
		level := "info"
		if stream == "system" {
			level = "warn"
		}
		p.line(level, line, "")
	})
	if err != nil {
		return err
	}
	return p.commit(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, `UPDATE deployments SET released_at = $2 WHERE id = $1`, x.ID, db.Now())
		return err
	})
}

// cannotRun says why a program of this runtime does not run here.
func (d *Deployments) cannotRun(runtime string) string {
	switch {
	case d.c.WhyNot != "":
		return d.c.WhyNot
	}
	return "there is no start command: set run.command in the site's settings, or a start script in package.json"
}

// bundled stores what a build has left for a program to run from, and makes a release of
// the files that are served without it.
func (d *Deployments) bundled(ctx context.Context, s site.Site, x *Deployment, tree *source.Tree, plan framework.Plan, a build.Artefact, p *progress) (release.Sealed, error) {
	p.Printf("info", "Storing the application")
	stored, err := d.storeProgram(ctx, a)
	if err != nil {
		return release.Sealed{}, err
	}
	for _, name := range stored.Left {
		p.Printf("warn", "Skipped %q: it points outside, or is not a file", name)
	}
	p.Printf("info", "Stored %d files, %s", stored.Files, size(stored.Bytes))
	x.Bundle, x.Runtime = stored.ID, a.Runtime
	if a.Start != nil && a.Start != plan.Start { // what the build made decides
		plan.Start = a.Start
		if x.Plan, err = json.Marshal(plan); err != nil {
			return release.Sealed{}, err
		}
	}
	// On record before it runs: who starts the program reads it there, and garbage
	// collection finds it.
	err = p.commit(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, `UPDATE deployments SET bundle = $2, runtime = $3, plan = $4 WHERE id = $1`, x.ID, x.Bundle, x.Runtime, string(x.Plan))
		return err
	})
	if err != nil {
		return release.Sealed{}, fmt.Errorf("note bundle: %w", err)
	}
	x.bundleBytes = stored.Bytes
	if x.bundleAdded, err = d.addedByBundle(ctx, s, stored.ID); err != nil {
		return release.Sealed{}, err
	}
	rel, err := d.publish(ctx, s, func(w *release.Writer) error { return d.assets(ctx, w, tree, plan, a, p) })
	if fault.Is(err, fault.Invalid) { // a file that can't be published is no reason not to run
		p.Printf("warn", "Static files are left to the application: %s", err)
		return d.publish(ctx, s, func(*release.Writer) error { return nil })
	}
	if err == nil && rel.Files > 0 {
		p.Printf("info", "%d static files are served without the application", rel.Files)
	}
	return rel, err
}

// storeProgram stores the artefact, once more where a sweep deleted at the same moment what
// was there to be used again.
func (d *Deployments) storeProgram(ctx context.Context, a build.Artefact) (bundle.Stored, error) {
	for try := 1; ; try++ {
		stored, err := d.c.Bundles.Store(ctx, a.Files, func(name string) bool {
			return path.Base(name) == ".cache" && strings.Contains(name, "node_modules") || a.Skip != nil && a.Skip(name)
		})
		if !errors.Is(err, blob.ErrSwept) || try == 3 {
			return stored, err
		}
	}
}

// pagesFolder is where a project may have pages of its own for failures: 502.html, 503.html,
// 504.html, and what they show.
const pagesFolder = ".slipway/pages"

// assets adds the artefact's static files. Rules are not among them: the program answers
// for the rest of its paths.
func (d *Deployments) assets(ctx context.Context, w *release.Writer, tree *source.Tree, plan framework.Plan, a build.Artefact, p *progress) error {
	if _, err := d.hashedIn(ctx, w, tree, plan); err != nil {
		return err
	}
	w.Leave(a.Hidden)
	for _, f := range append(slices.Clone(a.Assets), framework.AssetFolder{Folder: path.Join(plan.Root, pagesFolder)}) {
		info, err := a.Files.Stat(f.Folder)
		if err != nil || !info.IsDir() { // opening a pipe would wait for ever
			continue // it has none
		}
		root, err := a.Files.OpenRoot(f.Folder)
		if err != nil {
			continue
		}
		err = w.AddDirAt(ctx, root, f.At, func(name, why string) { p.Printf("warn", "Skipped %s: %s", name, why) })
		_ = root.Close()
		if err != nil {
			return fmt.Errorf("collect static files: %w", err)
		}
	}
	return nil
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
func (d *Deployments) startProgram(ctx context.Context, x Deployment, plan framework.Plan, p *progress) (done func(), err error) {
	p.enter("start", Deploying)
	p.Printf("info", "Starting %s", startedBy(plan))
	done, err = d.c.StartProgram(ctx, x.ID, func(line string) { p.Printf("warn", "%s", line) })
	if err != nil {
		for _, line := range d.lastLines(ctx, x) {
			p.Printf("error", "%s", line)
		}
		return nil, err
	}
	p.Printf("info", "The application is healthy")
	return done, nil
}

// lastLines returns what the deployment's program printed last, for the log of one that failed.
func (d *Deployments) lastLines(ctx context.Context, x Deployment) []string {
	if d.c.ProgramLog == nil {
		return nil
	}
	return d.c.ProgramLog(ctx, x.Site, x.ID)
}

// ProgramOf returns what a deployment runs, with the site's settings and variables as they
// are now. It is a NotFound fault where the deployment has no program, or it is no longer
// stored.
func (d *Deployments) ProgramOf(ctx context.Context, id ID) (Program, error) {
	x, err := d.byID(ctx, d.c.DB, id)
	if err != nil {
		return Program{}, err
	}
	if x.Bundle == "" || len(x.Plan) == 0 {
		return Program{}, fault.Missing("program")
	}
	s, err := d.c.Sites.ByID(ctx, d.c.DB, x.Site)
	if err != nil {
		return Program{}, err
	}
	vars, err := d.variables(ctx, x, "runtime")
	if err != nil {
		return Program{}, err
	}
	p, err := programOf(s, x, vars, d.c.Sites.URL(s.Slug))
	p.Fork, p.Preview = x.Fork, x.Target == Preview
	return p, err
}

// ProgramFrom returns what a site runs in production that a backup holds: with the variables
// of then, at the address url.
func ProgramFrom(s site.Site, l Live, vars []site.NewVar, url string) (Program, error) {
	var list []site.Var
	for _, v := range vars {
		x := site.Var{Key: v.Key, Value: v.Value, Secret: v.Secret, Target: v.Target, Branch: v.Branch}
		if slices.Contains(v.Target, "runtime") && x.Scope() != string(Preview) && v.Branch == "" {
			list = append(list, x)
		}
	}
	return programOf(s, Deployment{Site: s.ID, Bundle: l.Bundle, Plan: l.Plan, Branch: l.Branch, CommitHash: l.CommitHash, Target: Production}, list, url)
}

func programOf(s site.Site, x Deployment, vars []site.Var, url string) (Program, error) {
	var plan framework.Plan
	if err := json.Unmarshal(x.Plan, &plan); err != nil {
		return Program{}, fmt.Errorf("read plan of %s: %w", s.ID, err)
	}
	if plan.Start == nil {
		return Program{}, fault.Missing("program")
	}
	env := map[string]string{
		"SLIPWAY": "1", "SLIPWAY_SITE_ID": string(s.ID), "SLIPWAY_DEPLOYMENT_ID": string(x.ID), "SLIPWAY_COMMIT": x.CommitHash,
		"SLIPWAY_BRANCH": x.Branch, "SLIPWAY_TARGET": string(x.Target), "SLIPWAY_URL": url,
	}
	var secrets []string
	for _, v := range vars {
		env[v.Key] = v.Value
		if v.Secret {
			secrets = append(secrets, v.Value)
		}
	}
	return Program{Site: s, Bundle: x.Bundle, Start: *plan.Start, Root: plan.Root, Node: plan.Node, PHP: plan.Asks("php"), Runtime: plan.Runtime, Env: env, Secrets: secrets,
		Content: plan.Content, Run: runSettings(plan.Run), Processes: plan.Processes, Crons: plan.Crons}, nil
}

// bundleRoots marks the blobs of every bundle that a deployment refers to.
func (d *Deployments) bundleRoots(ctx context.Context, mark func(blob.Digest)) error {
	rows, err := d.c.DB.Query(ctx, `SELECT DISTINCT bundle FROM deployments WHERE bundle <> ''`)
	ids, err := db.Collect(rows, err, func(s db.Scanner) (id bundle.ID, err error) { return id, s.Scan(&id) })
	if err != nil {
		return fmt.Errorf("list bundles: %w", err)
	}
	for _, id := range ids {
		for digest, err := range d.c.Bundles.Blobs(ctx, id) {
			if errors.Is(err, fs.ErrNotExist) {
				break // damaged: nothing can run from it, and the rest need not stay
			}
			if err != nil {
				return err
			}
			mark(digest)
		}
	}
	return nil
}
