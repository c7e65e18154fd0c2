package deploy

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"slipway/internal/build/build"
	"slipway/internal/build/framework"
	"slipway/internal/build/publish"
	"slipway/internal/build/release"
	"slipway/internal/deploy/deployment"
	"slipway/internal/deploy/preview"
	"slipway/internal/deploy/project"
	"slipway/internal/platform/db"
	"slipway/internal/platform/panics"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/limits"
	"slipway/internal/tenant/site"
	"slipway/internal/tenant/usage"
)

// built makes a release from a build's output folder, and returns the plan as the build has changed it.
func (d *Deployments) built(
	ctx context.Context,
	s site.Site,
	x *deployment.Deployment,
	tree sourceTree,
	plan framework.Plan,
	p *progress,
) (rel release.Sealed, made framework.Plan, err error) {
	made = plan
	err = d.build(ctx, s, x, tree, plan, p, func(ctx context.Context, a build.Artefact) error {
		if a.Start != nil && a.Start != plan.Start { // the start command is taken from what was built
			made.Start = a.Start
			if a.Runtime != plan.Runtime {
				made.Runtime, made.Framework, made.Name = a.Runtime, "node-script", "Node.js"
			}
			x.Framework = made.Framework
		}
		made.Node, made.Makeshift = cmp.Or(a.Node, plan.Node), a.Makeshift
		if x.Plan, err = json.Marshal(made); err != nil {
			return err
		}
		if a.Runtime != framework.Static && d.c.Programs == nil {
			return d.needsServer(made)
		}
		if a.Runtime != framework.Static {
			rel, err = d.bundled(ctx, s, x, tree, made, a, p)
			return err
		}
		published, err := d.publish(ctx, s, func(w *release.Writer) error {
			if err := d.serving(ctx, w, s, tree, plan); err != nil {
				return err
			}
			if err := w.AddDir(ctx, a.Files, func(name, why string) { p.Printf("warn", "Skipped %s: %s", name, why) }); err != nil {
				return fmt.Errorf("collect output: %w", err)
			}
			return nil
		})
		rel, err = publish.Report(published, err, a.Folder, p.Printf)
		return err
	})
	return rel, made, err
}

// serverNode reports whether the site's live deployment was built with the server's Node.js by choice.
func (d *Deployments) serverNode(ctx context.Context, s site.Site) (bool, error) {
	live, err := d.livePlan(ctx, s)
	return live.Node == "" && !live.Makeshift && (live.Manager != "" || live.Runtime == framework.Node), err
}

// build runs a build and calls use with its result, which is deleted when use returns.
func (d *Deployments) build(
	ctx context.Context,
	s site.Site,
	x *deployment.Deployment,
	tree sourceTree,
	plan framework.Plan,
	p *progress,
	use func(context.Context, build.Artefact) error,
) error {
	if err := d.c.Limits.Require(ctx, d.c.DB, s.Owner, limits.BuildMinutes, 1); err != nil {
		return err
	}
	caches, err := d.c.Limits.LimitOf(ctx, d.c.DB, s.Owner, limits.Caches)
	if err != nil {
		return err
	}
	spec := build.Spec{
		ID:         string(x.ID),
		Site:       s.ID,
		Owner:      s.Owner,
		Branch:     x.Branch,
		ClearCache: x.ClearCache,
		Storage:    project.Storage(s, plan),
		Tree:       tree,
		Plan:       plan,
		MaxCaches:  &caches,
		Commands:   project.Commands(plan),
		Whole:      plan.Run != nil && plan.Run.DevDependencies != nil && *plan.Run.DevDependencies,
	}
	if x.Fork { // a fork's build shares no cache with other builds
		spec.Branch, spec.ClearCache = preview.PullKey(x.Pull), true
	}
	if spec.Env, spec.Secrets, err = d.environment(ctx, s, x, plan); err != nil {
		return err
	}
	if spec.ServerNode, err = d.serverNode(ctx, s); err != nil {
		return err
	}
	spent := buildTime{site: s, source: usage.NewSource(string(x.ID) + "/" + db.Random(10))}
	spent.start()
	report := &reporting{ctx: ctx, d: d, id: x.ID, p: p, meter: &spent.meter}
	metered, end := context.WithCancelCause(ctx)
	var counting sync.WaitGroup
	counting.Go(func() {
		if err := panics.Call(func() error { d.countBuild(metered, &spent, end); return nil }); err != nil {
			end(err)
		}
	})
	err = d.c.Builds.Run(metered, spec, report, use)
	end(nil)
	counting.Wait()
	d.noteBuild(ctx, &spent)
	return err
}

