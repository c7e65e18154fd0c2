package framework

import (
	"fmt"
	"path"
	"strings"

	"slipway/internal/build/worktree"
	"slipway/internal/platform/lazyregexp"
)

// Node servers: programs that listen on PORT. They are recognised and planned; running
// them is the runtime's business.

// plainNode is a start script that is nothing but node and a file, which is run
// without npm around it: that saves half a second and a process.
var plainNode = lazyregexp.New(`^(?:NODE_ENV=production\s+)?node\s+((?:\./)?[\w./-]+)$`)

// serverStart is a start script that runs a program of the project's own.
var serverStart = lazyregexp.New(
	`(?:^|\s|&&\s*)(?:node|nodemon|tsx|ts-node|ts-node-dev|bun(?:\s+run)?\s+[\w./-]+\.[cm]?[jt]sx?|pm2|pm2-runtime|forever|` +
		`fastify\s+start|nest\s+start|adonis|node-dev|babel-node|micro|` +
		`srvx|strapi\s+start|medusa\s+start|keystone\s+start|directus\s+start|probot\s+run|sails\s+lift)\s`,
)

// noServer is a start script that runs tools of development or a server of files, or leaves
// the choice to a tool that runs the scripts of others.
var noServer = lazyregexp.New(
	`(?:^|[\s/])(?:serve|http-server|live-server|lite-server|ws|sirv|sirv-cli|browser-sync|budo|servor|vite|webpack|` +
		`webpack-dev-server|wds|web-dev-server|parcel|rollup|esbuild|snowpack|wmr|gulp|grunt|brunch|` +
		`react-scripts|react-app-rewired|craco|ng|ember|vue-cli-service|gatsby|eleventy|hexo|docusaurus|vitepress|vuepress|` +
		`storybook|start-storybook|styleguidist|expo|react-native|electron|electron-forge|tauri|` +
		`cd|make|npm|yarn|pnpm|turbo|lerna|nx|rush|moon|wireit|concurrently|npm-run-all|run-s|run-p|wsrun|tsc|sass|postcss|` +
		`tailwindcss|jekyll|hugo|docker|docker-compose|python3?|php|open|echo|exit|test|jest|vitest)(?:\s|$)|` +
		`\s(?:--filter|--workspace|--workspaces|workspace|--prefix|-r|-w|-F)[\s=]`,
)

// devScript is a start script that runs what is for development, such as `next dev`.
var devScript = lazyregexp.New(`(?:^|\s)(?:[\w-]+:)?dev(?:elop)?(?::[\w-]+)?(?:\s|$)`)

// run is a start command of ours.
func (d *draft) run(argv ...string) {
	d.Start = &Start{Command: Command{Argv: argv, Dir: d.Root}, PortEnv: "PORT"}
	if len(argv) == 2 && argv[0] == "node" && argv[1] == "" {
		d.Start.Command.Argv = []string{"node", "."}
	}
}

// assets says that a folder's files are what the server answers with at a path.
func (d *draft) assets(folder, at string) {
	if clean, ok := worktree.CleanDir(folder); ok && clean != "" {
		d.Assets = append(d.Assets, AssetFolder{clean, at})
	}
}

// start prefers the project's own start script to the framework's program, unless it is one
// for development.
func (p *project) start(d *draft, m worktree.Manager, program []string) {
	guess := len(program) == 2 && program[1] == "." // worse than any script
	for _, name := range []string{"start:prod", "start"} {
		body := strings.TrimSpace(p.pkg.ScriptBody(name))
		if rest := p.afterBuild(d, m, name); rest != body && !devScript.MatchString(rest) {
			c := ParseCommand(p.inlined(m, strings.TrimPrefix(rest, "NODE_ENV=production "), new(int)))
			c.Dir = d.Root
			d.Start = &Start{Command: c, PortEnv: "PORT"}
			return
		}
		switch f := plainNode.FindStringSubmatch(body); {
		case body == "" || devScript.MatchString(body) && !guess:
			continue
		case f != nil:
			d.run("node", f[1])
		default:
			if argv := p.direct(m, name, body); argv != nil {
				d.run(argv...)
			} else if m.Name == "npm" {
				d.run(m.Run(p.root, name).Argv...)
			} else {
				c := ParseCommand(p.unmanaged(m, name, new(int)))
				c.Dir = d.Root
				d.Start = &Start{Command: c, PortEnv: "PORT"}
			}
		}
		return
	}
	if program[0] == "node" {
		d.run(program...)
		return
	}
	c := m.Exec(p.root, program...)
	d.run(c.Argv...)
}

