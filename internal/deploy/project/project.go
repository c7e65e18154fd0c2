// Package project owns planning how a commit is built and run: the kind of project, the site's settings, the build, the
// start command and the background processes.
//
// It reads a commit without a checkout and changes nothing.
package project

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"

	"slipway/internal/build/framework"
	"slipway/internal/build/worktree"
	"slipway/internal/git/fetch"
	"slipway/internal/tenant/site"
)

// Tree is the source of a plan: a commit or an upload.
type Tree interface {
	fetch.Reader
	Files(ctx context.Context) ([]fetch.File, error)
}

// Plan detects the kind of project and returns how to build and run it for the site, whose variables may choose versions.
func Plan(ctx context.Context, s site.Site, variables map[string]string, tree Tree) (framework.Plan, error) {
	o := framework.Overrides{
		Root:    s.Build.Root,
		Install: s.Build.Install,
		Command: s.Build.Command,
		Output:  s.Build.Output,
		Node:    s.Build.Node,
		Place:   framework.Place{DocumentRoot: s.Run.DocumentRoot, FrontController: s.Run.FrontController, Passthru: s.Run.Passthru},

		Variables: variables,
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
			start.DocumentRoot, start.Closed, start.Rules = plan.Start.DocumentRoot, plan.Start.Closed, plan.Start.Rules
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
	if c := cmp.Or(s.Run.Closed, RunSettings(plan.Run).Closed); c != nil && plan.Runtime == framework.PHP {
		plan.Start.Closed = append(plan.Start.Closed, *c...)
	}
	if err := CheckInstances(s.Run, plan); err != nil {
		return framework.Plan{}, err
	}
	return plan, nil
}

// Content returns the plan that turns the repository of a WordPress site into its wp-content.
func Content(ctx context.Context, s site.Site, variables map[string]string, tree Tree) (framework.Plan, error) {
	files, err := open(ctx, tree)
	if err != nil {
		return framework.Plan{}, err
	}
	plan, err := framework.Content(files, framework.Overrides{
		Root: s.Build.Root, Install: s.Build.Install, Command: s.Build.Command, Output: s.Build.Output, Node: s.Build.Node,
		Variables: variables,
	}, s.Repository)
	if err != nil {
		return framework.Plan{}, fmt.Errorf("detect: %w", err)
	}
	return plan, nil
}

// Detect returns the framework of a commit and how it would be built.
func Detect(ctx context.Context, tree Tree, o framework.Overrides) (framework.Plan, error) {
	files, err := open(ctx, tree)
	if err != nil {
		return framework.Plan{}, err
	}
	return framework.Detect(files, o)
}

// commit lets detection read a commit without a checkout.
type commit struct {
	ctx      context.Context // of the deployment; a commit doesn't outlive it
	tree     Tree
	files    map[string]fetch.File // with links followed
	dangling []string
}

func open(ctx context.Context, tree Tree) (commit, error) {
	c := commit{ctx: ctx, tree: tree, files: map[string]fetch.File{}}
	all, err := tree.Files(ctx)
	if err != nil {
		return c, fmt.Errorf("list commit: %w", err)
	}
	files, left, err := fetch.Follow(ctx, tree, all)
	if err != nil {
		return c, err
	}
	for _, f := range files {
		c.files[f.Path] = f.File
	}
	for _, f := range left {
		c.dangling = append(c.dangling, f.Path)
	}
	return c, nil
}

func (c commit) Paths() []string { return slices.Sorted(maps.Keys(c.files)) }

func (c commit) Dangling() []string { return c.dangling }

func (c commit) ReadFile(name string, max int64) (b []byte, err error) {
	f, ok := c.files[name]
	if !ok {
		return nil, fmt.Errorf("read %q: %w", name, fs.ErrNotExist)
	}
	err = c.tree.Read(c.ctx, []fetch.File{f}, func(_ fetch.File, r io.Reader) error {
		if b, err = io.ReadAll(io.LimitReader(r, max)); err == nil && f.Size > max {
			err = worktree.ErrTooLarge
		}
		return err
	})
	return b, err
}
