package framework

import (
	"encoding/json"
	"path"
	"regexp"
	"strings"

	"slipway/internal/build/configfile"
	"slipway/internal/build/worktree"
	"slipway/internal/platform/lazyregexp"
)

// Single page applications and the bundlers that build them.

func appTools() []preset {
	return []preset{
		{
			Preset: Preset{"angular", "Angular", Static},
			match: func(p *project) string {
				if dep := p.pkg.Dep("@angular/cli", "@angular/build", "@angular-devkit/build-angular"); dep != "" && p.has("angular.json") {
					return "angular.json is there and package.json depends on " + dep
				}
				return ""
			},
			plan: func(p *project, d *draft) {
				m := p.js(d)
				p.build(d, m, []string{"build"}, "ng", "build")
				out, others, server := angularOutput(p)
				d.output(out, "dist", others...)
				d.cache(".angular/cache")
				d.env("NG_CLI_ANALYTICS", "false")
				if server != "" {
					d.Runtime, d.OutputCandidates = Node, nil
					d.Why += `, and it sets outputMode to "server"`
					d.assets(out, "")
					d.run("node", server)
				}
			},
		},
		simple{
			id: "ember", name: "Ember", deps: []string{"ember-cli"}, argv: []string{"ember", "build", "--environment=production"},
			out: func(p *project) string { return worktree.Option(p.command(), "--output-path", "-o") }, output: "dist",
		}.preset(),
		{
			Preset: Preset{"create-react-app", "Create React App", Static},
			match: func(p *project) string {
				if dep := p.pkg.Dep("react-scripts", "react-app-rewired", "@craco/craco"); dep != "" {
					return dependsOn(dep)
				}
				return ""
			},
			plan: func(p *project, d *draft) {
				m := p.js(d)
				p.build(d, m, []string{"build"}, "react-scripts", "build")
				d.output(worktree.Option(p.command(), "BUILD_PATH"), "build", "dist")
				d.cache("node_modules/.cache")
				oldWebpack(p, d, "react-scripts", 5)
			},
		},
		{
			Preset: Preset{"vue-cli", "Vue CLI", Static},
			match: func(p *project) string {
				if p.pkg.Dep("@vue/cli-service") != "" {
					return dependsOn("@vue/cli-service")
				}
				return ""
			},
			plan: func(p *project, d *draft) {
				m := p.js(d)
				p.build(d, m, []string{"build"}, "vue-cli-service", "build")
				src, _ := p.config("vue.config")
				out := worktree.Option(p.command(), "--dest")
				if out == "" {
					out = configfile.JSPath(src, "outputDir")
				}
				d.output(out, "dist")
				d.cache("node_modules/.cache")
				oldWebpack(p, d, "@vue/cli-service", 5)
			},
		},
		simple{
			id:     "preact-cli",
			name:   "Preact CLI",
			deps:   []string{"preact-cli"},
			argv:   []string{"preact", "build"},
			output: "build",
		}.preset(),
		simple{
			id:     "stencil",
			name:   "Stencil",
			deps:   []string{"@stencil/core"},
			argv:   []string{"stencil", "build"},
			output: "www",
			others: []string{"dist"},
		}.preset(),
		{
			Preset: Preset{"expo", "Expo web", Static},
			match: func(p *project) string {
				if p.pkg.Dep("expo") != "" && p.pkg.Dep("react-native-web") != "" {
					return "package.json depends on expo and react-native-web"
				}
				return ""
			},
			plan: func(p *project, d *draft) {
				m := p.js(d)
				script, _ := p.pkg.ScriptCalling(calls(`expo\s+export`), "build")
				p.script(d, m, script, "expo", "export", "--platform", "web")
				d.output("", "dist", "web-build")
				d.env("EXPO_NO_TELEMETRY", "1")
			},
		},
		{Preset: Preset{"vite", "Vite", Static}, match: vite, plan: planVite},
	}
}

// oldWebpack lets webpack 4 run on a Node whose OpenSSL no longer has its hash. Node
// 16 and older refuse the option.
func oldWebpack(p *project, d *draft, dep string, fixed int) {
	v := worktree.Major(p.pkg.Version(dep))
	if n := worktree.Major(d.Node); v > 0 && v < fixed && (n == 0 || n >= 17) {
		d.env("NODE_OPTIONS", "--openssl-legacy-provider")
	}
}

var viteCall = lazyregexp.New(`(?:^|[\s;&|/])(?:vite|vite-ssg|vite-react-ssg|rolldown-vite|vp)\s+build(?:\s|$)`)

