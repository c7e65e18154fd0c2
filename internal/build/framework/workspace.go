package framework

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"slipway/internal/build/worktree"
)

// siblings returns the workspace members that must be built before the project, in order.
func (p *project) siblings() (order []string) {
	for _, dir := range p.needs() {
		if s, _ := p.t.Manifest(dir).Script("build"); s != "" {
			order = append(order, dir)
		}
	}
	return order
}

// uses returns the folders of the project and of the members that it needs; nil if it isn't in a workspace.
func (p *project) uses() []string {
	if _, ok := p.t.WorkspaceOf(p.root); !ok || p.pkg == nil || p.root == "" {
		return nil
	}
	return append(p.needs(), p.root)
}

// needs returns the project's direct and indirect dependencies in the workspace, each after its own dependencies.
func (p *project) needs() (order []string) {
	w, ok := p.t.WorkspaceOf(p.root)
	if !ok || p.pkg == nil {
		return nil
	}
	dirs := map[string]string{}
	for _, dir := range p.t.Members(w) {
		if m := p.t.Manifest(dir); m != nil && m.Name != "" && dirs[m.Name] == "" {
			dirs[m.Name] = dir
		}
	}
	seen := map[string]bool{p.root: true}
	var visit func(m *worktree.Manifest, depth int)
	visit = func(m *worktree.Manifest, depth int) {
		for _, name := range append(worktree.SortedKeys(m.Prod), worktree.SortedKeys(m.Dev)...) {
			dir, ok := dirs[name]
			if !ok || seen[dir] || depth > worktree.MaxMembers {
				continue
			}
			seen[dir] = true
			visit(p.t.Manifest(dir), depth+1)
			order = append(order, dir)
		}
	}
	visit(p.pkg, 0)
	return order
}

// app is a folder that may be the site.
type app struct {
	p    *project
	by   *preset
	why  string
	tier tier
}

// pick returns the only app among dirs, or nil if there is none. what describes dirs in error messages.
func (p *project) pick(dirs []string, what string) (*app, error) {
	var best []app
	for _, dir := range dirs {
		sub := p.at(dir)
		by, why := sub.first(library)
		if by == nil {
			continue
		}
		a := app{sub, by, why, by.tier}
		if a.tier == site && by.server && !sub.builds() {
			a.tier = weak // it would run, but may not be the workspace's app
		}
		if len(best) > 0 && a.tier > best[0].tier {
			continue
		}
		if len(best) > 0 && a.tier < best[0].tier {
			best = best[:0]
		}
		best = append(best, a)
	}
	switch len(best) {
	case 0:
		return nil, nil
	case 1:
		a := best[0]
		a.why = fmt.Sprintf("%s is the only app %s: %s", a.p.root, what, a.why)
		return &a, nil
	}
	names := make([]string, 0, 10)
	for _, a := range best[:min(len(best), 10)] {
		names = append(names, fmt.Sprintf("%s (%s)", a.p.root, a.by.Name))
	}
	if len(best) > 10 {
		names = append(names, fmt.Sprintf("and %d more", len(best)-10))
	}
	return nil, invalid("The repository contains several apps: "+strings.Join(names, ", "),
		"set the site's root directory, or build.root in slipway.toml, to one of them", nil)
}

// builds reports whether package.json has a build script.
func (p *project) builds() bool {
	name, _ := p.pkg.Script("build")
	return name != ""
}

// nested lists folders up to three levels below the project that may contain an app, for repositories whose root
// doesn't.
func (p *project) nested() []string {
	var out, php []string
	for _, f := range p.t.List {
		rel := f
		if p.root != "" {
			var ok bool
			if rel, ok = strings.CutPrefix(f, p.root+"/"); !ok {
				continue
			}
		}
		dir := worktree.Parent(f)
		if n := strings.Count(rel, "/"); n < 1 || n > 3 || slices.Contains(out, dir) || len(out) >= worktree.MaxMembers {
			continue
		}
		if slices.ContainsFunc(strings.Split(worktree.Parent(rel), "/"), aside) {
			continue
		}
		switch path.Base(f) {
		case "package.json", "project.json", "composer.json", "hugo.toml", "hugo.yaml", "mkdocs.yml", "book.toml", "_config.yml":
			out = append(out, dir)
		case "index.php":
			if len(php) < worktree.MaxMembers {
				php = append(php, dir)
			}
		}
	}
	above := slices.Concat(out, php)
	for _, dir := range php { // folders below it have pages of the same app
		if !slices.ContainsFunc(worktree.Upward(dir)[1:], func(up string) bool { return up != "" && slices.Contains(above, up) }) &&
			!slices.Contains(out, dir) && len(out) < worktree.MaxMembers {
			out = append(out, dir)
		}
	}
	return out
}

// aside reports whether a folder's name says that it isn't the site, such as examples.
func aside(name string) bool {
	switch strings.ToLower(name) {
	case "node_modules", "vendor", "test", "tests", "__tests__", "fixtures", "testdata", "e2e", "example", "examples", "templates":
		return true
	}
	return strings.HasPrefix(name, ".")
}
