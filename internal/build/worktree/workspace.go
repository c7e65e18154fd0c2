package worktree

import (
	"encoding/json"
	"path"
	"strings"

	"slipway/internal/build/configfile"
)

const (
	maxPattern = 128    // bytes of one
	MaxMembers = 200    // folders with a package.json
	maxGlobs   = 20_000 // matches tried
)

// Workspace is a folder whose package.json or pnpm-workspace.yaml lists its members' folders.
type Workspace struct {
	Dir      string
	Patterns []string
	Source   string // the file that lists them
}

// WorkspaceAt returns the workspace whose root is dir, if there is one.
func (t *Tree) WorkspaceAt(dir string) (Workspace, bool) {
	if name := Join(dir, "pnpm-workspace.yaml"); t.Names(name) {
		if list := configfile.YAMLList(t.Config(name), "packages"); len(list) > 0 {
			return Workspace{dir, list, name}, true
		}
	}
	if m := t.Manifest(dir); m != nil && m.isWorkspace && len(m.workspaces) > 0 {
		return Workspace{dir, m.workspaces[:min(len(m.workspaces), configfile.MaxPatterns)], Join(dir, "package.json")}, true
	}
	// Lerna's own list was replaced by those of the package managers.
	if name := Join(dir, "lerna.json"); t.Names(name) {
		var f struct{ Packages []string }
		if t.JSON(name, &f) && len(f.Packages) > 0 {
			return Workspace{dir, f.Packages[:min(len(f.Packages), configfile.MaxPatterns)], name}, true
		}
	}
	return Workspace{}, false
}

// WorkspaceOf returns the workspace that dir is the root or a member of.
func (t *Tree) WorkspaceOf(dir string) (Workspace, bool) {
	for _, at := range Upward(dir) {
		if w, ok := t.WorkspaceAt(at); ok && (at == dir || w.Holds(dir)) {
			return w, true
		}
	}
	return Workspace{}, false
}

// Holds reports whether a folder is a member. The last matching pattern decides; `!` excludes.
func (w Workspace) Holds(dir string) bool {
	rel := strings.TrimPrefix(strings.TrimPrefix(dir, w.Dir), "/")
	if rel == "" || len(dir) <= len(w.Dir) {
		return false
	}
	in := false
	for _, p := range w.Patterns {
		p, not := strings.CutPrefix(p, "!")
		p = strings.TrimSuffix(strings.TrimPrefix(strings.TrimPrefix(p, "./"), "/"), "/")
		if len(p) <= maxPattern && len(rel) <= 256 && glob(strings.Split(p, "/"), strings.Split(rel, "/")) {
			in = !not
		}
	}
	return in
}

// Members lists the members' folders that have a package.json.
func (t *Tree) Members(w Workspace) []string {
	var out []string
	tries := maxGlobs
	for _, p := range t.List {
		if path.Base(p) != "package.json" || strings.Contains(p, "node_modules/") {
			continue
		}
		tries -= len(w.Patterns)
		if tries < 0 {
			t.cut = true
			break
		}
		if dir := Parent(p); w.Holds(dir) {
			out = append(out, dir)
			if len(out) >= MaxMembers {
				break
			}
		}
	}
	return out
}

// glob matches a path against a pattern, folder by folder; `**` matches any number of folders. Its cost is bounded by
// the product of their lengths.
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

// Manifest returns a folder's package.json; nil if there is none. If npm couldn't read it, Err says so.
func (t *Tree) Manifest(dir string) *Manifest {
	if m, ok := t.manifests[dir]; ok {
		return m
	}
	var m *Manifest
	var raw map[string]json.RawMessage
	if t.JSON(Join(dir, "package.json"), &raw) {
		m = newManifest(raw)
	}
	t.manifests[dir] = m
	return m
}
