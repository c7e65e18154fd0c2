package framework

import (
	"path"
	"regexp"
	"strings"
)

// project is one folder of the tree as presets see it: its files, its package.json,
// and what was said about it.
type project struct {
	t    *tree
	s    settings
	root string
	pkg  *manifest // nil without a readable package.json
}

func newProject(t *tree, s settings) *project {
	return (&project{t: t, s: s}).at(s.root.text)
}

// at is the same question about another folder.
func (p *project) at(dir string) *project {
	return &project{t: p.t, s: p.s, root: dir, pkg: p.t.manifest(dir)}
}

func (p *project) has(name string) bool { return p.t.has(join(p.root, name)) }

func (p *project) hasDir(name string) bool { return p.t.hasDir(join(p.root, name)) }

func (p *project) read(name string) string { return p.t.read(join(p.root, name)) }

func (p *project) parsed(name string) string { return p.t.config(join(p.root, name)) }

// configured reports whether the folder holds a file with settings.
func (p *project) configured() bool { return p.any(bySlipway, byNetlify, byVercel) != "" }

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
				return code(p.read(n + ext)), n + ext
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
	_, body := p.pkg.script(scripts...)
	return body
}

// js lays down what every Node project has in common: the manager, Node, the frozen
// installation, the caches of packages.
func (p *project) js(d *draft) manager {
	dir := p.installDir()
	m := p.t.findManager(dir)
	d.Manager, d.ManagerVersion = m.name, m.version
	d.Sources["manager"] = m.source
	p.node(d)
	d.Install = m.install()
	d.Modules, d.Inputs, d.Scripts = p.modules(m)
	d.cache(m.stores()...)
	if m.berry && !p.t.hasDir(join(dir, ".yarn/cache")) && dir == p.root {
		d.cache(".yarn/cache")
	}
	return m
}

// hooks are the scripts that an installation runs for the project itself, in its order.
var hooks = []string{"preinstall", "install", "postinstall", "prepublish", "preprepare", "prepare", "postprepare"}

// wraps reports whether a script runs before or after another one that exists.
func (m *manifest) wraps(name string) bool {
	for _, prefix := range []string{"pre", "post"} {
		if main, ok := strings.CutPrefix(name, prefix); ok && m.scripts[main] != "" {
			return true
		}
	}
	return false
}

// modules lists what an installation fills, what decides with what, and the project's own
// scripts that it runs besides: those run again where what it filled is reused.
func (p *project) modules(m manager) (filled, inputs []string, scripts []Command) {
	folders := []string{m.dir}
	if w, ok := p.t.workspaceOf(p.root); ok && w.dir == m.dir {
		folders = append(folders, p.t.members(w)...)
	}
	reusable := m.lock != "" && !m.berry // berry may keep everything in one file, or in none
	for _, dir := range folders {
		filled = append(filled, join(dir, "node_modules"))
		pkg := p.t.manifest(dir)
		for _, hook := range hooks {
			name, body := pkg.script(hook)
			switch {
			case name == "":
			case strings.Contains(body, "patch-package"): // it would patch what is patched
				reusable = false
			case pkg.wraps(name) && m.name != "pnpm": // "run" runs it with the script that it surrounds
			default:
				scripts = append(scripts, m.run(dir, name))
			}
		}
		for _, f := range []string{"package.json", m.lock, ".npmrc", "pnpm-workspace.yaml", ".pnpmfile.cjs", "bunfig.toml", ".yarnrc"} {
			if name := join(dir, f); f != "" && p.t.has(name) {
				inputs = append(inputs, name)
			}
		}
	}
	for _, dir := range folders { // what patch-package and pnpm patch apply
		if p.t.hasDir(join(dir, "patches")) {
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
	w, ok := p.t.workspaceOf(p.root)
	if !ok || w.dir == p.root {
		return p.root
	}
	lockAt := func(dir string) bool {
		for _, l := range lockFiles {
			if p.t.has(join(dir, l.file)) {
				return true
			}
		}
		return false
	}
	if lockAt(p.root) && !lockAt(w.dir) {
		return p.root
	}
	return w.dir
}

// build sets the build step: the first of these scripts that exists, else the program
// itself. Members of the workspace that the project depends on are built before it.
func (p *project) build(d *draft, m manager, scripts []string, argv ...string) {
	name, _ := p.pkg.script(scripts...)
	p.script(d, m, name, argv...)
}

// script is build with a script that was already found.
func (p *project) script(d *draft, m manager, name string, argv ...string) {
	if name == "build" && p.turbo(d, m) {
		return
	}
	if m.dir != p.root {
		for _, dir := range p.siblings() {
			d.Build = append(d.Build, m.run(dir, "build"))
		}
	}
	switch {
	case name != "":
		d.Build = append(d.Build, m.run(p.root, name))
	case len(argv) > 0:
		d.Build = append(d.Build, m.exec(p.root, argv...))
	}
}

// turbo leaves the order to Turborepo where the workspace is set up for it. Without
// packageManager its second major refuses to start.
func (p *project) turbo(d *draft, m manager) bool {
	top := p.t.manifest(m.dir)
	name := p.t.anyIn(m.dir, "turbo.json", "turbo.jsonc")
	if m.dir == p.root || name == "" || top == nil || top.dep("turbo") == "" || top.manager == "" {
		return false
	}
	if !strings.Contains(code(p.t.read(name)), `"build"`) {
		return false
	}
	argv := []string{"turbo", "run", "build", "--filter=./" + strings.TrimPrefix(strings.TrimPrefix(p.root, m.dir), "/")}
	if major(top.version("turbo")) != 1 {
		argv = append(argv, "--env-mode=loose") // else the site's variables do not reach the build
	}
	d.Build = append(d.Build, m.exec(m.dir, argv...))
	d.env("TURBO_TELEMETRY_DISABLED", "1")
	return true
}

func (t *tree) anyIn(dir string, names ...string) string {
	for _, n := range names {
		if t.has(join(dir, n)) {
			return join(dir, n)
		}
	}
	return ""
}

// dependsOn is the sentence for a match by dependency.
func dependsOn(name string) string { return "package.json depends on " + name }

// option returns the value of a command-line flag in a script, "" when it is absent or
// computed by the shell.
func option(script string, names ...string) string {
	for _, n := range names {
		m := regexp.MustCompile(`(?:^|\s)` + regexp.QuoteMeta(n) + `(?:=|\s+)["']?([^\s"'&|;$` + "`" + `<>]+)`).FindStringSubmatch(script)
		if m != nil && !strings.HasPrefix(m[1], "-") {
			return m[1]
		}
	}
	return ""
}

// jsPath is jsString for a folder, which is often spelled path.resolve(__dirname, "dist").
func jsPath(src, key string) string {
	m := regexp.MustCompile(`(?:^|[^\w$.])["']?` + key + `["']?\s*[:=]\s*(?:\w+\.)?(?:resolve|join)\(\s*(?:__dirname|import\.meta\.dirname|process\.cwd\(\)|\w+)\s*,\s*["'` + "`]([^\"'`$\n]{1,200})[\"'`]" + `\s*\)`).
		FindStringSubmatch(src)
	if m != nil {
		return m[1]
	}
	return jsString(src, key)
}

// under joins a folder that a configuration names relative to base, as far as it stays
// in the project; "" otherwise.
func under(base, dir string) string {
	if dir == "" {
		return ""
	}
	joined := path.Join(base, dir)
	if joined == ".." || strings.HasPrefix(joined, "../") {
		return ""
	}
	return joined
}
