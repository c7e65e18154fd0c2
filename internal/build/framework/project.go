package framework

import (
	"strings"

	"slipway/internal/build/configfile"
	"slipway/internal/build/worktree"
)

// project is one folder of the tree as presets see it: its files, its package.json,
// and what was said about it.
type project struct {
	t    *worktree.Tree
	s    settings
	root string
	pkg  *worktree.Manifest // nil without a readable package.json
}

func newProject(t *worktree.Tree, s settings) *project {
	return (&project{t: t, s: s}).at(s.root.text)
}

// at is the same question about another folder.
func (p *project) at(dir string) *project {
	return &project{t: p.t, s: p.s, root: dir, pkg: p.t.Manifest(dir)}
}

func (p *project) has(name string) bool { return p.t.Has(worktree.Join(p.root, name)) }

func (p *project) hasDir(name string) bool { return p.t.HasDir(worktree.Join(p.root, name)) }

func (p *project) read(name string) string { return p.t.Read(worktree.Join(p.root, name)) }

func (p *project) parsed(name string) string { return p.t.Config(worktree.Join(p.root, name)) }

// configured reports whether the folder holds a file with settings.
func (p *project) configured() bool { return p.any(bySlipway, ByNetlify, ByVercel) != "" }

// any returns the first of these files that the folder holds, or "".
func (p *project) any(names ...string) string {
	for _, n := range names {
		if p.has(n) {
			return n
		}
	}
	return ""
}

// config returns the code of the first of name.js, name.mjs, name.ts, …, and its name.
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

// command is the build as it will be typed: the user's own text, or the script.
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

// js lays down what every Node project has in common: the manager, Node, the frozen
// installation, the caches of packages.
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

// hooks are the scripts that an installation runs for the project itself, in its order.
var hooks = []string{"preinstall", "install", "postinstall", "prepublish", "preprepare", "prepare", "postprepare"}

// modules lists what an installation fills, what decides with what, and the project's own
// scripts that it runs besides: those run again where what it filled is reused.
func (p *project) modules(m worktree.Manager) (filled, inputs []string, scripts []Command) {
	folders := []string{m.Dir}
	if w, ok := p.t.WorkspaceOf(p.root); ok && w.Dir == m.Dir {
		folders = append(folders, p.t.Members(w)...)
	}
	reusable := m.Lock != "" && !m.Berry // berry may keep everything in one file, or in none
	for _, dir := range folders {
		filled = append(filled, worktree.Join(dir, "node_modules"))
		pkg := p.t.Manifest(dir)
		for _, hook := range hooks {
			name, body := pkg.Script(hook)
			switch {
			case name == "":
			case strings.Contains(body, "patch-package"): // it would patch what is patched
				reusable = false
			case pkg.Wraps(name) && m.Name != "pnpm": // "run" runs it with the script that it surrounds
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
	for _, dir := range folders { // what patch-package and pnpm patch apply
		if p.t.HasDir(worktree.Join(dir, "patches")) {
			reusable = false
		}
	}
	if !reusable {
		inputs, scripts = nil, nil
	}
	return filled, inputs, scripts
}

// installDir is where packages are installed: at the top of the workspace, unless only
// the member has a lock file.
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

// build sets the build step: the first of these scripts that exists, else the program
// itself. Members of the workspace that the project depends on are built before it.
func (p *project) build(d *draft, m worktree.Manager, scripts []string, argv ...string) {
	name, _ := p.pkg.Script(scripts...)
	p.script(d, m, name, argv...)
}

// script is build with a script that was already found.
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

// turbo leaves the order to Turborepo where the workspace is set up for it. Without
// packageManager its second major refuses to start.
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
		argv = append(argv, "--env-mode=loose") // else the site's variables do not reach the build
	}
	d.Build = append(d.Build, m.Exec(m.Dir, argv...))
	d.env("TURBO_TELEMETRY_DISABLED", "1")
	return true
}

// dependsOn is the sentence for a match by dependency.
func dependsOn(name string) string { return "package.json depends on " + name }
