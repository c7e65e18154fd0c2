package framework

import (
	"maps"
	"regexp"
	"slices"
	"strings"

	"slipway/internal/build/configfile"
	"slipway/internal/build/worktree"
	"slipway/internal/platform/lazyregexp"
)

// Generators of other languages: single programs (Hugo, Zola, mdBook), Python and Ruby.

func otherGenerators() []preset {
	return []preset{
		{Preset: Preset{"hugo", "Hugo", Static}, match: hugo, plan: planHugo},
		{
			Preset: Preset{"zola", "Zola", Static},
			match: func(p *project) string {
				if !p.has("config.toml") || !strings.Contains(p.read("config.toml"), "base_url") {
					return ""
				}
				if p.hasDir("content") || p.hasDir("templates") || p.hasDir("themes") || p.hasDir("sass") {
					return "config.toml sets base_url and there are Zola's folders"
				}
				return ""
			},
			plan: func(p *project, d *draft) {
				var f struct {
					OutputDir string `toml:"output_dir"`
				}
				_, _ = configfile.DecodeTOML(p.parsed("config.toml"), &f) // an unreadable one is Zola's to report
				d.Build = p.ours("zola", "build")
				d.tool("zola", worktree.ToolVersion(p.read(".tool-versions"), "zola"))
				d.output(f.OutputDir, "public")
			},
		},
		{
			Preset: Preset{"mdbook", "mdBook", Static},
			match: func(p *project) string {
				if p.has("book.toml") {
					return "book.toml is there"
				}
				return ""
			},
			plan: func(p *project, d *draft) {
				var f struct {
					Build struct {
						Dir string `toml:"build-dir"`
					}
					Output map[string]any
				}
				_, _ = configfile.DecodeTOML(p.parsed("book.toml"), &f) // an unreadable one is mdBook's to report
				out := f.Build.Dir
				if out == "" {
					out = "book"
				}
				d.Build = p.ours("mdbook", "build")
				d.tool("mdbook", worktree.ToolVersion(p.read(".tool-versions"), "mdbook"))
				for _, name := range slices.Sorted(maps.Keys(f.Output)) {
					table, _ := f.Output[name].(map[string]any)
					_, said := table["optional"]
					if !said && name != "html" && rendererName.MatchString(name) { // a program beside mdBook: the pages don't need it
						d.env("MDBOOK_OUTPUT__"+strings.ToUpper(strings.ReplaceAll(name, "-", "_"))+"__OPTIONAL", "true")
					}
				}
				if len(f.Output) > 1 { // with several renderers each has a folder of its own
					d.output(worktree.Join(out, "html"), "book", out)
					return
				}
				d.output(out, "book", worktree.Join(out, "html"))
			},
		},
		{
			Preset: Preset{"mkdocs", "MkDocs", Static},
			match: func(p *project) string {
				if f := p.any("mkdocs.yml", "mkdocs.yaml"); f != "" {
					return f + " is there"
				}
				return ""
			},
			plan: func(p *project, d *draft) {
				src := p.read(p.any("mkdocs.yml", "mkdocs.yaml"))
				pkgs := []string{"mkdocs"}
				if regexp.MustCompile(`(?m)^theme:\s*(?:["']?material|\n(?:\s+.*\n)*?\s+name:\s*["']?material)`).MatchString(src) {
					pkgs = []string{"mkdocs-material"}
				}
				p.python(d, pkgs...)
				d.Build = p.ours(venv+"mkdocs", "build")
				d.output(configfile.YAMLScalar(src, "site_dir"), "site")
			},
		},
		{
			Preset: Preset{"sphinx", "Sphinx", Static},
			match: func(p *project) string {
				if f := sphinxConf(p); f != "" {
					return f + " is a Sphinx configuration"
				}
				return ""
			},
			plan: func(p *project, d *draft) {
				src := worktree.Parent(sphinxConf(p))
				out := worktree.Join(src, "_build/html")
				if strings.HasSuffix("/"+src, "/source") {
					out = worktree.Join(worktree.Parent(src), "build/html")
				}
				p.python(d, "sphinx")
				from := src
				if from == "" {
					from = "."
				}
				d.Build = p.ours(venv+"sphinx-build", "-b", "html", from, out)
				d.output("", out)
			},
		},
		{
			Preset: Preset{"pelican", "Pelican", Static},
			match: func(p *project) string {
				if p.has("pelicanconf.py") {
					return "pelicanconf.py is there"
				}
				return ""
			},
			plan: func(p *project, d *draft) {
				p.python(d, "pelican[markdown]")
				conf := p.any("publishconf.py", "pelicanconf.py")
				d.Build = p.ours(venv+"pelican", "content", "-s", conf, "-o", "output")
				d.output("", "output")
			},
		},
		{
			Preset: Preset{"jekyll", "Jekyll", Static}, match: jekyll,
			plan: func(p *project, d *draft) {
				p.ruby(d, "jekyll", "build")
				src := p.read(p.any("_config.yml", "_config.yaml"))
				d.output(configfile.YAMLScalar(src, "destination"), "_site")
				d.cache(".jekyll-cache")
				d.env("JEKYLL_ENV", "production")
			},
		},
		{
			Preset: Preset{"middleman", "Middleman", Static},
			match: func(p *project) string {
				if gem(p, "middleman") {
					return "the Gemfile names middleman"
				}
				return ""
			},
			plan: func(p *project, d *draft) {
				p.ruby(d, "middleman", "build")
				d.output("", "build")
			},
		},
	}
}

