package framework

import (
	"fmt"
	"path"
	"strings"

	"slipway/internal/build/worktree"
	"slipway/internal/platform/lazyregexp"
)

// Node.js servers: programs that listen on PORT.

// plainNode matches start scripts that only run node with a file. They run without npm, which saves half a second and a
// process.
var plainNode = lazyregexp.New(`^(?:NODE_ENV=production\s+)?node\s+((?:\./)?[\w./-]+)$`)

// serverStart matches start scripts that run a program of the project.
var serverStart = lazyregexp.New(
	`(?:^|\s|&&\s*)(?:node|nodemon|tsx|ts-node|ts-node-dev|bun(?:\s+run)?\s+[\w./-]+\.[cm]?[jt]sx?|pm2|pm2-runtime|forever|` +
		`fastify\s+start|nest\s+start|adonis|node-dev|babel-node|micro|` +
		`srvx|strapi\s+start|medusa\s+start|keystone\s+start|directus\s+start|probot\s+run|sails\s+lift)\s`,
)

// noServer matches start scripts that run development tools, file servers, or tools that run other scripts.
var noServer = lazyregexp.New(
	`(?:^|[\s/])(?:serve|http-server|live-server|lite-server|ws|sirv|sirv-cli|browser-sync|budo|servor|vite|webpack|` +
		`webpack-dev-server|wds|web-dev-server|parcel|rollup|esbuild|snowpack|wmr|gulp|grunt|brunch|` +
		`react-scripts|react-app-rewired|craco|ng|ember|vue-cli-service|gatsby|eleventy|hexo|docusaurus|vitepress|vuepress|` +
		`storybook|start-storybook|styleguidist|expo|react-native|electron|electron-forge|tauri|` +
		`cd|make|npm|yarn|pnpm|turbo|lerna|nx|rush|moon|wireit|concurrently|npm-run-all|run-s|run-p|wsrun|tsc|sass|postcss|` +
		`tailwindcss|jekyll|hugo|docker|docker-compose|python3?|php|open|echo|exit|test|jest|vitest)(?:\s|$)|` +
		`\s(?:--filter|--workspace|--workspaces|workspace|--prefix|-r|-w|-F)[\s=]`,
)

// devScript matches start scripts for development, such as `next dev`.
var devScript = lazyregexp.New(`(?:^|\s)(?:[\w-]+:)?dev(?:elop)?(?::[\w-]+)?(?:\s|$)`)

// run sets the start command.
func (d *draft) run(argv ...string) {
	d.Start = &Start{Command: Command{Argv: argv, Dir: d.Root}, PortEnv: "PORT"}
	if len(argv) == 2 && argv[0] == "node" && argv[1] == "" {
		d.Start.Command.Argv = []string{"node", "."}
	}
}

// assets adds a folder whose files the server would serve at a path.
func (d *draft) assets(folder, at string) {
	if clean, ok := worktree.CleanDir(folder); ok && clean != "" {
		d.Assets = append(d.Assets, AssetFolder{clean, at})
	}
}

