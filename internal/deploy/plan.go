package deploy

import (
	"context"
	"encoding/json"
	"fmt"

	"slipway/internal/fault"
	"slipway/internal/framework"
	"slipway/internal/release"
	"slipway/internal/site"
	"slipway/internal/source"
)

// plan finds out what the commit is and what is to be done with it.
func (d *Deployments) plan(ctx context.Context, s site.Site, x *Deployment, tree *source.Tree, p *progress) (framework.Plan, error) {
	o := framework.Overrides{Root: s.Build.Root, Install: s.Build.Install, Command: s.Build.Command, Output: s.Build.Output, Node: s.Build.Node}
	if s.Framework != "" {
		o.Framework = &s.Framework
	}
	plan, err := Detect(ctx, tree, o)
	if err != nil {
		return framework.Plan{}, fmt.Errorf("detect: %w", err)
	}
	if c := s.Run.Command; c != nil {
		start := framework.Start{Command: framework.ParseCommand(*c), PortEnv: "PORT"}
		start.Command.Dir = plan.Root
		if plan.Start != nil {
			start.Storage, start.Temporary = plan.Start.Storage, plan.Start.Temporary
		}
		plan.Start = &start
		if plan.Runtime == framework.Static {
			plan.Runtime, plan.Why = framework.Node, "the site's settings say how it is started"
		}
	}
	if c := s.Run.Release; c != nil && plan.Runtime != framework.Static {
		release := framework.ParseCommand(*c)
		release.Dir, plan.Release = plan.Root, &release
	}
	if err := checkCommands(plan); err != nil {
		return framework.Plan{}, err
	}
	if x.Plan, err = json.Marshal(plan); err != nil {
		return framework.Plan{}, err
	}
	x.Framework = plan.Framework
	p.Printf("info", "%s: %s", plan.Name, plan.Why)
	for _, w := range plan.Warnings {
		p.Printf("warn", "%s", w)
	}
	if plan.Runtime != framework.Static && d.c.StartProgram != nil && plan.Start != nil {
		return plan, d.readyPHP(ctx, plan, p)
	}
	if plan.Runtime != framework.Static {
		return framework.Plan{}, &fault.Error{Kind: fault.Invalid, Message: fmt.Sprintf("This is a %s application that needs a running server", plan.Name),
			Details: d.cannotRun(plan.Runtime)}
	}
	return plan, nil
}

// Detect returns the framework of a commit and how it would be built.
func Detect(ctx context.Context, tree *source.Tree, o framework.Overrides) (framework.Plan, error) {
	files, err := tree.Files(ctx)
	if err != nil {
		return framework.Plan{}, fmt.Errorf("list commit: %w", err)
	}
	return framework.Detect(commit{ctx, tree, files}, o)
}

// commit lets detection look at a commit without checking it out.
type commit struct {
	ctx   context.Context // of the deployment: one commit lives no longer than that
	tree  *source.Tree
	files []source.File
}

// Paths lists the regular files.
func (c commit) Paths() []string {
	var out []string
	for _, f := range c.files {
		if f.Mode.IsRegular() {
			out = append(out, f.Path)
		}
	}
	return out
}

// ReadFile reads one of them, or the beginning of one that is too large.
func (c commit) ReadFile(name string, max int64) ([]byte, error) {
	b, err := c.tree.ReadFile(c.ctx, name, max)
	if fault.Is(err, fault.TooLarge) {
		err = fmt.Errorf("%w: %w", framework.ErrTooLarge, err)
	}
	return b, err
}

// release makes a release of what the plan says, building first where it says so.
func (d *Deployments) release(ctx context.Context, s site.Site, x *Deployment, tree *source.Tree, plan framework.Plan, p *progress) (release.Sealed, error) {
	if len(plan.Install)+len(plan.Build) > 0 || plan.Runtime != framework.Static {
		return d.built(ctx, s, x, tree, plan, p)
	}
	return d.publishCommit(ctx, s, tree, plan, p)
}
