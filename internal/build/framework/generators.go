package framework

import (
	"path"
	"strings"

	"slipway/internal/build/configfile"
	"slipway/internal/build/worktree"
	"slipway/internal/platform/lazyregexp"
)

// Static site generators in npm packages.

// simple is a preset that is detected by a dependency and consists of a command and an output folder.
type simple struct {
	id, name string
	deps     []string
	scripts  []string // tried in order; nil means "build"
	argv     []string
	out      func(p *project) string // output folder from the configuration. Optional.
	output   string
	others   []string
	cache    []string
	env      [2]string
}

func (s simple) preset() preset {
	return preset{
		Preset: Preset{s.id, s.name, Static},
		match: func(p *project) string {
			if dep := p.pkg.Dep(s.deps...); dep != "" {
				return dependsOn(dep)
			}
			return ""
		},
		plan: func(p *project, d *draft) {
			m := p.js(d)
			scripts := s.scripts
			if scripts == nil {
				scripts = []string{"build"}
			}
			p.build(d, m, scripts, s.argv...)
			configured := ""
			if s.out != nil {
				configured = s.out(p)
			}
			d.output(configured, s.output, s.others...)
			d.cache(s.cache...)
			if s.env[0] != "" {
				d.env(s.env[0], s.env[1])
			}
		},
	}
}

var (
	vitepressCall = lazyregexp.New(`(?:^|[\s;&|/])vitepress\s+build(?:\s+([^\s&|;-][^\s&|;]*))?`)
	vuepressCall  = lazyregexp.New(`(?:^|[\s;&|/])(?:vuepress|vuepress-vite|vuepress-webpack)\s+build(?:\s+([^\s&|;-][^\s&|;]*))?`)
	eleventyCall  = calls(`(?:eleventy|@11ty/eleventy)`)
	eleventyOut   = lazyregexp.New(`setOutputDirectory\(\s*["'` + "`" + `]([^"'` + "`" + `$\n]+)`)
)

func generators() []preset {
	return []preset{
		simple{
			id: "gatsby", name: "Gatsby", deps: []string{"gatsby"}, argv: []string{"gatsby", "build"},
			output: "public", cache: []string{".cache", "public"}, env: [2]string{"GATSBY_TELEMETRY_DISABLED", "1"},
		}.preset(),
		simple{
			id: "docusaurus", name: "Docusaurus", deps: []string{"@docusaurus/core"}, argv: []string{"docusaurus", "build"},
			out: func(p *project) string { return worktree.Option(p.command(), "--out-dir") }, output: "build",
			cache: []string{".docusaurus", "node_modules/.cache"},
		}.preset(),
		simple{
			id: "docusaurus-1", name: "Docusaurus 1", deps: []string{"docusaurus"}, argv: []string{"docusaurus-build"},
			out: func(p *project) string { // build/<projectName>
				src, _ := p.config("siteConfig")
				return worktree.Under("build", configfile.JSString(src, "projectName"))
			}, output: "build",
		}.preset(),
		press("vitepress", "VitePress", ".vitepress", vitepressCall, "vitepress"),
		press("vuepress", "VuePress", ".vuepress", vuepressCall, "vuepress"),
		simple{
			id:     "rspress",
			name:   "Rspress",
			deps:   []string{"rspress", "@rspress/core"},
			argv:   []string{"rspress", "build"},
			out:    func(p *project) string { src, _ := p.config("rspress.config"); return configfile.JSPath(src, "outDir") },
			output: "doc_build",
		}.preset(),
		{
			Preset: Preset{"eleventy", "Eleventy", Static},
			match: func(p *project) string {
				if dep := p.pkg.Dep("@11ty/eleventy", "@awesome.me/eleventy"); dep != "" {
					return dependsOn(dep)
				}
				return ""
			},
			plan: func(p *project, d *draft) {
				m := p.js(d)
				p.build(d, m, []string{"build"}, "eleventy")
				script, body := p.pkg.ScriptCalling(eleventyCall, "build")
				out := ""
				if script == "build" || strings.HasPrefix(script, "build") {
					out = worktree.Option(body, "--output")
				}
				if out == "" {
					src, _ := p.config(".eleventy", "eleventy.config")
					if f := eleventyOut.FindStringSubmatch(src); f != nil {
						out = f[1]
					} else if out = configfile.JSString(configfile.JSBlock(src, "dir"), "output"); out == "" {
						out = configfile.JSString(src, "output")
					}
				}
				d.output(out, "_site", "dist", "public")
				d.cache(".cache")
			},
		},
		{
			Preset: Preset{"hexo", "Hexo", Static},
			match: func(p *project) string {
				if p.pkg.Dep("hexo") != "" {
					return dependsOn("hexo")
				}
				return ""
			},
			plan: func(p *project, d *draft) {
				m := p.js(d)
				p.build(d, m, []string{"build"}, "hexo", "generate")
				d.output(configfile.YAMLScalar(p.read("_config.yml"), "public_dir"), "public")
			},
		},
		simple{id: "gridsome", name: "Gridsome", deps: []string{"gridsome"}, argv: []string{"gridsome", "build"}, output: "dist"}.preset(),
		simple{
			id: "slidev", name: "Slidev", deps: []string{"@slidev/cli"}, argv: []string{"slidev", "build"},
			out: func(p *project) string { return worktree.Option(p.command(), "--out", "-o") }, output: "dist",
		}.preset(),
		simple{
			id:     "metalsmith",
			name:   "Metalsmith",
			deps:   []string{"metalsmith"},
			argv:   []string{"metalsmith"},
			output: "build",
			others: []string{"dist", "public"},
		}.preset(),
	}
}

// press is the preset of VitePress and VuePress: a folder of pages that contains a dot folder, the default place of the
// output.
func press(id, name, dot string, call *lazyregexp.Regexp, dep string) preset {
	pages := func(p *project) string {
		for _, dir := range []string{"docs", "", "src", "doc", "website", "site", "documentation"} {
			if p.hasDir(worktree.Join(dir, dot)) {
				return dir
			}
		}
		return "docs"
	}
	return preset{
		Preset: Preset{id, name, Static},
		match: func(p *project) string {
			if dep := p.pkg.Dep(dep, dep+"-vite", dep+"-webpack"); dep != "" {
				return dependsOn(dep)
			}
			return ""
		},
		plan: func(p *project, d *draft) {
			m := p.js(d)
			script, body := p.pkg.ScriptCalling(call, "docs:build", "build", "build:docs")
			if p.s.command.ok() {
				body = p.s.command.text
			}
			dir := pages(p)
			if f := call.FindStringSubmatch(body); f != nil {
				dir = "" // without an argument it is the working directory
				if c, ok := worktree.CleanDir(strings.Trim(f[1], `"'`)); ok {
					dir = c
				}
			}
			argv := []string{dep, "build"}
			if dir != "" {
				argv = append(argv, dir)
			}
			p.script(d, m, script, argv...)
			out := worktree.Option(body, "--outDir", "-d", "--dest")
			if out == "" {
				src, _ := p.config(worktree.Join(dir, dot+"/config"), worktree.Join(dir, dot+"/config/index"))
				// VitePress resolves outDir from the pages' folder, VuePress 1 resolves dest from the working
				// directory.
				out = worktree.Under(dir, configfile.JSPath(src, "outDir"))
				if out == "" {
					out = configfile.JSString(src, "dest")
				}
			} else if id == "vitepress" {
				out = worktree.Under(dir, out)
			}
			d.output(out, worktree.Join(dir, dot+"/dist"))
			d.cache(path.Join(dir, dot, "cache"), path.Join(dir, dot, ".cache"))
		},
	}
}
