package framework

import (
	"strings"

	"slipway/internal/build/configfile"
	"slipway/internal/build/worktree"
	"slipway/internal/platform/lazyregexp"
)

// Meta frameworks have a static variant and a server; their configuration decides which one.

func calls(pattern string) *lazyregexp.Regexp {
	return lazyregexp.New(`(?:^|[\s;&|(/])` + pattern + `(?:$|[\s;&|)])`)
}

var (
	astroAdapter = lazyregexp.New(`["'](@astrojs/(?:vercel|netlify|cloudflare|deno)|@deno/astro-adapter|astro-sst|astro-aws-amplify)\b`)

	nextExport   = calls(`next\s+export`)
	nuxtGenerate = calls(`(?:(?:nuxt|nuxi)\s+generate|(?:nuxt|nuxi)\s+build\s+(?:\S+\s+)*--prerender)`)
	asksGenerate = calls(`(?:nuxt|nuxi|run|yarn|pnpm|bun)\s+generate`)
)

func metaFrameworks() []preset {
	return []preset{
		{
			Preset: Preset{"next-export", "Next.js static export", Static}, family: "next",
			match: func(p *project) string {
				if why := next(p); why != "" {
					src, file := p.config("next.config")
					if configfile.JSString(src, "output") == "export" {
						return file + ` sets output to "export"`
					}
					if nextExport.MatchString(p.command()) {
						return "the build runs next export"
					}
				}
				return ""
			},
			plan: func(p *project, d *draft) {
				planNext(p, d)
				src, _ := p.config("next.config")
				out := "out"
				if configfile.JSString(src, "output") == "export" {
					out = configfile.JSString(src, "distDir") // with `next export`, distDir contains only intermediate files
				}
				if o := worktree.Option(p.command(), "-o", "--outdir"); o != "" {
					out = o
				}
				d.output(out, "out")
			},
		},
		{
			Preset: Preset{"next", "Next.js", Node}, meta: true, match: next,
			plan: func(p *project, d *draft) {
				m := planNext(p, d)
				d.Output = ".next"
				p.start(d, m, []string{"next", "start"})
				d.assets(".next/static", "_next/static")
			},
		},

		{
			Preset: Preset{"nuxt-static", "Nuxt generate", Static}, family: "nuxt",
			match: nuxtStatic,
			plan: func(p *project, d *draft) {
				m := planNuxt(p, d)
				script, _ := p.pkg.ScriptCalling(nuxtGenerate, "generate", "build")
				p.script(d, m, script, "nuxt", "generate")
				if nuxt2(p) {
					src, _ := p.config("nuxt.config")
					d.output(configfile.JSString(configfile.JSBlock(src, "generate"), "dir"), "dist")
				} else {
					d.output("", ".output/public", "dist")
				}
			},
		},
		{
			Preset: Preset{"nuxt", "Nuxt", Node}, meta: true,
			match: func(p *project) string { return nuxt(p) },
			plan: func(p *project, d *draft) {
				m := planNuxt(p, d)
				p.build(d, m, []string{"build"}, "nuxt", "build")
				if nuxt2(p) {
					d.Output = ".nuxt"
					p.start(d, m, []string{"nuxt", "start"})
					return
				}
				src, _ := p.config("nuxt.config")
				p.refuseNitro(d, configfile.JSString(configfile.JSBlock(src, "nitro"), "preset"))
				d.Output = ".output"
				d.assets(".output/public", "")
				d.run("node", ".output/server/index.mjs")
				if s, _ := p.pkg.Script("generate"); s != "" {
					d.warn("This plan runs Nuxt as a server; set framework to nuxt-static to publish what its generate script writes")
				}
			},
		},

		{
			Preset: Preset{"sveltekit-static", "SvelteKit static", Static}, family: "sveltekit",
			match: func(p *project) string {
				if kit, a := svelteAdapter(p); kit && a == "static" {
					return "package.json depends on @sveltejs/kit, with @sveltejs/adapter-static"
				}
				return ""
			},
			plan: func(p *project, d *draft) {
				m := p.js(d)
				p.build(d, m, []string{"build"}, "vite", "build")
				d.cache("node_modules/.vite", ".svelte-kit")
				src, _ := p.config("svelte.config", "vite.config")
				d.output(configfile.JSPath(src, "pages"), "build")
			},
		},
		{
			Preset: Preset{"sveltekit", "SvelteKit", Node}, meta: true,
			match: func(p *project) string {
				if kit, _ := svelteAdapter(p); kit {
					return dependsOn("@sveltejs/kit")
				}
				return ""
			},
			plan: func(p *project, d *draft) {
				m := p.js(d)
				p.build(d, m, []string{"build"}, "vite", "build")
				d.cache("node_modules/.vite", ".svelte-kit")
				_, adapter := svelteAdapter(p)
				src, _ := p.config("svelte.config", "vite.config")
				d.output(configfile.JSPath(src, "out"), "build")
				d.assets(d.Output+"/client", "")
				d.run("node", d.Output)
				switch adapter {
				case "node":
				case "auto", "":
					d.env("GCP_BUILDPACKS", "slipway") // makes adapter-auto choose adapter-node
					d.warn(
						"adapter-auto is told to build for Node; install @sveltejs/adapter-static to publish files, or @sveltejs/adapter-node " +
							"to pin this choice",
					)
				default:
					d.refuse("The adapter @sveltejs/adapter-"+adapter,
						"install @sveltejs/adapter-node for a server, @sveltejs/adapter-static for pages, or @sveltejs/adapter-auto, which chooses, "+
							"and import it in the configuration")
				}
			},
		},

		{
			Preset: Preset{"astro-node", "Astro server", Node}, family: "astro", meta: true,
			match: func(p *project) string {
				src, file := p.config("astro.config")
				if p.pkg.Dep("astro") == "" {
					return ""
				}
				if strings.Contains(src, "@astrojs/node") {
					return file + " uses the adapter @astrojs/node"
				}
				if out := configfile.JSString(src, "output"); out == "server" || out == "hybrid" {
					return file + " sets output to " + out
				}
				return ""
			},
			plan: func(p *project, d *draft) {
				m := planAstro(p, d)
				src, _ := p.config("astro.config")
				d.output(configfile.JSPath(src, "outDir"), "dist")
				if f := astroAdapter.FindStringSubmatch(src); f != nil && !strings.Contains(src, "@astrojs/node") {
					d.refuse("The adapter "+f[1],
						"put @astrojs/node in its place (npx astro add node, and adapter: node({ mode: \"standalone\" }) in the configuration), "+
							"or remove the adapter and set output to static")
				} else if !strings.Contains(src, "@astrojs/node") {
					d.warn("Astro's server output needs the adapter @astrojs/node here; add it, or set output to static")
				}
				if configfile.JSString(src, "mode") == "middleware" {
					p.start(d, m, []string{"node", d.Output + "/server/entry.mjs"})
					return
				}
				d.assets(d.Output+"/client", "")
				d.run("node", d.Output+"/server/entry.mjs")
			},
		},
		{
			Preset: Preset{"astro", "Astro", Static},
			match: func(p *project) string {
				if p.pkg.Dep("astro") != "" {
					return dependsOn("astro")
				}
				return ""
			},
			plan: func(p *project, d *draft) {
				planAstro(p, d)
				src, _ := p.config("astro.config")
				d.output(configfile.JSPath(src, "outDir"), "dist", "dist/client", ".vercel/output/static")
			},
		},

		{
			Preset: Preset{"react-router-spa", "React Router SPA", Static}, family: "react-router",
			match: func(p *project) string { return routerSPA(p, "@react-router/dev") },
			plan:  func(p *project, d *draft) { planRouter(p, d, "react-router", true) },
		},
		{
			Preset: Preset{"react-router", "React Router", Node}, meta: true,
			match: func(p *project) string { return router(p, "@react-router/dev") },
			plan:  func(p *project, d *draft) { planRouter(p, d, "react-router", false) },
		},
		{
			Preset: Preset{"remix-spa", "Remix SPA", Static}, family: "remix",
			match: func(p *project) string { return routerSPA(p, "@remix-run/dev") },
			plan:  func(p *project, d *draft) { planRouter(p, d, "remix", true) },
		},
		{
			Preset: Preset{"remix", "Remix", Node}, meta: true,
			match: func(p *project) string { return router(p, "@remix-run/dev") },
			plan:  func(p *project, d *draft) { planRouter(p, d, "remix", false) },
		},

		nitro("solid-start", "SolidStart", "vinxi", "@solidjs/start"),
		nitro("tanstack-start", "TanStack Start", "vite", "@tanstack/react-start", "@tanstack/solid-start", "@tanstack/start"),
		nitro("analog", "Analog", "vite", "@analogjs/platform"),

		{
			Preset: Preset{"qwik-static", "Qwik static", Static}, family: "qwik",
			match: func(p *project) string {
				if dep := qwik(p); dep != "" && (p.hasDir("adapters/static") || p.hasDir("adaptors/static")) {
					return dependsOn(dep) + " and the static adapter is there"
				}
				return ""
			},
			plan: func(p *project, d *draft) {
				m := p.js(d)
				p.build(d, m, []string{"build"}, "qwik", "build")
				d.cache("node_modules/.vite")
				src, _ := p.config("vite.config")
				d.output(configfile.JSPath(configfile.JSBlock(src, "qwikVite"), "outDir"), "dist")
			},
		},
		{
			Preset: Preset{"qwik", "Qwik", Node}, meta: true,
			match: func(p *project) string {
				if dep := qwik(p); dep != "" {
					return dependsOn(dep)
				}
				return ""
			},
			plan: func(p *project, d *draft) {
				m := p.js(d)
				p.build(d, m, []string{"build"}, "qwik", "build")
				d.cache("node_modules/.vite")
				d.Output = "dist"
				entry := "server/entry.node-server.js"
				switch {
				case p.hasDir("adapters/express"):
					entry = "server/entry.express.js"
				case p.hasDir("adapters/fastify"):
					entry = "server/entry.fastify.js"
				case !p.hasDir("adapters/node-server"):
					d.warn("Qwik has no adapter yet; `qwik add static` publishes files, `qwik add express` runs a server")
				}
				d.run("node", entry)
			},
		},
	}
}
