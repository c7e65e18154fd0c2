// Package project owns how a commit becomes a plan: the kind of project, the site's settings,
// the build, the start command, and the background processes.
//
// It reads a commit without a checkout and changes nothing.
package project

import (
	"context"
	"fmt"

	"slipway/internal/build/framework"
	"slipway/internal/build/worktree"
	"slipway/internal/git/fetch"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/site"
)

// Tree is what becomes a plan: a commit, or what was uploaded.
type Tree interface {
	Files(ctx context.Context) ([]fetch.File, error)
	ReadFile(ctx context.Context, name string, max int64) ([]byte, error)
}

// Plan finds out what the commit is and what is to be done with it for the site.
func Plan(ctx context.Context, s site.Site, tree Tree) (framework.Plan, error) {
	o := framework.Overrides{
		Root:    s.Build.Root,
		Install: s.Build.Install,
		Command: s.Build.Command,
		Output:  s.Build.Output,
		Node:    s.Build.Node,
	}
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
	if err := check(plan); err != nil {
		return framework.Plan{}, err
	}
	if err := CheckInstances(s.Run, plan); err != nil {
		return framework.Plan{}, err
	}
	return plan, nil
}

// Content returns how the repository of a WordPress site becomes its wp-content.
func Content(ctx context.Context, s site.Site, tree Tree) (framework.Plan, error) {
	files, err := tree.Files(ctx)
	if err != nil {
		return framework.Plan{}, fmt.Errorf("list commit: %w", err)
	}
	plan, err := framework.Content(commit{
		ctx,
		tree,
		files,
	}, framework.Overrides{Root: s.Build.Root, Install: s.Build.Install, Command: s.Build.Command, Node: s.Build.Node})
	if err != nil {
		return framework.Plan{}, fmt.Errorf("detect: %w", err)
	}
	return plan, nil
}

// Detect returns the framework of a commit and how it would be built.
func Detect(ctx context.Context, tree Tree, o framework.Overrides) (framework.Plan, error) {
	files, err := tree.Files(ctx)
	if err != nil {
		return framework.Plan{}, fmt.Errorf("list commit: %w", err)
	}
	return framework.Detect(commit{ctx, tree, files}, o)
}

// commit lets detection read a commit without a checkout.
type commit struct {
	ctx   context.Context // of the deployment: one commit lives no longer than that
	tree  Tree
	files []fetch.File
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
		err = fmt.Errorf("%w: %w", worktree.ErrTooLarge, err)
	}
	return b, err
}
