package launch

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"slipway/internal/build/bundle"
	"slipway/internal/build/framework"
	"slipway/internal/deploy/deployment"
	"slipway/internal/deploy/preview"
	"slipway/internal/deploy/project"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/site"
)

// program holds the program of a deployment.
type program struct {
	Site    site.Site
	Bundle  bundle.ID
	Start   framework.Start
	Root    string // the project's folder in the bundle
	Node    string // version of Node.js, "" for whatever there is
	PHP     string // constraint of composer.json, "" for any
	Runtime string // framework.Node or framework.PHP
	Env     map[string]string

	// Preview is the one that it is of, and Store names that one's storage. Isolated has neither
	// databases nor storage that outlives it: a fork's pull request, whose author must not see
	// what the site and its previews have stored, or a preview that has ended.
	Preview  string
	Store    string
	Isolated bool

	Run       site.Run // what slipway.toml says; the site's own settings go before it
	Processes []framework.Process
	Crons     []framework.Cron

	Content []string // of WordPress: the folders of wp-content that the repository holds

	Secrets []string // values that no log shows
}

// programOfDeployment returns what a deployment runs, with the site's settings and variables as they
// are now. It is a NotFound fault where the deployment has no program, or it is no longer
// stored.
func (l *Launch) programOfDeployment(ctx context.Context, id deployment.ID) (program, error) {
	x, s, err := l.c.Deployments.Lookup(ctx, id)
	if err != nil {
		return program{}, err
	}
	if x.Bundle == "" || len(x.Plan) == 0 {
		return program{}, fault.Missing("program")
	}
	vars, err := l.c.Deployments.Variables(ctx, x, "runtime")
	if err != nil {
		return program{}, err
	}
	p, err := programOf(s, x, vars, l.c.Sites.URL(s.Slug))
	if err != nil || x.Target != deployment.Preview {
		return p, err
	}
	if !x.Fork {
		if p.Preview, err = l.c.Previews.KeyOf(ctx, s.ID, x.Branch, x.Pull); err != nil {
			return p, err
		}
	}
	if p.Preview == "" {
		p.Isolated = true
	} else {
		p.Store = preview.Store(p.Preview)
	}
	return p, nil
}

// programFromBackup returns what a site runs in production that a backup holds: with the variables
// of then, at the address url.
func programFromBackup(s site.Site, live deployment.Live, vars []site.NewVar, url string) (program, error) {
	var list []site.Var
	for _, v := range vars {
		x := site.Var{Key: v.Key, Value: v.Value, Secret: v.Secret, Target: v.Target, Branch: v.Branch}
		if slices.Contains(v.Target, "runtime") && x.Scope() != string(deployment.Preview) && v.Branch == "" {
			list = append(list, x)
		}
	}
	return programOf(s, deployment.Deployment{
		Site:       s.ID,
		Bundle:     live.Bundle,
		Plan:       live.Plan,
		Branch:     live.Branch,
		CommitHash: live.CommitHash,
		Target:     deployment.Production,
	}, list, url)
}

func programOf(s site.Site, x deployment.Deployment, vars []site.Var, url string) (program, error) {
	var plan framework.Plan
	if err := json.Unmarshal(x.Plan, &plan); err != nil {
		return program{}, fmt.Errorf("read plan of %s: %w", s.ID, err)
	}
	if plan.Start == nil {
		return program{}, fault.Missing("program")
	}
	env := maps.Clone(plan.Env) // as the build has them: APP_ENV of a framework
	if env == nil {
		env = map[string]string{}
	}
	maps.Copy(env, map[string]string{
		"SLIPWAY": "1", "SLIPWAY_SITE_ID": string(s.ID), "SLIPWAY_DEPLOYMENT_ID": string(x.ID), "SLIPWAY_COMMIT": x.CommitHash,
		"SLIPWAY_BRANCH": x.Branch, "SLIPWAY_TARGET": string(x.Target), "SLIPWAY_URL": url,
	})
	var secrets []string
	for _, v := range vars {
		env[v.Key] = v.Value
		if v.Secret {
			secrets = append(secrets, v.Value)
		}
	}
	return program{
		Site:      s,
		Bundle:    x.Bundle,
		Start:     *plan.Start,
		Root:      plan.Root,
		Node:      plan.Node,
		PHP:       plan.Asks("php"),
		Runtime:   plan.Runtime,
		Env:       env,
		Secrets:   secrets,
		Content:   plan.Content,
		Run:       project.RunSettings(plan.Run),
		Processes: plan.Processes,
		Crons:     plan.Crons,
	}, nil
}