// ours is a build of one command of ours.
func (p *project) ours(argv ...string) []Command { return []Command{{Argv: argv, Dir: p.root}} }

var hugoWord = lazyregexp.New(`(?mi)^\s*["']?(?:baseURL|languageCode|theme|defaultContentLanguage|title)["']?\s*[:=]`)

func hugo(p *project) string {
	if f := p.any(
		"hugo.toml", "hugo.yaml", "hugo.yml", "hugo.json", "config/_default/hugo.toml", "config/_default/hugo.yaml",
		"config/_default/config.toml", "config/_default/config.yaml",
	); f != "" {
		return f + " is there"
	}
	f := p.any("config.toml", "config.yaml", "config.yml", "config.json")
	if f == "" || strings.Contains(p.read(f), "base_url") || !hugoWord.MatchString(p.read(f)) {
		return ""
	}
	for _, dir := range []string{"archetypes", "layouts", "themes", "content"} {
		if p.hasDir(dir) {
			return f + " and " + dir + " are there, as in a Hugo site"
		}
	}
	return ""
}

var hugoCall = calls(`hugo`)

func planHugo(p *project, d *draft) {
	d.tool("hugo", worktree.ToolVersion(p.read(".tool-versions"), "hugo", "gohugo"))
	d.env("HUGO_ENVIRONMENT", "production")
	d.cache("resources/_gen", "~/.cache/hugo_cache")
	if p.pkg != nil { // PostCSS and the like, or the program itself
		m := p.js(d)
		if script, body := p.pkg.Script("build"); hugoCall.MatchString(body) {
			p.script(d, m, script)
		} else if dep := p.pkg.Dep("hugo-bin", "hugo-extended"); dep != "" {
			d.Build = []Command{m.Exec(p.root, "hugo", "--gc", "--minify")}
			d.Tools = nil
		}
	}
	if d.Build == nil {
		d.Build = p.ours("hugo", "--gc", "--minify")
	}
	out := worktree.Option(p.command(), "--destination", "-d")
	for _, f := range []string{
		"hugo.toml", "hugo.yaml", "hugo.yml", "config.toml", "config.yaml", "config/_default/hugo.toml",
		"config/_default/config.toml",
	} {
		if out != "" || !p.has(f) {
			continue
		}
		if strings.HasSuffix(f, ".toml") {
			var c struct {
				PublishDir string // keys are matched without regard to case
			}
			_, _ = configfile.DecodeTOML(p.parsed(f), &c) // an unreadable one is Hugo's to report
			out = c.PublishDir
		} else if out = configfile.YAMLScalar(p.read(f), "publishDir"); out == "" {
			out = configfile.YAMLScalar(p.read(f), "publishdir")
		}
	}
	d.output(out, "public")
}

// sphinxConf finds the configuration where sphinx-quickstart puts it.
func sphinxConf(p *project) string {
	for _, f := range []string{"docs/conf.py", "docs/source/conf.py", "doc/conf.py", "doc/source/conf.py", "source/conf.py", "conf.py"} {
		if !p.has(f) {
			continue
		}
		src := p.read(f)
		if strings.Contains(src, "html_theme") || strings.Contains(src, "sphinx") || strings.Contains(src, "extensions") {
			return f
		}
	}
	return ""
}