func vite(p *project) string {
	dep := p.pkg.Dep("vite", "rolldown-vite", "vite-plus")
	if dep == "" || server(p) != "" {
		return ""
	}
	src, file := p.config("vite.config")
	if strings.Contains(src, "laravel-vite-plugin") || configfile.JSBlock(configfile.JSBlock(src, "build"), "lib") != "" {
		return "" // assets of a server; a library
	}
	root := viteRoot(p, src)
	script, body := p.pkg.Script("build")
	switch {
	case p.has(worktree.Join(root, "index.html")) && script != "":
		return dependsOn(dep) + ", has a build script and an index.html"
	case p.has(worktree.Join(root, "index.html")):
		return dependsOn(dep) + " and there is an index.html"
	case viteCall.MatchString(body) && file != "" && (configfile.JSPath(src, "root") != "" || strings.Contains(src, "input")):
		return dependsOn(dep) + " and its build script runs it"
	}
	return ""
}

func viteRoot(p *project, src string) string {
	if f := regexp.MustCompile(`vite\s+build\s+([^\s&|;-][^\s&|;]*)`).FindStringSubmatch(p.command()); f != nil {
		return worktree.Under("", f[1])
	}
	return worktree.Under("", configfile.JSPath(src, "root"))
}

func planVite(p *project, d *draft) {
	m := p.js(d)
	script, _ := p.pkg.Script("build")
	if script == "" {
		script, _ = p.pkg.ScriptCalling(viteCall, "build:prod", "build:production")
	}
	p.script(d, m, script, "vite", "build")
	for _, with := range [][2]string{
		{"vue", "Vue"}, {"svelte", "Svelte"}, {"solid-js", "Solid"}, {"preact", "Preact"}, {"react", "React"}, {"lit", "Lit"},
	} {
		if p.pkg.Dep(with[0]) != "" {
			d.Name = "Vite with " + with[1]
			break
		}
	}
	src, _ := p.config("vite.config")
	root := viteRoot(p, src)
	out := worktree.Option(p.command(), "--outDir")
	if out == "" {
		block := configfile.JSBlock(src, "build")
		out = configfile.JSPath(block, "outDir")
		if strings.Contains(block, "__dirname") || strings.Contains(block, "import.meta.dirname") {
			root = "" // an absolute folder, counted from the configuration
		}
	}
	if out != "" && worktree.Under(root, out) == "" {
		d.warn("Vite's output folder " + out + " is outside the root directory; set the root directory above it")
	}
	d.output(worktree.Under(root, out), worktree.Join(root, "dist"), "dist", "build")
	d.cache("node_modules/.vite")
}

// angularOutput reads the production build's outputPath. The application builder puts
// the site into its folder `browser`, and server, "" for none, into another beside it.
func angularOutput(p *project) (out string, others []string, server string) {
	var f struct {
		DefaultProject string
		Projects       map[string]struct {
			ProjectType        string
			Architect, Targets map[string]struct {
				Builder string
				Options struct {
					OutputPath, SSR json.RawMessage
					OutputMode      string
				}
			}
		}
	}
	if !p.t.JSON(worktree.Join(p.root, "angular.json"), &f) {
		return "", nil, ""
	}
	name := f.DefaultProject
	if _, ok := f.Projects[name]; !ok {
		name = ""
		names := map[string]string{}
		for n, pr := range f.Projects {
			if pr.ProjectType != "library" {
				names[n] = n
			}
		}
		if all := worktree.SortedKeys(names); len(all) > 0 {
			name = all[0]
		}
	}
	if name == "" {
		return "", nil, ""
	}
	build, ok := f.Projects[name].Architect["build"]
	if !ok {
		build = f.Projects[name].Targets["build"]
	}
	base, browser := configfile.Text(build.Options.OutputPath), "browser"
	if o := configfile.Members(build.Options.OutputPath); o != nil {
		base = configfile.Text(o["base"])
		if b, ok := o["browser"]; ok {
			browser = configfile.Text(b)
		}
	}
	if base == "" {
		base = path.Join("dist", name)
	}
	if strings.HasSuffix(build.Builder, ":application") {
		if build.Options.OutputMode == "server" && configfile.Text(configfile.Members(build.Options.SSR)["entry"]) != "" {
			folder := "server"
			if s, ok := configfile.Members(build.Options.OutputPath)["server"]; ok {
				folder = configfile.Text(s)
			}
			server = path.Join(base, folder, "server.mjs")
		}
		return path.Join(base, browser), []string{base}, server
	}
	return base, []string{path.Join(base, "browser")}, ""
}

