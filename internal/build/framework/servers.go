package framework

import (
	"fmt"
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
		switch f := plainNode.FindStringSubmatch(body); {
		case body == "" || devScript.MatchString(body) && !guess:
			continue
		case f != nil:
			d.run("node", f[1])
		default:
			argv := p.direct(m, name, body)
			if argv == nil {
				argv = m.Run(p.root, name).Argv
			}
			d.run(argv...)
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

// server says why a project is a server of its own making, "" when it is none: it has
// a start script that runs a program, or an entry file and no front-end build.
func server(p *project) string {
	if p.pkg == nil {
		return ""
	}
	start := p.startScript()
	var deps []string
	for _, s := range serverDeps {
		deps = append(deps, s.dep)
	}
	dep := p.pkg.ProdDep(append(deps, otherServers...)...)
	switch {
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
	case dep != "" && start != "" && p.any(
		"index.html",
		"src/index.html",
		"app/index.html",
	) == "" && !noServer.MatchString(worktree.LastCommand(start)):
		return dependsOn(dep) + " and has a start script"
	}
	return ""
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

func nodeFrameworks() []preset {
	return []preset{
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
