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

// program is what a deployment runs.
type program struct {
	Site       site.Site
	Bundle     bundle.ID
	Start      framework.Start
	Root       string   // the project's folder in the bundle
	Node       string   // required version of Node.js; "" for any
	PHP        string   // constraint in composer.json; "" for any
	Extensions []string // of PHP that composer.json requires
	Runtime    string   // framework.Node or framework.PHP
	Env        map[string]string

	// Preview is the deployment's preview, and Store names the preview's storage. Isolated programs get no databases
	// and no lasting storage: a fork's pull request, whose author must not see stored data, or an ended preview.
	Preview  string
	Store    string
	Isolated bool

	Run       site.Run // from slipway.toml; the site's settings override it
	Processes []framework.Process
	Crons     []framework.Cron

	Content []string // WordPress: the folders of wp-content in the repository

	Secrets []string // values to redact in logs
}

// programOfDeployment returns what a deployment runs, with the site's current settings and variables. It returns a
// NotFound fault if the deployment has no program or is no longer stored.
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

// programFromBackup returns the production program in a site's backup, with the backup's variables and the address url.
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
	env := maps.Clone(plan.Env) // variables of the framework, such as APP_ENV, as in the build
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
		Site:       s,
		Bundle:     x.Bundle,
		Start:      *plan.Start,
		Root:       plan.Root,
		Node:       plan.Node,
		PHP:        plan.Asks("php"),
		Extensions: plan.Extensions(),
		Runtime:    plan.Runtime,
		Env:        env,
		Secrets:    secrets,
		Content:    plan.Content,
		Run:        project.RunSettings(plan.Run),
		Processes:  plan.Processes,
		Crons:      plan.Crons,
	}, nil
}