// start sets the start command: the project's start script, unless it is for development, else the framework's program.
func (p *project) start(d *draft, m worktree.Manager, program []string) {
	guess := len(program) == 2 && program[1] == "." // any script is better than this guess
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

// Parts of a start script that were done by the build, or aren't needed in a new release.
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

// afterBuild returns the part of a start script that runs after its build commands, and adds missing build commands to
// the build: a release is already built and read-only. It returns the whole script if the script doesn't build, and ""
// if the project has no start script.
func (p *project) afterBuild(d *draft, m worktree.Manager, name string) string {
	body := strings.TrimSpace(p.pkg.ScriptBody(name))
	before := strings.TrimSpace(p.pkg.ScriptBody("pre" + name))
	if body == "" || keepsOn.MatchString(body+" "+before) || !plainCommand.MatchString(strings.ReplaceAll(before+body, "&&", "")) || m.Berry ||
		p.pkg.ScriptBody("post"+name) != "" {
		return body // Yarn Berry may have no node_modules with the programs
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
			return body // the rest runs in another folder
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

// maxCalls caps the followed calls between scripts, which may be recursive.
const maxCalls = 20

// unmanaged returns the commands of a script, including its pre and post scripts, without the package manager, which
// isn't part of a release unless it is npm.
func (p *project) unmanaged(m worktree.Manager, name string, calls *int) string {
	var bodies []string
	for _, name := range []string{"pre" + name, name, "post" + name} {
		if body := strings.TrimSpace(p.pkg.ScriptBody(name)); body != "" {
			bodies = append(bodies, body)
		}
	}
	return p.inlined(m, strings.Join(bodies, " && "), calls)
}

// inlined replaces calls of scripts in a command by the scripts' commands.
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

// servers lists programs in start scripts that need a package manager only to be found in PATH.
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

// direct returns the arguments of a start script that runs only one such program, so that it runs without the package
// manager; nil otherwise.
func (p *project) direct(m worktree.Manager, name, body string) []string {
	if m.Name == "yarn" && m.Berry || p.pkg.ScriptBody("pre"+name) != "" || p.pkg.ScriptBody("post"+name) != "" {
		return nil // no node_modules, or pre and post scripts
	}
	if c := ParseCommand(body); len(c.Argv) > 0 && servers[c.Argv[0]] {
		return c.Argv
	}
	return nil
}

// serverDeps lists packages of HTTP servers, with the preset that each one implies.
var serverDeps = []struct{ dep, id, name string }{
	{"express", "express", "Express"},
	{"fastify", "fastify", "Fastify"},
}

var otherServers = []string{
	"koa", "hono", "@hono/node-server", "@hapi/hapi", "restify", "polka", "h3", "nitropack", "@adonisjs/core",
	"@feathersjs/feathers", "socket.io", "ws", "micro", "elysia",
}

// serverDep returns the server package that the project depends on, including those in more.
func (p *project) serverDep(more ...string) string {
	for _, s := range serverDeps {
		more = append(more, s.dep)
	}
	return p.pkg.ProdDep(append(more, otherServers...)...)
}

// server returns why a project is a custom server, or "": it has a start script that runs a program, or an entry file
// and no front-end build.
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

// listens matches code that serves requests.
var listens = lazyregexp.New(`\blisten\b|createServer|\bserve\b|node:https?\b|["']https?["']|process\.env\.PORT`)

// buildsAndWatches reports whether the start script builds pages of the repository and then runs a file of the project
// that serves no requests, such as a tool for editing the pages.
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

// startScript returns the start script, with the scripts that it calls.
func (p *project) startScript() string {
	start := p.pkg.ScriptBody("start")
	if prod := p.pkg.ScriptBody("start:prod"); prod != "" {
		start = prod
	}
	return p.pkg.Followed(start)
}

// npmServer is the file that `npm start` runs without a start script.
const npmServer = "server.js"

// ssrBuild matches builds of a server that renders pages; their output isn't a site by itself.
var ssrBuild = lazyregexp.New(`(?:^|[\s/])vite\s+build\s(?:.*\s)?--ssr(?:\s|=|$)`)

// calls reports whether one of the project's scripts matches.
func (p *project) calls(what *lazyregexp.Regexp) bool {
	name, _ := p.pkg.ScriptCalling(what)
	return name != ""
}

// built returns the project's main file if it isn't in the repository but in an output folder of the build.
func (p *project) built() string {
	if c, ok := worktree.CleanDir(p.pkg.Main); ok && strings.Contains(c, "/") && !p.hasDir(worktree.Parent(c)) {
		return c
	}
	return ""
}

// started returns why an unknown project is a server, or "": it has a start script and nothing to publish, or the file
// that `npm start` runs without one.
func started(p *project) string {
	if p.pkg == nil || p.builds() {
		return ""
	}
	start := p.startScript()
	folder, shows := p.indexFolder()
	switch {
	case start != "" && !shows && !p.page() && p.root == p.s.root.text && !noServer.MatchString(worktree.LastCommand(start)):
		// In a workspace, the script may start one of the apps.
		if a, err := p.pick(p.nested(), "below"); a == nil && err == nil {
			return "it has a start script"
		}
	case start == "" && p.has(npmServer) && (!shows || folder == "public" || folder == "docs"):
		return npmServer + " is there, which npm start runs"
	}
	return ""
}

// entry returns the file that starts a project without a start script: npm's default, the package's main file, or a
// usual name.
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

// content is the preset of a content management server with its own program, and the folders that it writes to.
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
