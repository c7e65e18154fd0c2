package framework

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"slipway/internal/build/worktree"
	"slipway/internal/platform/lazyregexp"
)

// hostFile is a configuration file for another host or server that Slipway ignores.
type hostFile struct {
	name string
	asks *lazyregexp.Regexp // content that matters. Optional: nil means that the file's presence is enough.
	why  string
}

const useRules = "redirects and headers are read from _redirects and _headers"

var hostFiles = []hostFile{
	{
		".htaccess",
		lazyregexp.New(`(?im)^[ \t]*(rewriterule|redirect|redirectmatch|errordocument|header|authtype|require|deny|satisfy)[ \t]`),
		"rules of Apache are not obeyed; " + useRules + ", passwords are part of the site's serving settings",
	},
	{
		"web.config",
		lazyregexp.New(`(?i)<(rewrite|httpredirect|customheaders|authorization)\b`),
		"rules of IIS are not obeyed; " + useRules,
	},
	{"firebase.json", lazyregexp.New(`"(redirects|rewrites|headers|functions)"`), "settings of Firebase are not obeyed; " + useRules},
	{"staticwebapp.config.json", nil, "settings of Azure Static Web Apps are not obeyed; " + useRules},
	{"customHttp.yml", nil, "settings of AWS Amplify are not obeyed; " + useRules},
	{"now.json", nil, "it is not read; its successor vercel.json is"},
	{"serve.json", nil, "settings of serve are not obeyed; " + useRules},
	{".vercelignore", nil, whole},
	{".nowignore", nil, whole},
	{".surgeignore", nil, whole},
	{"_worker.js", nil, "functions of Cloudflare do not run here; the file is published as it is"},
}

// platformFiles lists configuration files of other platforms. Files with ambiguous names are identified by their
// content.
var platformFiles = []hostFile{
	{"render.yaml", nil, "settings of Render are not obeyed; " + useSettings},
	{"railway.json", nil, "settings of Railway are not obeyed; " + useSettings},
	{"railway.toml", nil, "settings of Railway are not obeyed; " + useSettings},
	{"fly.toml", nil, "settings of Fly.io are not obeyed; " + useSettings},
	{"nixpacks.toml", nil, "settings of Nixpacks are not obeyed; " + useSettings},
	{"amplify.yml", nil, "settings of AWS Amplify are not obeyed; " + useSettings},
	{"heroku.yml", nil, "settings of Heroku are not obeyed; " + useSettings},
	{"app.json", lazyregexp.New(`"(buildpacks|formation|addons|postdeploy)"\s*:`), "settings of Heroku are not obeyed; " + useSettings},
	{
		"static.json",
		lazyregexp.New(`"(root|routes|clean_urls|https_only|error_page|proxies)"\s*:`),
		"settings of Heroku's static buildpack are not obeyed; " + useSettings,
	},
	{"Aptfile", nil, "packages of the system are not installed"},
}

const useSettings = "slipway.toml says how a site is built, run and served"

// staticRules lists files with rules for static sites, with expressions that match rules in them.
var staticRules = []hostFile{
	{bySlipway, lazyregexp.New(`(?m)^[ \t]*\[+[ \t]*(redirects|headers|serve)\b|^[ \t]*(redirects|headers)[ \t]*=`), appliesNot},
	{ByNetlify, lazyregexp.New(`(?m)^[ \t]*\[\[[ \t]*(redirects|headers)[ \t]*\]\]`), appliesNot},
	{ByVercel, lazyregexp.New(`"(redirects|rewrites|headers|routes|trailingSlash)"\s*:`), appliesNot},
	{"_redirects", nil, appliesNot},
	{"_headers", nil, appliesNot},
	{"public/_redirects", nil, appliesNot},
	{"public/_headers", nil, appliesNot},
}

const appliesNot = "redirects, rewrites and headers are for static sites; this application answers for its own paths"

var basicAuth = lazyregexp.New(`(?im)^[ \t"']*basic-auth\b`)

// passwords refuses rules that protect paths of a static site if a server answers for these paths.
func (p *project) passwords() {
	for _, f := range staticRules {
		if at := worktree.Join(p.root, f.name); basicAuth.MatchString(p.t.Config(at)) {
			p.t.Refuse(at, "its Basic-Auth is for static sites, and this application answers for its own paths",
				"remove it, and let the application ask for the password, or protect the whole site in its serving settings")
		}
	}
}

