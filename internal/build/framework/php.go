package framework

import (
	"encoding/json"
	"maps"
	"path"
	"slices"
	"strings"

	"slipway/internal/build/worktree"
	"slipway/internal/platform/lazyregexp"
)

// PHP: Composer projects and plain files. They are recognised and planned; serving
// them is the runtime's business.

// composer returns what composer.json requires, nil without one.
func (p *project) composer() map[string]string {
	var f map[string]json.RawMessage
	if !p.t.JSON(worktree.Join(p.root, "composer.json"), &f) {
		return nil
	}
	req := worktree.Table(f["require"])
	req[""] = "" // readable, even if it requires nothing
	return req
}

func phpFrameworks() []preset {
	var list []preset
	for _, f := range []struct{ dep, id, name string }{
		{"laravel/framework", "laravel", "Laravel"},
		{"symfony/framework-bundle", "symfony", "Symfony"},
		{"slim/slim", "slim", "Slim"},
	} {
		list = append(list, preset{
			Preset: Preset{f.id, f.name, PHP}, server: true,
			match: func(p *project) string {
				if p.composer()[f.dep] != "" {
					return "composer.json requires " + f.dep
				}
				return ""
			},
			plan: func(p *project, d *draft) {
				planPHP(p, d)
				switch f.id {
				case "laravel":
					d.env("APP_ENV", "production")
				case "symfony":
					d.env("APP_ENV", "prod")
				}
			},
		})
	}
	return list
}

func phpPlain() []preset {
	return []preset{{
		Preset: Preset{"php", "PHP", PHP}, server: true,
		match: func(p *project) string {
			root, index := p.documentRoot()
			if set := p.s.place.DocumentRoot; set != nil && p.holds(*set, phpFile) {
				return "the document root is set, and contains PHP files"
			}
			if index != "" {
				if path.Base(index) != "index.php" {
					return index + " is the only PHP file at the top, and answers for every path"
				}
				if p.composer() != nil {
					return "composer.json and " + index + " are there"
				}
				return index + " is there"
			}
			if folder, ok := p.indexFolder(); ok && folder == root && !p.builds() && p.holds(folder, phpFile) {
				return shown(folder) + " contains an index.html and PHP files"
			}
			return ""
		},
		plan: planPHP,
	}}
}

var phpFile = lazyregexp.New(`\.php$`)

// scripts lists the PHP files at the top of a project that has no page, no package, and no program of Node.js.
func (p *project) scripts() (list []string) {
	if _, pages := p.indexFolder(); pages || p.composer() != nil || p.builds() || p.pkg.ScriptBody("start") != "" {
		return nil
	}
	for _, f := range p.t.List {
		if worktree.Parent(f) == p.root && phpFile.MatchString(f) {
			list = append(list, path.Base(f))
		}
	}
	return list
}

// forWordPress returns the error of a site of files or programs whose project is a theme or plugin, or nil.
func (p *project) forWordPress() error {
	kind := strings.TrimSuffix(p.extension(), "s/")
	if kind == "" {
		return nil
	}
	return invalid("This is a WordPress "+kind, "create a site of the type wordpress from it", nil)
}

// documentRoot returns the folder that is served, and its index, or its only script, or "".
func (p *project) documentRoot() (root, index string) {
	if set := p.s.place.DocumentRoot; set != nil {
		if at := worktree.Join(*set, "index.php"); p.has(at) {
			return *set, at
		}
		return *set, ""
	}
	for _, dir := range documentRoots {
		if at := worktree.Join(dir, "index.php"); p.has(at) {
			return dir, at
		}
	}
	if folder, ok := p.indexFolder(); ok && p.holds(folder, phpFile) {
		return folder, ""
	}
	if list := p.scripts(); len(list) == 1 {
		return "", list[0]
	}
	if p.hasDir("public") {
		root = "public"
	}
	return root, ""
}

// documentRoots are where index.php stands, in the order in which they are tried, those of hosts' control panels last.
// CakePHP and Magento have another index.php at the top, which nothing else beside is for.
var documentRoots = []string{
	"public", "webroot", "pub", "", "web", "htdocs", "www", "public_html", "httpdocs", "docroot", "html", "wwwroot",
}

// phpRouters are packages whose projects answer for all paths with their index, wherever that stands.
var phpRouters = []string{
	"slim/slim", "nikic/fast-route", "league/route", "mikecao/flight", "flightphp/core", "bcosca/fatfree", "bcosca/fatfree-core",
	"altorouter/altorouter", "bramus/router", "mezzio/mezzio", "symfony/http-kernel", "illuminate/routing", "laminas/laminas-mvc",
	"getkirby/cms", "statamic/cms", "silverstripe/framework", "typo3/cms-core", "shopware/core", "magento/framework", "spiral/framework",
}

// routes reports whether the index of a document root answers for paths that name no file: that of a framework, that of a
// Composer project whose document root is a folder of its own, or the only script of a project. Where a .htaccess says so, too,
// apache finds out. Of anything else such a path is missing.
func (p *project) routes(framework, root, index string, require map[string]string) bool {
	known := func(dep string) bool { return require[dep] != "" }
	return index != "" && (framework != "php" || path.Base(index) != "index.php" || require != nil && root != "" ||
		slices.ContainsFunc(phpRouters, known) || slices.ContainsFunc(phpStorage, func(f phpFolders) bool { return known(f.dep) }))
}

