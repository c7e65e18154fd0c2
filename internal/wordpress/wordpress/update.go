package wordpress

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"slipway/internal/deploy/deploy"
	"slipway/internal/deploy/deployment"
	"slipway/internal/deploy/screenshot"
	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/job"
	"slipway/internal/platform/lazyregexp"
	"slipway/internal/platform/text"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/operation"
	"slipway/internal/tenant/site"
)

// Update says what to update to the newest version.
type Update struct {
	Core    bool
	Plugins Choice
	Themes  Choice
	Auto    bool // nobody asked: the site's setting did
}

// Choice names plugins or themes. The zero value chooses none.
type Choice struct {
	All   bool
	Minor bool     // those whose first two numbers of the version stay, and those that Auto means
	Auto  bool     // those whose automatic updates are on
	Slugs []string // these
}

func (c Choice) none() bool { return !c.All && !c.Minor && !c.Auto && len(c.Slugs) == 0 }

func (c Choice) wire() any {
	switch {
	case c.All:
		return "all"
	case c.Minor:
		return "minor"
	case c.Auto:
		return "auto"
	}
	return append([]string{}, c.Slugs...)
}

var slugForm = lazyregexp.New(`^[A-Za-z0-9][A-Za-z0-9._ -]{0,199}$`)

const maxSlugs = 200

// Changed is something that was updated, or could not be.
type Changed struct {
	Kind  string `json:"kind"` // core, plugin, theme
	Slug  string `json:"slug,omitempty"`
	From  string `json:"from"`
	To    string `json:"to"`
	Error string `json:"error,omitempty"`
}

// UpdateNowTx begins to update the owner's site: with a backup before, a check after, and
// the backup's state again where that fails.
func (w *WordPress) UpdateNowTx(ctx context.Context, tx *db.Tx, owner account.OwnerID, id site.ID, u Update) (operation.Operation, error) {
	if err := w.liveTx(ctx, tx, owner, id); err != nil {
		return operation.Operation{}, err
	}
	if !u.Core && u.Plugins.none() && u.Themes.none() {
		return operation.Operation{}, fault.New(fault.Invalid, "invalid_update", "There is nothing to update",
			"send core, plugins or themes")
	}
	if err := checkSlugs(slices.Concat(u.Plugins.Slugs, u.Themes.Slugs)); err != nil {
		return operation.Operation{}, err
	}
	if len(u.Plugins.Slugs) > maxSlugs || len(u.Themes.Slugs) > maxSlugs {
		return operation.Operation{}, fault.New(fault.Invalid, "invalid_update", "Too many plugins or themes",
			fmt.Sprintf("at most %d; \"all\" takes all of them", maxSlugs))
	}
	return w.beginTx(ctx, tx, owner, id, Work{What: kindUpdate, Update: &u})
}

// update is one call of an update's job.
func (r *run) update(ctx context.Context) error {
	switch r.step.At {
	case atBackup:
		ready, err := r.backUp(ctx, r.x.Site, &r.step.Backup, "Before an update of WordPress")
		if err != nil {
			return err
		}
		if !ready {
			return job.Later(waitFor)
		}
		return r.change(ctx)
	case atChange: // a crash cut it off
		return r.goBack(ctx, interrupted)
	case atDeploy:
		return r.deployed(ctx)
	case atCheck:
		return r.checked(ctx)
	}
	return r.goBack(ctx, "")
}