// Parts of a start script whose work is done before: by the build, or not needed in a new release.
var (
	runner    = lazyregexp.New(`^(?:npx\s+|bunx\s+|pnpm\s+exec\s+)`)
	buildPart = lazyregexp.New(
		`^(?:npx\s+|bunx\s+|pnpm\s+exec\s+)?(?:tsc|tsc-alias|tspc|tsup|tsdown|swc|babel|esbuild|rollup|webpack|` +
			`ncc\s+build|unbuild|pkgroll|(?:vite|next|nuxt|nest|astro|remix|react-router|strapi|payload|keystone|medusa)\s+build|` +
			`remix\s+vite:build|prisma\s+generate)(?:\s|$)`,
	)
	cleanPart  = lazyregexp.New(`^(?:npx\s+)?(?:rimraf|del-cli|shx\s+rm|rm\s+-rf?|(?:npm|yarn|pnpm|bun)\s+(?:install|i|ci))(?:\s|$)`)
	scriptPart = lazyregexp.New(
		`^(?:npm|yarn|pnpm|bun)(?:\s+run)?\s+((?:pre|post)?(?:build|compile|clean|generate|tsc|transpile)(?:[:-][\w:.-]+)?)$`,
	)
	keepsOn = lazyregexp.New(`\s(?:--watch|-w)(?:\s|$)`)
)

// afterBuild returns what a start script does after it has built, and adds to the build what that doesn't do yet: a release
// is built already, and read-only. It returns the whole script if the script doesn't build, and "" if the project has no start
// script.
func (p *project) afterBuild(d *draft, m worktree.Manager, name string) string {
	body := strings.TrimSpace(p.pkg.ScriptBody(name))
	before := strings.TrimSpace(p.pkg.ScriptBody("pre" + name))
	if body == "" || keepsOn.MatchString(body+" "+before) || !plainCommand.MatchString(strings.ReplaceAll(before+body, "&&", "")) || m.Berry ||
		p.pkg.ScriptBody("post"+name) != "" {
		return body // berry may have no node_modules to find programs in
	}
	all := body
	if before != "" {
		all = before + "&&" + body
	}
	_, script := p.pkg.Script("build")
	parts := strings.Split(all, "&&")
	var rest []string
	var more []Command
	for i, part := range parts {
		part = strings.TrimSpace(part)
		f := scriptPart.FindStringSubmatch(part)
		switch {
		case strings.HasPrefix(part, "cd "):
			return body // what follows is in another folder
		case i == len(parts)-1:
			rest = append(rest, part)
		case cleanPart.MatchString(part), f != nil && (f[1] == "build" || f[1] == "clean" || strings.Contains(script, f[1])):
		case f != nil && p.pkg.ScriptBody(f[1]) != "":
			more = append(more, m.Run(p.root, f[1]))
		case buildPart.MatchString(part):
			if !strings.Contains(script, part) {
				more = append(more, m.Exec(p.root, strings.Fields(runner.ReplaceAllString(part, ""))...))
			}
		default:
			rest = append(rest, part)
		}
	}
	if len(rest) == len(parts) {
		return body
	}
	d.Build = append(d.Build, more...)
	if len(more) > 0 {
		d.Why += "; what its start script builds is part of the build"
	}
	return strings.Join(rest, " && ")
}

// maxCalls is how many calls of scripts are followed: they may call themselves.
const maxCalls = 20

// unmanaged returns what a script does, with the scripts before and after it and without the package manager, which a release
// lacks unless it is npm.
func (p *project) unmanaged(m worktree.Manager, name string, calls *int) string {
	var bodies []string
	for _, name := range []string{"pre" + name, name, "post" + name} {
		if body := strings.TrimSpace(p.pkg.ScriptBody(name)); body != "" {
			bodies = append(bodies, body)
		}
	}
	return p.inlined(m, strings.Join(bodies, " && "), calls)
}

// inlined replaces the calls of scripts in a command by what these do.
func (p *project) inlined(m worktree.Manager, command string, calls *int) string {
	if m.Name == "npm" {
		return command
	}
	call := lazyregexp.New(`^` + m.Name + `(?:\s+run)?\s+([\w:.-]+)$`)
	parts := strings.Split(command, "&&")
	for i, part := range parts {
		parts[i] = strings.TrimSpace(part)
		if f := call.FindStringSubmatch(parts[i]); f != nil && p.pkg.ScriptBody(f[1]) != "" && *calls < maxCalls {
			*calls++
			parts[i] = p.unmanaged(m, f[1], calls)
		}
	}
	return strings.Join(parts, " && ")
}

