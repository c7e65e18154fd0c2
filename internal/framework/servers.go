package framework

import (
	"fmt"
	"regexp"
	"strings"
)

// Node servers: programs that listen on PORT. They are recognised and planned; running
// them is the runtime's business.

// plainNode is a start script that is nothing but node and a file, which is run
// without npm around it: that saves half a second and a process.
var plainNode = regexp.MustCompile(`^(?:NODE_ENV=production\s+)?node\s+((?:\./)?[\w./-]+)$`)

// serverStart is a start script that runs a program of the project's own.
var serverStart = regexp.MustCompile(`(?:^|\s|&&\s*)(?:node|nodemon|tsx|ts-node|ts-node-dev|bun(?:\s+run)?\s+[\w./-]+\.[cm]?[jt]sx?|pm2|pm2-runtime|forever|fastify\s+start|nest\s+start|adonis|node-dev|babel-node|micro)\s`)

// run is a start command of ours.
func (d *draft) run(argv ...string) {
	d.Start = &Start{Command: Command{Argv: argv, Dir: d.Root}, PortEnv: "PORT"}
	if len(argv) == 2 && argv[0] == "node" && argv[1] == "" {
		d.Start.Command.Argv = []string{"node", "."}
	}
}

// assets says that a folder's files are what the server answers with at a path.
func (d *draft) assets(folder, at string) {
	if clean, ok := cleanDir(folder); ok && clean != "" {
		d.Assets = append(d.Assets, AssetFolder{clean, at})
	}
}

// start prefers the project's own start script to the framework's program.
func (p *project) start(d *draft, m manager, program []string) {
	for _, name := range []string{"start:prod", "start"} {
		body := strings.TrimSpace(p.pkg.scriptBody(name))
		switch f := plainNode.FindStringSubmatch(body); {
		case body == "" || strings.Contains(body, "dev") && !strings.Contains(body, "node_modules"):
			continue
		case f != nil:
			d.run("node", f[1])
		default:
			argv := p.direct(m, name, body)
			if argv == nil {
				argv = m.run(p.root, name).Argv
			}
			d.run(argv...)
		}
		return
	}
	if program[0] == "node" {
		d.run(program...)
		return
	}
	c := m.exec(p.root, program...)
	d.run(c.Argv...)
}

// servers are programs that start scripts call, which need nothing that a package manager
// does for them but to be found.
var servers = map[string]bool{"node": true, "next": true, "react-router-serve": true, "remix-serve": true, "nest": true, "fastify": true, "tsx": true, "ts-node": true, "micro": true, "srvx": true}

// direct returns a start script that is nothing but one such program as its arguments, to be
// run without the package manager around it; nil where it is more.
func (p *project) direct(m manager, name, body string) []string {
	if m.name == "yarn" && m.berry || p.pkg.scriptBody("pre"+name) != "" || p.pkg.scriptBody("post"+name) != "" {
		return nil // no node_modules, or more than this script
	}
	if c := ParseCommand(body); len(c.Argv) > 0 && servers[c.Argv[0]] {
		return c.Argv
	}
	return nil
}

func (m *manifest) scriptBody(name string) string {
	if m == nil {
		return ""
	}
	return m.scripts[name]
}

// serverDeps are the packages whose presence makes a program an HTTP server, with the
// preset that names them.
var serverDeps = []struct{ dep, id, name string }{
	{"express", "express", "Express"},
	{"fastify", "fastify", "Fastify"},
}

var otherServers = []string{"koa", "hono", "@hono/node-server", "@hapi/hapi", "restify", "polka", "h3", "nitropack", "@adonisjs/core", "@feathersjs/feathers", "socket.io", "ws", "micro", "elysia"}

// server says why a project is a server of its own making, "" when it is none: it has
// a start script that runs a program, or an entry file and no front-end build.
func server(p *project) string {
	if p.pkg == nil {
		return ""
	}
	start := p.pkg.scriptBody("start")
	if prod := p.pkg.scriptBody("start:prod"); prod != "" {
		start = prod
	}
	var deps []string
	for _, s := range serverDeps {
		deps = append(deps, s.dep)
	}
	dep := p.pkg.prodDep(append(deps, otherServers...)...)
	switch {
	case serverStart.MatchString(start+" ") && dep != "":
		return dependsOn(dep) + " and its start script runs a program"
	case serverStart.MatchString(start + " "):
		return "its start script runs a program"
	case dep != "" && start == "" && p.entry() != "" && !p.has("index.html"):
		return fmt.Sprintf("%s and %s is there", dependsOn(dep), p.entry())
	}
	return ""
}

// entry is the file that `node .` would run, or a usual name.
func (p *project) entry() string {
	if c, ok := cleanDir(p.pkg.main); ok && c != "" && p.has(c) {
		return c
	}
	return p.any("server.js", "server.mjs", "app.js", "index.js", "index.mjs", "main.js",
		"src/server.js", "src/index.js", "src/app.js", "src/main.js")
}

func nodeFrameworks() []preset {
	return []preset{
		{Preset: Preset{"nestjs", "NestJS", Node}, server: true,
			match: func(p *project) string {
				if p.pkg.prodDep("@nestjs/core") != "" {
					return dependsOn("@nestjs/core")
				}
				return ""
			},
			plan: func(p *project, d *draft) {
				m := p.js(d)
				p.build(d, m, []string{"build"}, "nest", "build")
				d.Output = "dist"
				if f := plainNode.FindStringSubmatch(p.pkg.scriptBody("start:prod")); f != nil {
					d.run("node", f[1])
				} else {
					d.run("node", "dist/main")
				}
			}},
	}
}

func nodeServers() []preset {
	var list []preset
	for _, s := range serverDeps {
		list = append(list, preset{Preset: Preset{s.id, s.name, Node}, server: true,
			match: func(p *project) string {
				if p.pkg.prodDep(s.dep) == "" {
					return ""
				}
				return server(p)
			},
			plan: planServer})
	}
	return append(list,
		preset{Preset: Preset{"node", "Node.js", Node}, server: true,
			match: func(p *project) string {
				if p.pkg.prodDep(otherServers...) == "" {
					return ""
				}
				return server(p)
			},
			plan: planServer},
	)
}

func planServer(p *project, d *draft) {
	m := p.js(d)
	p.build(d, m, []string{"build"})
	entry := p.entry()
	if entry == "" {
		entry = "."
	}
	p.start(d, m, []string{"node", entry})
	d.Output = ""
}
