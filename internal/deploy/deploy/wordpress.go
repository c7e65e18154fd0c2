package deploy

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"slipway/internal/build/build"
	"slipway/internal/build/bundle"
	"slipway/internal/build/framework"
	"slipway/internal/build/publish"
	"slipway/internal/build/release"
	"slipway/internal/deploy/deployment"
	"slipway/internal/deploy/project"
	"slipway/internal/git/fetch"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/site"
)

// WordPress is how sites of that type come to run. Both methods may be called again for the same site.
type WordPress interface {
	// Prepare returns what the site runs from, with its database made.
	Prepare(ctx context.Context, s site.Site, say func(format string, args ...any)) (bundle.ID, error)
	// Install installs it in the deployment's program, which runs, where it isn't yet, with one
	// of the repository's themes and its plugin.
	Install(ctx context.Context, s site.Site, deployment deployment.ID, x publish.Extensions, say Log) error
	// Activate begins to activate the theme, or else the plugin, of a site that runs, unless it breaks the site.
	Activate(ctx context.Context, s site.Site, x publish.Extensions) error
}

// Log hears of what is worth a line in a deployment's log.
type Log = publish.Log

// runWordPress brings a WordPress site to life, or onto the core that new sites get: its
// program starts beside the one that serves, and the installation runs in it before any
// visitor reaches it. A repository is the site's wp-content.
func (d *Deployments) runWordPress(ctx context.Context, s site.Site, x *deployment.Deployment, p *progress) error {
	if d.wordpress == nil || d.c.Programs == nil {
		return &fault.Error{
			Kind:    fault.Unavailable,
			Message: "WordPress can't run on this server",
			Details: cmp.Or(d.c.WhyNot, "this node doesn't have the worker role"),
		}
	}
	if x.Target == deployment.Preview { // it would write to the database that visitors see
		return site.NoPreviews
	}
	byDefault := x.Branch == ""
	plan := framework.Plan{
		Framework: framework.WordPress,
		Name:      "WordPress",
		Runtime:   framework.WordPress,
		Why:       "the site is of this type",
		Start:     &framework.Start{},
	}
	var tree *fetch.Tree
	var err error
	if s.Repository != "" {
		p.enter("fetch", deployment.Building)
		if tree, err = d.fetch(ctx, s, x, p); err != nil {
			return err
		}
		defer tree.Close()
		publish.WarnUnfetched(tree.Unfetched, p.Printf)
		if plan, err = d.contentPlan(ctx, s, *x, tree, p); err != nil {
			return err
		}
	}
	say := func(format string, args ...any) { p.Printf("info", format, args...) }
	p.enter("prepare", deployment.Building)
	core, err := d.wordpress.Prepare(ctx, s, say)
	if err != nil {
		return err
	}
	x.Bundle = core
	var extensions publish.Extensions
	if tree != nil {
		if extensions, err = d.content(ctx, s, x, tree, &plan, core, p); err != nil {
			return err
		}
	}
	plan.Runtime, x.Runtime, x.Framework = framework.WordPress, framework.WordPress, plan.Framework
	if x.Plan, err = json.Marshal(plan); err != nil {
		return err
	}
	if err := noteBundle(ctx, *x, p); err != nil {
		return err
	}
	rel, err := d.publish(ctx, s, func(w *release.Writer) error {
		if tree == nil {
			return nil
		}
		if err := d.serving(ctx, w, s, tree, plan); err != nil {
			return err
		}
		return publish.RootFiles(ctx, w, tree, plan, p.Printf)
	})
	if err != nil {
		return err
	}
	for _, problem := range rel.Problems {
		p.Printf("warn", "%s", problem)
	}
	done, err := d.startProgram(ctx, *x, plan, p)
	if err != nil {
		return err
	}
	defer done() // once the site serves it
	p.enter("install", deployment.Deploying)
	if err := d.wordpress.Install(ctx, s, x.ID, extensions, p.Printf); err != nil {
		d.showLastLines(ctx, *x, p)
		return err
	}
	added, err := d.added(ctx, s, plan, extensions)
	if err != nil {
		return err
	}
	p.enter("activate", deployment.Deploying)
	if err := d.activate(ctx, s, *x, rel, plan, byDefault && tree != nil, p); err != nil {
		return err
	}
	if len(added.Themes) > 0 || added.Plugin != "" { // visitors have its files now
		if err := d.wordpress.Activate(ctx, s, added); err != nil { // its owner still can
			d.c.Log.WarnContext(ctx, "theme or plugin of a repository not activated", "site", s.ID, "err", err)
		}
	}
	return nil
}

// added returns the extensions that the deployment before didn't have; none before WordPress is installed, which
// activates them, and none of a wp-content.
func (d *Deployments) added(ctx context.Context, s site.Site, plan framework.Plan, x publish.Extensions) (publish.Extensions, error) {
	if s.LiveDeployment == "" || len(plan.Parts) == 0 {
		return publish.Extensions{}, nil
	}
	live, err := d.livePlan(ctx, s)
	if err != nil {
		return publish.Extensions{}, err
	}
	had := func(kind, name string) bool {
		name, _, _ = strings.Cut(name, "/")
		return slices.Contains(live.Content, kind) || slices.Contains(live.Content, kind+"/"+name)
	}
	x.Themes = slices.DeleteFunc(slices.Clone(x.Themes), func(name string) bool { return had("themes", name) })
	if had("plugins", x.Plugin) {
		x.Plugin = ""
	}
	return x, nil
}

// livePlan returns the plan of the site's live deployment. It is empty if there is none, or it can't be read.
func (d *Deployments) livePlan(ctx context.Context, s site.Site) (live framework.Plan, err error) {
	var text string
	err = d.c.DB.QueryRow(ctx, `SELECT plan FROM deployments WHERE id = $1`, s.LiveDeployment).Scan(&text)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return live, fmt.Errorf("read the live plan: %w", err)
	}
	_ = json.Unmarshal([]byte(text), &live)
	return live, nil
}

// contentPlan returns how the repository of a WordPress site becomes its wp-content.
func (d *Deployments) contentPlan(
	ctx context.Context,
	s site.Site,
	x deployment.Deployment,
	tree sourceTree,
	p *progress,
) (framework.Plan, error) {
	variables, err := d.readable(ctx, x)
	if err != nil {
		return framework.Plan{}, err
	}
	plan, err := project.Content(ctx, s, variables, tree)
	if err != nil {
		return framework.Plan{}, err
	}
	p.Printf("info", "%s: %s", plan.Name, plan.Why)
	for _, w := range plan.Warnings {
		p.Printf("warn", "%s", w)
	}
	return plan, d.readyPHP(ctx, plan, p)
}

// content builds the repository and joins its wp-content to the core.
func (d *Deployments) content(
	ctx context.Context,
	s site.Site,
	x *deployment.Deployment,
	tree sourceTree,
	plan *framework.Plan,
	core bundle.ID,
	p *progress,
) (found publish.Extensions, err error) {
	err = d.build(ctx, s, x, tree, *plan, p, func(ctx context.Context, a build.Artefact) error {
		var whole bundle.Stored
		if whole, found, err = publish.Content(ctx, d.c.Bundles, plan, a, core, p.Printf); err != nil {
			return err
		}
		x.Bundle, p.stored = whole.ID, whole.Bytes
		p.added, err = d.addedByBundle(ctx, s, whole.ID)
		p.added = min(p.added, whole.Bytes) // the core is nobody's
		return err
	})
	return found, err
}