// servers are programs that start scripts call, which need nothing that a package manager
// does for them but to be found.
var servers = map[string]bool{
	"node":               true,
	"next":               true,
	"react-router-serve": true,
	"remix-serve":        true,
	"nest":               true,
	"fastify":            true,
	"tsx":                true,
	"ts-node":            true,
	"micro":              true,
	"srvx":               true,
}

// direct returns a start script that is nothing but one such program as its arguments, to be
// run without the package manager around it; nil where it is more.
func (p *project) direct(m worktree.Manager, name, body string) []string {
	if m.Name == "yarn" && m.Berry || p.pkg.ScriptBody("pre"+name) != "" || p.pkg.ScriptBody("post"+name) != "" {
		return nil // no node_modules, or more than this script
	}
	if c := ParseCommand(body); len(c.Argv) > 0 && servers[c.Argv[0]] {
		return c.Argv
	}
	return nil
}

// serverDeps are the packages whose presence makes a program an HTTP server, with the
// preset that names them.
var serverDeps = []struct{ dep, id, name string }{
	{"express", "express", "Express"},
	{"fastify", "fastify", "Fastify"},
}

var otherServers = []string{
	"koa", "hono", "@hono/node-server", "@hapi/hapi", "restify", "polka", "h3", "nitropack", "@adonisjs/core",
	"@feathersjs/feathers", "socket.io", "ws", "micro", "elysia",
}

// serverDep returns the package of an HTTP server that the project runs with, one of more included.
func (p *project) serverDep(more ...string) string {
	for _, s := range serverDeps {
		more = append(more, s.dep)
	}
	return p.pkg.ProdDep(append(more, otherServers...)...)
}

// server says why a project is a server of its own making, "" when it is none: it has
// a start script that runs a program, or an entry file and no front-end build.
func server(p *project) string {
	if p.pkg == nil {
		return ""
	}
	start := p.startScript()
	dep := p.serverDep()
	switch {
	case dep == "" && p.buildsAndWatches():
		return ""
	case serverStart.MatchString(start+" ") && dep != "":
		return dependsOn(dep) + " and its start script runs a program"
	case serverStart.MatchString(start + " "):
		return "its start script runs a program"
	case dep != "" && start == "" && p.entry() != "" && !p.has("index.html"):
		return fmt.Sprintf("%s and %s is there", dependsOn(dep), p.entry())
	case dep != "" && start == "" && p.has(npmServer) && p.calls(ssrBuild):
		return fmt.Sprintf("%s and %s is there, and a script builds for it", dependsOn(dep), npmServer)
	case dep != "" && start == "" && p.builds() && !p.page() && p.built() != "":
		return fmt.Sprintf("%s and its main file %s is built", dependsOn(dep), p.built())
	case dep != "" && start != "" && p.any("index.html", "src/index.html", "app/index.html") == "" &&
		!noServer.MatchString(worktree.LastCommand(start)):
		return dependsOn(dep) + " and has a start script"
	}
	return ""
}

// listens matches what a program does that answers requests.
var listens = lazyregexp.New(`\blisten\b|createServer|\bserve\b|node:https?\b|["']https?["']|process\.env\.PORT`)

// buildsAndWatches reports whether the start script builds pages that the repository has, and then runs a file of the project
// that answers no request: a tool for editing them.
func (p *project) buildsAndWatches() bool {
	parts := strings.Split(p.pkg.ScriptBody("start"), "&&")
	f := plainNode.FindStringSubmatch(strings.TrimSpace(parts[len(parts)-1]))
	_, shows := p.indexFolder()
	if !shows || len(parts) < 2 || f == nil || !p.builds() || !scriptPart.MatchString(strings.TrimSpace(parts[0])) {
		return false
	}
	for _, ending := range []string{"", ".js", ".mjs", ".cjs", "/index.js"} {
		if name := path.Clean(f[1]) + ending; p.has(name) {
			return !listens.MatchString(p.read(name))
		}
	}
	return false // the build makes it
}

// startScript is the script by which the project says it is started, with those that it calls.
func (p *project) startScript() string {
	start := p.pkg.ScriptBody("start")
	if prod := p.pkg.ScriptBody("start:prod"); prod != "" {
		start = prod
	}
	return p.pkg.Followed(start)
}

// npmServer is the file that `npm start` runs where there is no start script.
const npmServer = "server.js"

