package framework

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

const (
	maxPatterns = 50
	maxPattern  = 128    // bytes of one
	maxMembers  = 200    // folders with a package.json
	maxGlobs    = 20_000 // matches tried to find them
)

// workspace is a folder whose package.json or pnpm-workspace.yaml names the folders of
// its members.
type workspace struct {
	dir      string
	patterns []string
	source   string // the file that names them
}

// workspaceAt reads the workspace that dir declares, if it does.
func (t *tree) workspaceAt(dir string) (workspace, bool) {
	if name := join(dir, "pnpm-workspace.yaml"); t.has(name) {
		if list := yamlList(t.config(name), "packages"); len(list) > 0 {
			return workspace{dir, list, name}, true
		}
	}
	if m := t.manifest(dir); m != nil && m.isWorkspace && len(m.workspaces) > 0 {
		return workspace{dir, m.workspaces[:min(len(m.workspaces), maxPatterns)], join(dir, "package.json")}, true
	}
	// Lerna's own list is older than those of the managers.
	if name := join(dir, "lerna.json"); t.has(name) {
		var f struct{ Packages []string }
		if jsonc(t.config(name), &f) && len(f.Packages) > 0 {
			return workspace{dir, f.Packages[:min(len(f.Packages), maxPatterns)], name}, true
		}
	}
	return workspace{}, false
}

// workspaceOf finds the workspace that dir is the top or a member of.
func (t *tree) workspaceOf(dir string) (workspace, bool) {
	for _, at := range upward(dir) {
		if w, ok := t.workspaceAt(at); ok && (at == dir || w.holds(dir)) {
			return w, true
		}
	}
	return workspace{}, false
}

// holds reports whether a folder is a member. The last pattern that matches decides,
// and one with `!` excludes.
func (w workspace) holds(dir string) bool {
	rel := strings.TrimPrefix(strings.TrimPrefix(dir, w.dir), "/")
	if rel == "" || len(dir) <= len(w.dir) {
		return false
	}
	in := false
	for _, p := range w.patterns {
		p, not := strings.CutPrefix(p, "!")
		p = strings.TrimSuffix(strings.TrimPrefix(strings.TrimPrefix(p, "./"), "/"), "/")
		if len(p) <= maxPattern && len(rel) <= 256 && glob(strings.Split(p, "/"), strings.Split(rel, "/")) {
			in = !not
		}
	}
	return in
}

// members lists the folders of the members that have a package.json.
func (t *tree) members(w workspace) []string {
	var out []string
	tries := maxGlobs
	for _, p := range t.list {
		if path.Base(p) != "package.json" || strings.Contains(p, "node_modules/") {
			continue
		}
		if tries -= len(w.patterns); tries < 0 {
			t.cut = true
			break
		}
		if dir := parent(p); w.holds(dir) {
			if out = append(out, dir); len(out) >= maxMembers {
				break
			}
		}
	}
	return out
}

// glob matches a path against a pattern, folder by folder; `**` is any number of them.
// Its cost is bounded by their product.
func glob(pattern, names []string) bool {
	reach := make([]bool, len(names)+1) // reach[i]: the pattern so far matches names[:i]
	reach[0] = true
	for _, p := range pattern {
		next := make([]bool, len(names)+1)
		if p == "**" {
			on := false
			for i := range reach {
				on = on || reach[i]
				next[i] = on
			}
		} else {
			for i, n := range names {
				if reach[i] {
					ok, err := path.Match(p, n)
					next[i+1] = ok && err == nil
				}
			}
		}
		reach = next
	}
	return reach[len(names)]
}

// manifest returns a folder's package.json, nil when there is none or it is not JSON.
func (t *tree) manifest(dir string) *manifest {
	if m, ok := t.manifests[dir]; ok {
		return m
	}
	var m *manifest
	if name := join(dir, "package.json"); t.has(name) {
		var ok bool
		src := t.config(name)
		switch m, ok = parseManifest(src); {
		case ok || src == "": // of one that is too large, config has warned
		case checkJSON(src) != nil:
			t.warn(fmt.Sprintf("%s is %s and is ignored", name, checkJSON(src)))
		default:
			t.warn(name + " is not valid JSON and is ignored")
		}
	}
	t.manifests[dir] = m
	return m
}

// siblings returns the members that the project needs built before itself, in the
// order in which they have to be.
func (p *project) siblings() (order []string) {
	for _, dir := range p.needs() {
		if s, _ := p.t.manifest(dir).script("build"); s != "" {
			order = append(order, dir)
		}
	}
	return order
}

// uses returns the project's folder and those of the members that it needs; nil where it is
// a member of no workspace.
func (p *project) uses() []string {
	if _, ok := p.t.workspaceOf(p.root); !ok || p.pkg == nil || p.root == "" {
		return nil
	}
	return append(p.needs(), p.root)
}

// needs returns the members of the workspace that the project depends on, however far, each
// behind those that it depends on itself.
func (p *project) needs() (order []string) {
	w, ok := p.t.workspaceOf(p.root)
	if !ok || p.pkg == nil {
		return nil
	}
	dirs := map[string]string{}
	for _, dir := range p.t.members(w) {
		if m := p.t.manifest(dir); m != nil && m.name != "" && dirs[m.name] == "" {
			dirs[m.name] = dir
		}
	}
	seen := map[string]bool{p.root: true}
	var visit func(m *manifest, depth int)
	visit = func(m *manifest, depth int) {
		for _, name := range append(sortedKeys(m.prod), sortedKeys(m.dev)...) {
			dir, ok := dirs[name]
			if !ok || seen[dir] || depth > maxMembers {
				continue
			}
			seen[dir] = true
			visit(p.t.manifest(dir), depth+1)
			order = append(order, dir)
		}
	}
	visit(p.pkg, 0)
	return order
}

// app is a folder that could be the site.
type app struct {
	p    *project
	by   *preset
	why  string
	tier tier
}

// pick looks for the one folder among dirs that is an app. What says where they come
// from, for the sentence the owner reads. Nothing found is a nil app and no error.
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
			a.tier = weak // it would run, but nothing says that it is what the workspace is for
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
	name, _ := p.pkg.script("build")
	return name != ""
}

// nested lists the folders below the project, at most three deep, in which an app of
// its own may stand, for repositories whose top is not one.
func (p *project) nested() []string {
	var out []string
	for _, f := range p.t.list {
		rel := f
		if p.root != "" {
			var ok bool
			if rel, ok = strings.CutPrefix(f, p.root+"/"); !ok {
				continue
			}
		}
		dir := parent(f)
		if n := strings.Count(rel, "/"); n < 1 || n > 3 || slices.Contains(out, dir) || len(out) >= maxMembers {
			continue
		}
		if slices.ContainsFunc(strings.Split(parent(rel), "/"), aside) {
			continue
		}
		switch path.Base(f) {
		case "package.json", "project.json", "composer.json", "hugo.toml", "hugo.yaml", "mkdocs.yml", "book.toml", "_config.yml":
			out = append(out, dir)
		}
	}
	return out
}

// aside reports whether a folder's name says that what it holds is not the site.
func aside(name string) bool {
	switch strings.ToLower(name) {
	case "node_modules", "vendor", "test", "tests", "__tests__", "fixtures", "testdata", "e2e", "example", "examples", "templates":
		return true
	}
	return strings.HasPrefix(name, ".")
}