// change updates plugins and themes, and then the core.
func (r *run) change(ctx context.Context) error {
	s, err := r.site(ctx)
	if err != nil {
		return err
	}
	paths, err := r.pagesOf(ctx, s)
	if err != nil {
		return err
	}
	if r.step.Before, err = r.look(ctx, s, paths); err != nil {
		return err
	}
	if r.step.Schema, err = r.schema(ctx, s); err != nil {
		return err
	}
	if err := r.c.Screenshots.Forget(ctx, r.x.Site, screenshot.Before, screenshot.After); err != nil {
		return err
	}
	if err := r.c.Screenshots.Take(ctx, r.x.Site, screenshot.Before); err != nil {
		return err
	}
	r.step.Since = db.Now()
	u := r.x.Update
	if err := r.to(ctx, atChange, 0.4, "Updating"); err != nil {
		return err
	}
	var out struct{ Updated, Failed, Missing []Changed }
	if !u.Plugins.none() || !u.Themes.none() {
		if err := r.task(ctx, s, s.LiveDeployment, "update", map[string]any{
			"plugins": u.Plugins.wire(),
			"themes":  u.Themes.wire(),
		}, &out); err != nil {
			return err
		}
	}
	if len(out.Missing) > 0 {
		x := out.Missing[0]
		return r.end(
			ctx,
			"",
			fmt.Sprintf("There is no %s %s on this site; nothing was updated", text.Clip(x.Kind, 20), text.Clip(x.Slug, 100)),
			r.result(),
		)
	}
	for _, c := range out.Updated[:min(len(out.Updated), 2*maxSlugs)] { // plugins have a say in it
		r.step.Updated = append(r.step.Updated, Changed{
			Kind: text.Clip(c.Kind, 20),
			Slug: text.Clip(c.Slug, 200),
			From: text.Clip(c.From, 50),
			To:   text.Clip(c.To, 50),
		})
	}
	if len(out.Failed) > 0 {
		f := out.Failed[0]
		return r.goBack(
			ctx,
			fmt.Sprintf(
				"The %s %s could not be updated to %s: %s",
				f.Kind,
				text.Clip(f.Slug, 100),
				text.Clip(f.To, 30),
				text.Clip(f.Error, 300),
			),
		)
	}
	if u.Core {
		c, err := r.cores.Current(ctx, func(string, ...any) {})
		if err != nil {
			return err
		}
		var now State
		if err := r.task(ctx, s, s.LiveDeployment, "info", map[string]any{}, &now); err != nil {
			return err
		}
		if c.Version != now.Version && (!u.Auto || minor(now.Version, c.Version)) {
			r.step.Updated = append(r.step.Updated, Changed{Kind: "core", From: now.Version, To: c.Version})
			err := r.to(ctx, atDeploy, 0.6, "Deploying WordPress "+c.Version, func(tx *db.Tx) error {
				t := deploy.Trigger{Cause: deployment.ByAPI}
				if s.Repository != "" {
					live, err := r.c.Deployments.Get(ctx, r.x.Owner, s.LiveDeployment)
					if err != nil {
						return err
					}
					t.Commit, t.Branch, t.Target = live.CommitHash, live.Branch, deployment.Production // the same themes and plugins
				}
				d, err := r.c.Deployments.TriggerTx(ctx, tx, r.x.Owner, r.x.Site, t)
				r.step.Deployment = d.ID
				return err
			})
			if err != nil {
				return err
			}
			return job.Later(waitFor)
		}
	}
	if len(r.step.Updated) == 0 {
		return r.end(ctx, "Everything is up to date", "", r.result())
	}
	if err := r.to(ctx, atCheck, 0.7, "Checking the site"); err != nil {
		return err
	}
	return r.checked(ctx)
}

// deployed waits for the deployment that brings another core.
func (r *run) deployed(ctx context.Context) error {
	d, err := r.c.Deployments.Get(ctx, r.x.Owner, r.step.Deployment)
	switch {
	case err != nil:
		return err
	case !d.Status.Ended():
		return job.Later(waitFor)
	case d.Status != deployment.Success:
		return r.goBack(ctx, "The new core could not be deployed: "+d.Error)
	}
	if err := r.to(ctx, atCheck, 0.7, "Checking the site"); err != nil {
		return err
	}
	return r.checked(ctx)
}

// checked compares the site with how it was before.
func (r *run) checked(ctx context.Context) error {
	s, err := r.site(ctx)
	if err != nil {
		return err
	}
	r.purgeAll(ctx, r.x.Site)
	why, err := r.check(ctx, s, r.step.Before, r.step.Since)
	if err != nil {
		return err
	}
	if why != "" {
		return r.goBack(ctx, "The update broke the site: "+why)
	}
	if err := r.c.Screenshots.Take(ctx, r.x.Site, screenshot.After); err != nil {
		return err
	}
	out := r.result()
	out["updated"], out["pages"] = r.step.Updated, len(r.step.Before)
	return r.end(ctx, fmt.Sprintf("Updated %d; %d pages are as before", len(r.step.Updated), len(r.step.Before)), "", out)
}

// minor reports whether the first two numbers of a version stay.
func minor(from, to string) bool {
	branch := func(v string) string {
		parts := strings.SplitN(v, ".", 3)
		return strings.Join(parts[:min(2, len(parts))], ".")
	}
	return branch(from) == branch(to)
}