// ssrBuild is a build for a server that renders pages, of which nothing is a site by itself.
var ssrBuild = lazyregexp.New(`(?:^|[\s/])vite\s+build\s(?:.*\s)?--ssr(?:\s|=|$)`)

// calls reports whether one of the project's scripts matches.
func (p *project) calls(what *lazyregexp.Regexp) bool {
	name, _ := p.pkg.ScriptCalling(what)
	return name != ""
}

// built is the project's main file where it is not in the repository but in a folder that the
// build makes.
func (p *project) built() string {
	if c, ok := worktree.CleanDir(p.pkg.Main); ok && strings.Contains(c, "/") && !p.hasDir(worktree.Parent(c)) {
		return c
	}
	return ""
}

// started says why a project of no known kind is a server, "" when it is none: it has a start
// script and nothing to publish, or the file that `npm start` runs without one.
func started(p *project) string {
	if p.pkg == nil || p.builds() {
		return ""
	}
	start := p.startScript()
	folder, shows := p.indexFolder()
	switch {
	case start != "" && !shows && !p.page() && p.root == p.s.root.text && !noServer.MatchString(worktree.LastCommand(start)):
		// Of a workspace's member that says nothing, and at the top it may start an app below.
		if a, err := p.pick(p.nested(), "below"); a == nil && err == nil {
			return "it has a start script"
		}
	case start == "" && p.has(npmServer) && (!shows || folder == "public" || folder == "docs"):
		return npmServer + " is there, which npm start runs"
	}
	return ""
}

// entry is the file that starts the project without a start script: npm's own, the one that
// `node .` would run, or a usual name.
func (p *project) entry() string {
	if p.has(npmServer) {
		return npmServer
	}
	if c, ok := worktree.CleanDir(p.pkg.Main); ok && c != "" && p.has(c) {
		return c
	}
	return p.any("server.mjs", "app.js", "index.js", "index.mjs", "main.js",
		"src/server.js", "src/index.js", "src/app.js", "src/main.js")
}

// content is a server of content with a program of its own, and the folders that it writes to.
func content(id, name, program string, storage []string, deps ...string) preset {
	return preset{
		Preset: Preset{id, name, Node}, server: true,
		match: func(p *project) string {
			if dep := p.pkg.ProdDep(deps...); dep != "" {
				return dependsOn(dep)
			}
			return ""
		},
		plan: func(p *project, d *draft) {
			m := p.js(d)
			p.build(d, m, []string{"build"})
			p.start(d, m, []string{program, "start"})
			d.Start.Storage, d.Output = storage, ""
		},
	}
}

func nodeFrameworks() []preset {
	return []preset{
		content("strapi", "Strapi", "strapi", []string{"public/uploads", ".tmp"}, "@strapi/strapi", "strapi"),
		content("keystone", "Keystone", "keystone", nil, "@keystone-6/core"),
		content("directus", "Directus", "directus", []string{"uploads"}, "directus"),
		{
			Preset: Preset{"nestjs", "NestJS", Node}, server: true,
			match: func(p *project) string {
				if p.pkg.ProdDep("@nestjs/core") != "" {
					return dependsOn("@nestjs/core")
				}
				return ""
			},
			plan: func(p *project, d *draft) {
				m := p.js(d)
				p.build(d, m, []string{"build"}, "nest", "build")
				d.Output = "dist"
				if f := plainNode.FindStringSubmatch(p.pkg.ScriptBody("start:prod")); f != nil {
					d.run("node", f[1])
				} else {
					d.run("node", "dist/main")
				}
			},
		},
	}
}

func nodeServers() []preset {
	var list []preset
	for _, s := range serverDeps {
		list = append(list, preset{
			Preset: Preset{s.id, s.name, Node}, server: true,
			match: func(p *project) string {
				if p.pkg.ProdDep(s.dep) == "" {
					return ""
				}
				return server(p)
			},
			plan: planServer,
		})
	}
	return append(list,
		preset{
			Preset: Preset{"node", "Node.js", Node}, server: true,
			match: func(p *project) string {
				if p.pkg.ProdDep(otherServers...) == "" {
					return ""
				}
				return server(p)
			},
			plan: planServer,
		},
	)
}

func planServer(p *project, d *draft) {
	m := p.js(d)
	p.build(d, m, []string{"build", "heroku-postbuild"})
	entry := p.entry()
	if entry == "" {
		entry = p.built()
	}
	if entry == "" {
		entry = "."
	}
	p.start(d, m, []string{"node", entry})
	d.Output = ""
}