const venv = ".venv/bin/"

// python makes a virtual environment in the project and installs what the nearest
// requirements file names, or these packages.
func (p *project) python(d *draft, packages ...string) {
	version := worktree.ToolVersion(p.read(".tool-versions"), "python")
	for _, f := range []string{"runtime.txt", ".python-version"} {
		if v := strings.TrimPrefix(worktree.FirstWord(p.read(f)), "python-"); v != "" {
			version = v
		}
	}
	d.tool("python3", bounded(version))
	pip := []string{venv + "pip", "install", "--no-input", "--disable-pip-version-check"}
	files := []string{
		"docs/requirements.txt", "requirements-docs.txt", "docs-requirements.txt", "requirements/docs.txt",
		"doc/requirements.txt", "requirements.txt",
	}
	if f := p.any(files...); f != "" {
		pip = append(pip, "-r", f)
		// The file may name plugins alone; the generator itself is then missing.
		if base, _, _ := strings.Cut(packages[0], "["); !strings.Contains(strings.ToLower(p.read(f)), base) {
			pip = append(pip, packages...)
		}
	} else {
		pip = append(pip, packages...)
	}
	d.Install = []Command{
		{Argv: []string{"python3", "-m", "venv", ".venv"}, Dir: p.root},
		{Argv: pip, Dir: p.root},
	}
	d.cache("~/.cache/pip")
}

var rendererName = lazyregexp.New(`^[a-z][a-z0-9-]{0,40}$`)

func gem(p *project, name string) bool {
	return regexp.MustCompile(`(?m)^\s*gem\s+["']` + name + `["']`).MatchString(p.read("Gemfile"))
}

func jekyll(p *project) string {
	conf := p.any("_config.yml", "_config.yaml")
	switch {
	case gem(p, "jekyll") || gem(p, "github-pages"):
		return "the Gemfile names jekyll"
	case p.has(".nojekyll") || p.pkg.Dep("hexo") != "" || p.has("index.php"): // GitHub Pages show the manual of a program, too
		return ""
	case p.frontMatter("index.html"):
		return "index.html begins with front matter, as pages of Jekyll do"
	case conf == "":
		return ""
	case p.frontMatter("index.md") || p.frontMatter("404.html"):
		return conf + " and pages with front matter are there"
	}
	for _, dir := range []string{"_posts", "_layouts", "_includes", "_data", "_sass"} {
		if p.hasDir(dir) {
			return conf + " and " + dir + " are there"
		}
	}
	if p.any(
		"index.md",
		"index.markdown",
		"README.md",
	) != "" && !p.has("index.html") && regexp.MustCompile(`(?m)^(?:theme|remote_theme|plugins|title)\s*:`).MatchString(p.read(conf)) {
		return conf + " and a page in Markdown are there"
	}
	return ""
}

// frontMatter reports whether a page begins with values for a generator, which no browser understands.
func (p *project) frontMatter(page string) bool {
	head := p.t.Head(worktree.Join(p.root, page), 5)
	return strings.HasPrefix(head, "---\n") || head == "---\r\n"
}

// ruby runs a program through Bundler where there is a Gemfile.
func (p *project) ruby(d *draft, argv ...string) {
	version := worktree.ToolVersion(p.read(".tool-versions"), "ruby")
	if v := strings.TrimPrefix(worktree.FirstWord(p.read(".ruby-version")), "ruby-"); v != "" {
		version = v
	}
	if !p.has("Gemfile") {
		d.tool(argv[0], "")
		d.Build = p.ours(argv...)
		return
	}
	d.tool("bundle", bounded(version))
	d.Install = p.ours("bundle", "install", "--jobs", "4", "--retry", "2")
	d.Build = p.ours(append([]string{"bundle", "exec"}, argv...)...)
	d.env("BUNDLE_PATH", "vendor/bundle")
	if p.has("Gemfile.lock") {
		d.env("BUNDLE_DEPLOYMENT", "true")
	} else {
		d.warn("No Gemfile.lock: each build installs the newest gems that the Gemfile allows")
	}
	d.cache("vendor/bundle")
}
