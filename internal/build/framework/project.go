package framework

import (
	"strings"

	"slipway/internal/build/configfile"
	"slipway/internal/build/worktree"
)

// project is one folder of the tree as presets see it: its files, its package.json and its settings.
type project struct {
	t    *worktree.Tree
	s    settings
	root string
	pkg  *worktree.Manifest // nil if there is no readable package.json
}

func newProject(t *worktree.Tree, s settings) *project {
	return (&project{t: t, s: s}).at(s.root.text)
}

// at returns the project for another folder.
func (p *project) at(dir string) *project {
	return &project{t: p.t, s: p.s, root: dir, pkg: p.t.Manifest(dir)}
}

func (p *project) has(name string) bool { return p.t.Has(worktree.Join(p.root, name)) }

func (p *project) hasDir(name string) bool { return p.t.HasDir(worktree.Join(p.root, name)) }

func (p *project) read(name string) string { return p.t.Read(worktree.Join(p.root, name)) }

func (p *project) parsed(name string) string { return p.t.Config(worktree.Join(p.root, name)) }

// configured reports whether the folder contains a configuration file.
func (p *project) configured() bool { return p.any(bySlipway, ByNetlify, ByVercel) != "" }

// any returns the first of these files that exists in the folder, or "".
func (p *project) any(names ...string) string {
	for _, n := range names {
		if p.has(n) {
			return n
		}
	}
	return ""
}

// config returns the code and the name of the first of name.js, name.mjs, name.ts, … that exists.
func (p *project) config(names ...string) (src, file string) {
	for _, n := range names {
		for _, ext := range []string{".js", ".mjs", ".ts", ".cjs", ".mts", ".cts"} {
			if p.has(n + ext) {
				return configfile.Code(p.read(n + ext)), n + ext
			}
		}
	}
	return "", ""
}

// command returns the build command: the configured one, or the script.
func (p *project) command(scripts ...string) string {
	if p.s.command.ok() {
		return p.s.command.text
	}
	if len(scripts) == 0 {
		scripts = []string{"build"}
	}
	_, body := p.pkg.Script(scripts...)
	return body
}

// js adds to a plan what all Node.js projects have: package manager, Node.js, installation and package caches.
func (p *project) js(d *draft) worktree.Manager {
	dir := p.installDir()
	m := p.t.FindManager(dir)
	d.Manager, d.ManagerVersion = m.Name, m.Version
	d.Sources["manager"] = m.Source
	p.node(d)
	d.Install = m.Install()
	d.Modules, d.Inputs, d.Scripts = p.modules(m)
	d.cache(m.Stores()...)
	if m.Berry && !p.t.HasDir(worktree.Join(dir, ".yarn/cache")) && dir == p.root {
		d.cache(".yarn/cache")
	}
	return m
}

// hooks lists the project's own scripts that an installation runs, in order.
var hooks = []string{"preinstall", "install", "postinstall", "prepublish", "preprepare", "prepare", "postprepare"}

// modules returns the folders that an installation fills, the files that determine their content, and the project's own
// scripts, which also run if the folders are reused.
func (p *project) modules(m worktree.Manager) (filled, inputs []string, scripts []Command) {
	folders := []string{m.Dir}
	if w, ok := p.t.WorkspaceOf(p.root); ok && w.Dir == m.Dir {
		folders = append(folders, p.t.Members(w)...)
	}
	reusable := m.Lock != "" && !m.Berry // Yarn Berry may store packages in a single file, or in no file
	for _, dir := range folders {
		filled = append(filled, worktree.Join(dir, "node_modules"))
		pkg := p.t.Manifest(dir)
		for _, hook := range hooks {
			name, body := pkg.Script(hook)
			switch {
			case name == "":
			case strings.Contains(body, "patch-package"): // it would patch already patched files
				reusable = false
			case pkg.Wraps(name) && m.Name != "pnpm": // "run" runs it together with the script that it belongs to
			default:
				scripts = append(scripts, m.Run(dir, name))
			}
		}
		for _, f := range []string{"package.json", m.Lock, ".npmrc", "pnpm-workspace.yaml", ".pnpmfile.cjs", "bunfig.toml", ".yarnrc"} {
			if name := worktree.Join(dir, f); f != "" && p.t.Has(name) {
				inputs = append(inputs, name)
			}
		}
	}
	for _, dir := range folders { // patch files of patch-package and pnpm patch
		if p.t.HasDir(worktree.Join(dir, "patches")) {
			reusable = false
		}
	}
	if !reusable {
		inputs, scripts = nil, nil
	}
	return filled, inputs, scripts
}

// installDir returns where packages are installed: the workspace's root, unless only the member has a lock file.
func (p *project) installDir() string {
	w, ok := p.t.WorkspaceOf(p.root)
	if !ok || w.Dir == p.root {
		return p.root
	}
	lockAt := func(dir string) bool {
		for _, l := range worktree.LockFiles {
			if p.t.Has(worktree.Join(dir, l.File)) {
				return true
			}
		}
		return false
	}
	if lockAt(p.root) && !lockAt(w.Dir) {
		return p.root
	}
	return w.Dir
}

// build sets the build step: the first existing script, else the program. Workspace members that the project depends on
// are built first.
func (p *project) build(d *draft, m worktree.Manager, scripts []string, argv ...string) {
	name, _ := p.pkg.Script(scripts...)
	p.script(d, m, name, argv...)
}

// script is build for a known script.
func (p *project) script(d *draft, m worktree.Manager, name string, argv ...string) {
	if name == "build" && p.turbo(d, m) {
		return
	}
	if m.Dir != p.root {
		for _, dir := range p.siblings() {
			d.Build = append(d.Build, m.Run(dir, "build"))
		}
	}
	switch {
	case name != "":
		d.Build = append(d.Build, m.Run(p.root, name))
	case len(argv) > 0:
		d.Build = append(d.Build, m.Exec(p.root, argv...))
	}
}

// turbo lets Turborepo order the builds if the workspace uses it. Turborepo 2 requires packageManager in package.json.
func (p *project) turbo(d *draft, m worktree.Manager) bool {
	top := p.t.Manifest(m.Dir)
	name := p.t.AnyIn(m.Dir, "turbo.json", "turbo.jsonc")
	if m.Dir == p.root || name == "" || top == nil || top.Dep("turbo") == "" || top.Manager == "" {
		return false
	}
	if !strings.Contains(configfile.Code(p.t.Read(name)), `"build"`) {
		return false
	}
	argv := []string{"turbo", "run", "build", "--filter=./" + strings.TrimPrefix(strings.TrimPrefix(p.root, m.Dir), "/")}
	if worktree.Major(top.Version("turbo")) != 1 {
		argv = append(argv, "--env-mode=loose") // else the build doesn't get the site's variables
	}
	d.Build = append(d.Build, m.Exec(m.Dir, argv...))
	d.env("TURBO_TELEMETRY_DISABLED", "1")
	return true
}

// dependsOn returns the reason for a match by dependency.
func dependsOn(name string) string { return "package.json depends on " + name }