// Build time is recorded at this interval, and more often during the owner's last minute.
const (
	countBuildEvery = 10 * time.Second
	countLastMinute = time.Second
)

// countBuild records a build's time until ctx ends, and calls end once the owner's build minutes are used up.
func (d *Deployments) countBuild(ctx context.Context, b *buildTime, end context.CancelCauseFunc) {
	s := b.site
	for {
		u, err := d.c.Limits.UseOf(ctx, d.c.DB, s.Owner, limits.BuildMinutes)
		if err != nil && ctx.Err() == nil {
			d.c.Log.WarnContext(ctx, "build minutes not compared", "site", s.ID, "err", err)
		}
		wait := countBuildEvery
		if err == nil && u.Left() <= 0 {
			end(u.Reached())
			return
		}
		if err == nil && u.Left() <= 1 {
			wait = countLastMinute
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return
		}
		d.noteBuild(ctx, b)
	}
}

// buildTime is the build time of one attempt. Attempts count separately: if one is repeated after a crash, both count.
type buildTime struct {
	meter
	site   site.Site
	source *usage.Source
}

func (d *Deployments) noteBuild(ctx context.Context, b *buildTime) {
	b.source.Add(db.Now(), b.site.Owner, usage.Build, b.site.ID, b.lap().Milliseconds())
	if err := d.c.Usage.Write(ctx, b.source); err != nil {
		d.c.Log.ErrorContext(ctx, "build time not recorded, will be retried", "site", b.site.ID, "err", err)
	}
}

// Variables returns the site's variables for the build or the program of a deployment. Deployments of forks get none:
// the author of a pull request could read them. Deployments that [Deployments.LimitTx] limited get only those that
// exist for previews alone.
func (d *Deployments) Variables(ctx context.Context, x deployment.Deployment, when string) ([]site.Var, error) {
	if x.Fork {
		return nil, nil
	}
	vars, err := d.c.Sites.Variables(ctx, x.Site, when, string(x.Target), x.Branch)
	if x.LimitedEnv {
		vars = slices.DeleteFunc(vars, func(v site.Var) bool { return v.Scope() != string(deployment.Preview) })
	}
	return vars, err
}

// readable returns the variables of a build that aren't secret: a plan, which everybody who sees the site can read, may
// name them.
func (d *Deployments) readable(ctx context.Context, x deployment.Deployment) (map[string]string, error) {
	vars, err := d.Variables(ctx, x, "build")
	list := map[string]string{}
	for _, v := range vars {
		if !v.Secret {
			list[v.Key] = v.Value
		}
	}
	return list, err
}

// LimitTx hides production's variables from a new preview if the caller's role may not read them: the caller controls
// the code that the preview runs.
func (d *Deployments) LimitTx(ctx context.Context, tx *db.Tx, by account.Caller, x deployment.Deployment) error {
	if x.Target != deployment.Preview || by.RoleAllows(account.EnvRead, x.Site) {
		return nil
	}
	_, err := tx.Exec(ctx, `
		UPDATE deployments SET limited_env = TRUE WHERE id = $1 AND status = 'pending' AND started_at = 0`, x.ID)
	if err != nil {
		return fmt.Errorf("limit variables of deployment: %w", err)
	}
	return nil
}

