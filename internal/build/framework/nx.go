package framework

import (
	"encoding/json"
	"path"
	"strings"

	"slipway/internal/build/configfile"
	"slipway/internal/build/worktree"
)

// An integrated Nx workspace has one package.json at its root and a project.json in each app. Builds write to a folder
// at the root, so the plan works there, whichever root directory the site names.

func nxApps() []preset {
	return []preset{{
		Preset: Preset{"nx", "Nx", Static},
		match: func(p *project) string {
			top, ok := p.nxTop()
			if !ok || p.pkg != nil && p.root != top {
				return ""
			}
			f := p.nxProject()
			if f == nil || configfile.Text(f["projectType"]) == "library" ||
				p.any("index.html", "src/index.html", "public/index.html") == "" {
				return ""
			}
			return worktree.Join(p.root, "project.json") + " is an application of the Nx workspace"
		},
		plan: func(p *project, d *draft) {
			f, dir := p.nxProject(), p.root
			name := configfile.Text(f["name"])
			if name == "" {
				name = path.Base(dir)
			}
			top, _ := p.nxTop()
			*p = *p.at(top)
			d.Root = top
			m := p.js(d)
			d.Build = []Command{m.Exec(top, "nx", "run", name+":build")}
			rel := strings.TrimPrefix(strings.TrimPrefix(dir, top), "/")
			build := configfile.Members(configfile.Members(f["targets"])["build"])
			out := configfile.Text(configfile.Members(build["options"])["outputPath"])
			out = strings.NewReplacer("{workspaceRoot}/", "", "{projectRoot}", rel, "{projectName}", name).Replace(out)
			d.output(out, path.Join("dist", rel), path.Join("dist", rel, "browser"), worktree.Join(rel, "dist"))
			d.cache(".nx/cache")
			d.env("NX_DAEMON", "false")
		},
	}}
}

// nxTop returns the nearest parent folder with nx.json.
func (p *project) nxTop() (string, bool) {
	for _, dir := range worktree.Upward(p.root) {
		if p.t.Has(worktree.Join(dir, "nx.json")) {
			return dir, p.t.Manifest(dir).Dep("nx") != ""
		}
	}
	return "", false
}

func (p *project) nxProject() map[string]json.RawMessage {
	var f map[string]json.RawMessage
	p.t.JSON(worktree.Join(p.root, "project.json"), &f)
	return f
}