// phpFolders are those that projects with a dependency write to.
type phpFolders struct {
	dep                string
	storage, temporary []string
}

// phpStorage says which folders projects on a framework write to.
var phpStorage = []phpFolders{
	{"laravel/framework", []string{"storage"}, []string{"bootstrap/cache", "storage/framework/views"}},
	{"symfony/framework-bundle", []string{"var"}, []string{"var/cache"}}, // the cache is one release's
	{"drupal/core-recommended", []string{"web/sites/default/files"}, nil},
	{"drupal/core", []string{"web/sites/default/files"}, nil},
	{"codeigniter4/framework", []string{"writable"}, []string{"writable/cache"}},
	{"cakephp/cakephp", []string{"logs"}, []string{"tmp"}},
	{"yiisoft/yii2", []string{"runtime"}, []string{"web/assets"}},
	{"craftcms/cms", []string{"storage"}, []string{"web/cpresources"}},
}

// asksPath matches a script that looks at the path of a request.
var asksPath = lazyregexp.New(`\b(REQUEST_URI|PATH_INFO|REDIRECT_URL)\b`)

func composerInstall(dir string) Command {
	argv := []string{"composer", "install", "--no-dev", "--no-interaction", "--no-progress", "--prefer-dist", "--optimize-autoloader"}
	return Command{Argv: argv, Dir: dir}
}

func planPHP(p *project, d *draft) {
	require := p.composer()
	d.tool("php", constraint(require["php"]))
	d.Tools[len(d.Tools)-1].Extensions = p.extensions(require)
	if require != nil {
		d.Install = []Command{composerInstall(p.root)}
		d.tool("composer", "")
		d.cache("~/.cache/composer")
		if !p.has("composer.lock") {
			d.warn("No composer.lock: each build installs the newest versions that composer.json allows")
		}
	}
	if p.builds() { // front-end assets
		php := d.Install
		m := p.js(d)
		d.Install = append(php, d.Install...)
		if len(d.Inputs) > 0 { // they decide about packages of Node.js alone
			d.Scripts = append(slices.Clone(php), d.Scripts...)
		}
		p.build(d, m, []string{"build"})
		d.cache("node_modules/.vite")
	}
	root, index := p.documentRoot()
	d.Start = &Start{DocumentRoot: root}
	switch {
	case p.routes(d.Framework, root, index, require):
		d.Start.FrontController = path.Base(index)
	case index != "" && asksPath.MatchString(p.t.Read(worktree.Join(p.root, index))):
		d.pathsMissing = true
	}
	for _, f := range phpStorage {
		if require[f.dep] != "" {
			d.Start.Storage, d.Start.Temporary = f.storage, f.temporary
			break
		}
	}
	d.Assets = []AssetFolder{{Folder: root}}
}

var extensionName = lazyregexp.New(`^ext-([a-z0-9_-]{1,40})$`)

// extensions lists those of PHP that composer.json and the packages of composer.lock require.
func (p *project) extensions(require map[string]string) []string {
	all := map[string]bool{}
	add := func(require map[string]string) {
		for name := range require {
			if m := extensionName.FindStringSubmatch(strings.ToLower(name)); m != nil && len(all) < 60 {
				all[m[1]] = true
			}
		}
	}
	add(require)
	var lock struct {
		Packages []struct {
			Require json.RawMessage `json:"require"` // an empty one is a list
		} `json:"packages"`
	}
	// Composer reports a lock file that is broken.
	if err := json.Unmarshal([]byte(p.t.Head(worktree.Join(p.root, "composer.lock"), 2<<20)), &lock); err == nil {
		for _, pkg := range lock.Packages {
			add(worktree.Table(pkg.Require))
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// Extensions returns the extensions of PHP that the plan asks for.
func (p Plan) Extensions() []string {
	for _, t := range p.Tools {
		if t.Name == "php" {
			return t.Extensions
		}
	}
	return nil
}

// constraint keeps what composer.json asks for printable and short.
func constraint(v string) string {
	v = strings.TrimSpace(v)
	if len(v) > 100 || strings.Trim(v, "0123456789.*xXv^~<>=!|, -@abcdehlprtu") != "" {
		return ""
	}
	return v
}

var phpNumber = lazyregexp.New(`^v?(\d{1,2})(?:\.(\d{1,2})(?:\.\d{1,3})?)?$`)

// minorOf returns a constraint that allows a version's minor line, such as 8.4 of 8.4.1, where a constraint of
// composer.json allows it, too. It reports false for what isn't a version.
func minorOf(version, require string) (string, bool) {
	m := phpNumber.FindStringSubmatch(version)
	if m == nil {
		return "", false
	}
	line := strings.TrimSuffix(m[1]+"."+m[2], ".") + ".*"
	if strings.TrimSpace(require) == "" {
		return line, true
	}
	var either []string
	for _, r := range strings.FieldsFunc(require, func(r rune) bool { return r == '|' }) {
		either = append(either, strings.TrimSpace(r)+", "+line)
	}
	return strings.Join(either, " || "), true
}

// bounded keeps a version that a repository asks for printable and short.
func bounded(v string) string {
	if v, ok := worktree.NodeVersion(v); ok {
		return v
	}
	return ""
}

// Asks returns the version of a tool that the plan asks for; empty is any.
func (p Plan) Asks(tool string) string {
	for _, t := range p.Tools {
		if t.Name == tool {
			return t.Version
		}
	}
	return ""
}