// environment returns the variables of a build beyond those of every build, and the values that its log must hide.
func (d *Deployments) environment(
	ctx context.Context,
	s site.Site,
	x *deployment.Deployment,
	plan framework.Plan,
) (env map[string]string, secrets []build.Secret, err error) {
	vars, err := d.Variables(ctx, *x, "build")
	if err != nil {
		return nil, nil, err
	}
	env = map[string]string{
		"SLIPWAY":               "1",
		"SLIPWAY_SITE_ID":       string(s.ID),
		"SLIPWAY_SITE_NAME":     s.Name,
		"SLIPWAY_DEPLOYMENT":    string(x.ID),
		"SLIPWAY_DEPLOYMENT_ID": string(x.ID),
		"SLIPWAY_TARGET":        string(x.Target),
		"SLIPWAY_BRANCH":        x.Branch,
		"SLIPWAY_COMMIT":        cmp.Or(x.CommitHash, manifestCommit(*x)),
		"SLIPWAY_URL":           d.c.Sites.URL(s.Slug),
		"SLIPWAY_DEPLOY_URL":    x.URL,
	}
	if x.Pull > 0 {
		env["SLIPWAY_PULL_REQUEST"] = strconv.Itoa(x.Pull)
	}
	if x.Cause == deployment.ByHook {
		env["SLIPWAY_HOOK_TITLE"] = x.Title
		if env["SLIPWAY_HOOK_BODY"], err = d.c.Sites.OpenHookBody(s.ID, x.HookBody); err != nil {
			return nil, nil, err
		}
	}
	maps.Copy(env, otherHost(plan, *x, env))
	maps.Copy(env, plan.Env)
	for _, v := range vars {
		env[v.Key] = v.Value
		if v.Secret {
			secrets = append(secrets, build.Secret{Name: v.Key, Value: v.Value})
		}
	}
	cred, err := d.c.Sites.CredentialOf(ctx, s)
	if err != nil {
		return nil, nil, err
	}
	if cred != nil {
		secrets = append(secrets, build.Secret{Value: cred.Token}, build.Secret{Value: cred.DeployKey})
	}
	return env, secrets, nil
}

// otherHost returns the variables that Netlify or Vercel sets in builds, if the plan uses a setting from that host's
// file: its commands may read them. NETLIFY and VERCEL are left out, because frameworks would choose that host's
// adapter.
func otherHost(plan framework.Plan, x deployment.Deployment, env map[string]string) map[string]string {
	out := map[string]string{}
	pull := ""
	if x.Pull > 0 {
		pull = strconv.Itoa(x.Pull)
	}
	prime := cmp.Or(x.PreviewURL, x.URL)
	if plan.TakesFrom(framework.ByNetlify) {
		context := "production"
		switch {
		case pull != "":
			context, out["REVIEW_ID"] = "deploy-preview", pull
		case x.Target == deployment.Preview:
			context = "branch-deploy"
		}
		maps.Copy(out, map[string]string{
			"URL": env["SLIPWAY_URL"], "DEPLOY_URL": x.URL, "DEPLOY_PRIME_URL": prime, "CONTEXT": context, "BRANCH": x.Branch,
			"HEAD": x.Branch, "COMMIT_REF": env["SLIPWAY_COMMIT"], "DEPLOY_ID": string(x.ID), "PULL_REQUEST": strconv.FormatBool(pull != ""),
			"SITE_ID": env["SLIPWAY_SITE_ID"], "SITE_NAME": env["SLIPWAY_SITE_NAME"],
		})
	}
	if plan.TakesFrom(framework.ByVercel) {
		host := func(address string) string { return strings.TrimPrefix(address, "https://") }
		maps.Copy(out, map[string]string{
			"VERCEL_URL": host(x.URL), "VERCEL_BRANCH_URL": host(prime), "VERCEL_PROJECT_PRODUCTION_URL": host(env["SLIPWAY_URL"]),
			"VERCEL_TARGET_ENV": string(x.Target), "VERCEL_GIT_COMMIT_REF": x.Branch, "VERCEL_GIT_COMMIT_SHA": env["SLIPWAY_COMMIT"],
			"VERCEL_GIT_COMMIT_MESSAGE": x.CommitMessage, "VERCEL_GIT_COMMIT_AUTHOR_NAME": x.CommitAuthor,
			"VERCEL_GIT_PULL_REQUEST_ID": pull, "VERCEL_DEPLOYMENT_ID": string(x.ID),
		})
		if !strings.HasPrefix(plan.Output, ".output") { // Nitro would choose Vercel's adapter
			out["VERCEL_ENV"] = string(x.Target)
		}
	}
	return out
}
