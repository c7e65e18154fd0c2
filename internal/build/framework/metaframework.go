package framework

import (
	"strings"

	"slipway/internal/build/configfile"
	"slipway/internal/build/worktree"
	"slipway/internal/platform/lazyregexp"
)

// Detection and plans of the meta frameworks of javascript.go.

func next(p *project) string {
	if p.pkg.Dep("next") == "" {
		return ""
	}
	if _, ws := p.t.WorkspaceAt(p.root); ws && !p.hasDir("app") && !p.hasDir("pages") && !p.hasDir("src/app") && !p.hasDir("src/pages") {
		return "" // the version that the workspace members share
	}
	return dependsOn("next")
}

func planNext(p *project, d *draft) worktree.Manager {
	m := p.js(d)
	p.build(d, m, []string{"build"}, "next", "build")
	d.cache(".next/cache")
	d.env("NEXT_TELEMETRY_DISABLED", "1")
	return m
}

func nuxt(p *project) string {
	if dep := p.pkg.Dep("nuxt", "nuxt3", "nuxt-edge", "nuxt-nightly"); dep != "" {
		return dependsOn(dep)
	}
	return ""
}

func nuxt2(p *project) bool {
	return worktree.Major(p.pkg.Version("nuxt")) == 2 || p.pkg.Dep("nuxt-edge") != ""
}

func nuxtStatic(p *project) string {
	if nuxt(p) == "" {
		return ""
	}
	src, file := p.config("nuxt.config")
	build, _ := p.pkg.Script("build")
	generate, _ := p.pkg.Script("generate")
	nitro := configfile.JSString(configfile.JSBlock(src, "nitro"), "preset")
	ssr, said := configfile.JSBool(configfile.JSTop(src), "ssr") // only at the top level: a module may have an option with that name
	switch {
	case asksGenerate.MatchString(p.command()) || nuxtGenerate.MatchString(p.command()):
		return "the build runs nuxt generate"
	case build == "" && generate != "":
		return "package.json depends on nuxt and has a generate script but no build script"
	case nitro == "static" || strings.HasPrefix(nitro, "github"):
		return file + " sets Nitro's preset to " + nitro
	case configfile.JSString(src, "target") == "static":
		return file + " sets target to static"
	case said && !ssr:
		return file + " turns server rendering off"
	}
	return ""
}

func planNuxt(p *project, d *draft) worktree.Manager {
	m := p.js(d)
	d.cache("node_modules/.cache")
	d.env("NUXT_TELEMETRY_DISABLED", "1")
	return m
}

// svelteAdapter reports whether this is SvelteKit, and which adapter its configuration imports: static, node, auto,
// vercel, …
func svelteAdapter(p *project) (kit bool, adapter string) {
	if p.pkg.Dep("@sveltejs/kit") == "" {
		return false, ""
	}
	src, _ := p.config("svelte.config", "vite.config")
	all := []string{"static", "node", "auto", "vercel", "netlify", "cloudflare"}
	for _, a := range all {
		if strings.Contains(src, "@sveltejs/adapter-"+a) {
			return true, a
		}
	}
	for _, a := range all {
		if p.pkg.Dep("@sveltejs/adapter-"+a) != "" {
			return true, a
		}
	}
	return true, ""
}

func planAstro(p *project, d *draft) worktree.Manager {
	m := p.js(d)
	p.build(d, m, []string{"build"}, "astro", "build")
	d.cache("node_modules/.astro", "node_modules/.vite")
	d.env("ASTRO_TELEMETRY_DISABLED", "1")
	return m
}

func router(p *project, dep string) string {
	if p.pkg.Dep(dep) == "" {
		return ""
	}
	return dependsOn(dep)
}

// routerSPA reports where `ssr: false` is set for React Router or Remix.
func routerSPA(p *project, dep string) string {
	if p.pkg.Dep(dep) == "" {
		return ""
	}
	for _, f := range []string{"react-router.config", "vite.config"} {
		src, file := p.config(f)
		if f == "vite.config" {
			src = configfile.JSBlock(src, "(?:remix|vitePlugin|reactRouter)")
		}
		if ssr, said := configfile.JSBool(src, "ssr"); said && !ssr {
			return file + " sets ssr to false"
		}
	}
	return ""
}

func planRouter(p *project, d *draft, name string, spa bool) {
	m := p.js(d)
	argv := []string{"react-router", "build"}
	_, vite := p.config("vite.config")
	if name == "remix" {
		argv = []string{"remix", "vite:build"}
		if vite == "" {
			argv = []string{"remix", "build"}
		}
	}
	p.build(d, m, []string{"build"}, argv...)
	d.cache("node_modules/.vite")
	src, _ := p.config("react-router.config")
	if name == "remix" {
		src, _ = p.config("vite.config")
	}
	folder := "build"
	if o, ok := worktree.CleanDir(configfile.JSString(src, "buildDirectory")); ok && o != "" {
		folder = o
	}
	if spa {
		d.output("", folder+"/client")
		return
	}
	d.Output = folder
	entry := folder + "/server/index.js"
	if name == "remix" && vite == "" {
		entry = "build/index.js"
	}
	p.start(d, m, []string{name + "-serve", "./" + entry})
	if own := p.pkg.ScriptBody("start"); own == "" || strings.Contains(own, name+"-serve") { // another server may expect them elsewhere
		d.assets(folder+"/client", "")
	}
}

// nitro is the preset of frameworks that build a server into .output.
func nitro(id, name, tool string, deps ...string) preset {
	return preset{
		Preset: Preset{id, name, Node}, meta: true,
		match: func(p *project) string {
			if dep := p.pkg.Dep(deps...); dep != "" {
				return dependsOn(dep)
			}
			return ""
		},
		plan: func(p *project, d *draft) {
			m := p.js(d)
			p.build(d, m, []string{"build"}, tool, "build")
			d.cache("node_modules/.vite", "node_modules/.cache")
			src, file := p.config("app.config", "vite.config")
			if s := configfile.JSString(src, "preset"); s == "static" {
				d.Runtime = Static
				d.Why += ", and " + file + " sets the preset to static"
				d.output("", ".output/public", "dist")
				return
			}
			p.refuseNitro(d, configfile.JSString(src, "preset"))
			d.Output = ".output"
			d.assets(".output/public", "")
			d.run("node", ".output/server/index.mjs")
		},
	}
}

// nitroElsewhere matches Nitro's presets for other hosts.
var nitroElsewhere = lazyregexp.New(
	`^(?:vercel|netlify|cloudflare|aws|azure|firebase|deno|heroku|render|zeabur|edgio|stormkit|koyeb|iis|digital|layer0|alwaysdata|genezio)`,
)

func (p *project) refuseNitro(d *draft, preset string) {
	if nitroElsewhere.MatchString(preset) {
		d.refuse("Nitro's preset "+preset, "remove the preset from the configuration, or set it to node-server")
	}
}

func qwik(p *project) string {
	return p.pkg.Dep("@builder.io/qwik", "@qwik.dev/core")
}