// otherScripts lists scripts that other platforms run instead of the build script, or before or after it.
var otherScripts = []string{"heroku-prebuild", "heroku-postbuild", "gcp-build", "vercel-build", "now-build"}

const whole = "it is not obeyed; the whole output folder is published"

// functionFolders lists folders of functions that another host runs beside a static site.
var functionFolders = []struct {
	folder, beside string // beside must exist if the folder's name is ambiguous
	host           string
}{
	{"netlify/functions", "", "Netlify"},
	{"netlify/edge-functions", "", "Netlify"},
	{
		"functions",
		"wrangler.toml wrangler.json wrangler.jsonc _routes.json functions/_middleware.js functions/_middleware.ts",
		"Cloudflare",
	},
	{"functions", "functions/package.json", "Firebase"},
	{"api", "vercel.json now.json", "Vercel"},
}

var functionSource = lazyregexp.New(`\.(m?[jt]s|cjs|py|go|rb)$`)

// otherHosts warns of configuration for other hosts. Servers bring their own rules and functions.
func (p *project) otherHosts(d *draft) {
	p.warnOf(d, platformFiles, p.root, "")
	for _, name := range otherScripts {
		if body := p.pkg.ScriptBody(name); body != "" && !p.s.command.ok() && !p.runs(d, name) {
			d.warn(fmt.Sprintf("%s: the script %s is not run; let the build script do its work", worktree.Join(p.root, "package.json"), name))
		}
	}
	if d.Runtime != Static {
		if d.Runtime != PHP {
			p.passwords()
			p.warnOf(d, staticRules, p.root, "")
		}
		p.apache(d)
		return
	}
	p.warnOf(d, hostFiles, p.root)
	for _, f := range functionFolders {
		if p.hasDir(f.folder) && (f.beside == "" || p.any(strings.Fields(f.beside)...) != "") && p.holds(f.folder, functionSource) {
			d.warn(fmt.Sprintf("%s: functions of %s do not run here", worktree.Join(p.root, f.folder), f.host))
		}
	}
}

// warnOf warns of the given files, in the first of the folders that contains one.
func (p *project) warnOf(d *draft, files []hostFile, folders ...string) {
	for _, f := range files {
		for _, dir := range folders {
			at := worktree.Join(dir, f.name)
			if !p.t.Has(at) {
				continue
			}
			if f.asks == nil || f.asks.MatchString(p.t.Read(at)) {
				d.warn(at + ": " + f.why)
			}
			break
		}
	}
}

// runs reports whether the build runs a script of package.json, or the same command.
func (p *project) runs(d *draft, name string) bool {
	_, build := p.pkg.Script("build")
	return p.pkg.ScriptBody(name) == build || strings.Contains(build, name) ||
		slices.ContainsFunc(d.Build, func(c Command) bool { return slices.Contains(c.Argv, name) })
}

// holds reports whether a file in or below the folder matches.
func (p *project) holds(folder string, name *lazyregexp.Regexp) bool {
	at := worktree.Join(p.root, folder)
	for _, f := range p.t.List {
		if (at == "" || strings.HasPrefix(f, at+"/")) && name.MatchString(path.Base(f)) {
			return true
		}
	}
	return false
}

// VersionWarnings returns warnings about variables of a site with which other hosts choose versions, and which have no
// effect on this plan.
func (p Plan) VersionWarnings(env map[string]string) (out []string) {
	for _, k := range worktree.SortedKeys(env) {
		switch v, inFile := p.Env[k]; {
		case inFile && v == env[k]: // the plan used it, or has a warning
		case k == "NODE_VERSION" && env[k] != p.Node:
			out = append(out, "The variable NODE_VERSION chooses no Node.js here: build.node goes before it, or it is secret")
		case isFlags(k):
			out = append(out, "The variable "+k+" changes no installation here; "+useInstall)
		case isVersion(k) && !slices.ContainsFunc(p.Tools, func(t Tool) bool { return versionVariable(t.Name) == k }):
			out = append(out, "The variable "+k+" chooses no program here; commands see it as a variable")
		}
	}
	return out
}