// bundlers are the presets of front ends without a framework that is known by name.
func bundlers() []preset {
	return []preset{
		{
			Preset: Preset{"rsbuild", "Rsbuild", Static}, tier: weak,
			match: byDep("@rsbuild/core"),
			plan: func(p *project, d *draft) {
				m := p.js(d)
				p.build(d, m, []string{"build"}, "rsbuild", "build")
				d.output("", "dist")
			},
		},
		{
			Preset: Preset{"parcel", "Parcel", Static}, tier: weak,
			match: byDep("parcel", "parcel-bundler"),
			plan: func(p *project, d *draft) {
				m := p.js(d)
				argv := []string{"parcel", "build"}
				if entry := p.any(
					"index.html",
					"src/index.html",
					"public/index.html",
					"app/index.html",
				); entry != "" && configfile.Text(p.pkg.Raw["source"]) == "" {
					argv = append(argv, entry)
				}
				p.build(d, m, []string{"build"}, argv...)
				out := worktree.Option(p.command(), "--dist-dir", "--out-dir", "-d")
				if out == "" {
					out = configfile.Text(configfile.Members(configfile.Members(p.pkg.Raw["targets"])["default"])["distDir"])
				}
				d.output(out, "dist")
				d.cache(".parcel-cache", ".cache")
			},
		},
		{
			Preset: Preset{"webpack", "Webpack", Static}, tier: weak,
			match: byDep("webpack", "@rspack/core", "@rspack/cli"),
			plan: func(p *project, d *draft) {
				m := p.js(d)
				argv := []string{"webpack", "--mode", "production"}
				if p.pkg.Dep("webpack") == "" {
					argv = []string{"rspack", "build"}
				}
				p.build(d, m, []string{"build", "build:prod", "prod", "production"}, argv...)
				src, _ := p.config(
					"webpack.config", "webpack.prod", "webpack.config.prod", "rspack.config", "config/webpack.prod",
					"config/webpack.config.prod",
				)
				out := worktree.Option(p.command(), "--output-path", "-o")
				if out == "" {
					out = configfile.JSPath(configfile.JSBlock(src, "output"), "path")
				}
				d.output(out, "dist", "build", "public")
				d.cache("node_modules/.cache")
				oldWebpack(p, d, "webpack", 5)
			},
		},
		{
			Preset: Preset{"rollup", "Rollup", Static}, tier: weak,
			match: func(p *project) string {
				if p.pkg.Dep("rollup", "esbuild", "snowpack") != "" && p.builds() && p.page() {
					return dependsOn(p.pkg.Dep("rollup", "esbuild", "snowpack")) + " and has a build script"
				}
				return ""
			},
			plan: func(p *project, d *draft) {
				m := p.js(d)
				p.build(d, m, []string{"build"})
				others := []string{"dist", "build", "www"}
				if p.has("index.html") {
					others = append(others, "")
				}
				d.output("", "public", others...)
			},
		},
		{
			Preset: Preset{"storybook", "Storybook", Static}, tier: weak,
			match: func(p *project) string {
				if dep := p.pkg.Dep(
					"storybook", "@storybook/react", "@storybook/vue3", "@storybook/html", "@storybook/svelte",
					"@storybook/angular", "@storybook/web-components",
				); dep != "" && p.hasDir(".storybook") {
					return dependsOn(dep) + " and .storybook is there"
				}
				return ""
			},
			plan: func(p *project, d *draft) {
				m := p.js(d)
				script, body := p.pkg.ScriptCalling(
					lazyregexp.New(`(?:storybook\s+build|build-storybook)`),
					"build-storybook",
					"storybook:build",
					"build:storybook",
				)
				p.script(d, m, script, "storybook", "build")
				d.output(worktree.Option(body, "-o", "--output-dir"), "storybook-static")
				d.cache("node_modules/.cache")
				d.env("STORYBOOK_DISABLE_TELEMETRY", "1")
			},
		},
	}
}

func byDep(names ...string) func(*project) string {
	return func(p *project) string {
		dep := p.pkg.Dep(names...)
		if dep == "" || !p.builds() && !p.page() && p.any(
			"webpack.config.js",
			"rsbuild.config.ts",
			"rsbuild.config.js",
			"rspack.config.js",
		) == "" {
			return ""
		}
		if p.builds() {
			return dependsOn(dep) + " and has a build script"
		}
		return dependsOn(dep)
	}
}

// page reports whether the project has the page that a bundler starts from.
func (p *project) page() bool {
	return p.any("index.html", "src/index.html", "public/index.html", "app/index.html", "static/index.html", "src/index.ejs") != ""
}
