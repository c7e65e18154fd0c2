package framework

import (
	"fmt"
	"path"
	"regexp"
	"strings"
)

// hostFile is a file by which a repository asks another host or server for something that is
// not done here.
type hostFile struct {
	name string
	asks *regexp.Regexp // what it says when it asks for something. Optional: its presence is enough.
	why  string
}

const useRules = "redirects and headers are read from _redirects and _headers"

var hostFiles = []hostFile{
	{".htaccess", regexp.MustCompile(`(?im)^[ \t]*(rewriterule|redirect|redirectmatch|errordocument|header|authtype|require|deny|satisfy)[ \t]`), "rules of Apache are not obeyed; " + useRules + ", passwords are part of the site's serving settings"},
	{"web.config", regexp.MustCompile(`(?i)<(rewrite|httpredirect|customheaders|authorization)\b`), "rules of IIS are not obeyed; " + useRules},
	{"firebase.json", regexp.MustCompile(`"(redirects|rewrites|headers|functions)"`), "settings of Firebase are not obeyed; " + useRules},
	{"staticwebapp.config.json", nil, "settings of Azure Static Web Apps are not obeyed; " + useRules},
	{"customHttp.yml", nil, "settings of AWS Amplify are not obeyed; " + useRules},
	{"now.json", nil, "it is not read; its successor vercel.json is"},
	{"serve.json", nil, "settings of serve are not obeyed; " + useRules},
	{"_worker.js", nil, "functions of Cloudflare do not run here; the file is published as it is"},
}

// functionFolders hold programs that another host runs for a static site.
var functionFolders = []struct {
	folder, beside string // with one of these files, where the folder alone says little
	host           string
}{
	{"netlify/functions", "", "Netlify"},
	{"netlify/edge-functions", "", "Netlify"},
	{"functions", "wrangler.toml wrangler.json wrangler.jsonc _routes.json functions/_middleware.js functions/_middleware.ts", "Cloudflare"},
	{"functions", "functions/package.json", "Firebase"},
	{"api", "vercel.json now.json", "Vercel"},
}

var functionSource = regexp.MustCompile(`\.(m?[jt]s|cjs|py|go|rb)$`)

// otherHosts warns of what the project asks of hosts that this is not. A server brings rules
// and functions of its own.
func (p *project) otherHosts(d *draft) {
	if d.Runtime != Static {
		return
	}
	for _, f := range hostFiles {
		if p.has(f.name) && (f.asks == nil || f.asks.MatchString(p.parsed(f.name))) {
			d.warn(join(p.root, f.name) + ": " + f.why)
		}
	}
	for _, f := range functionFolders {
		if p.hasDir(f.folder) && (f.beside == "" || p.any(strings.Fields(f.beside)...) != "") && p.holds(f.folder, functionSource) {
			d.warn(fmt.Sprintf("%s: functions of %s do not run here", join(p.root, f.folder), f.host))
		}
	}
}

// holds reports whether a file in or below the folder matches.
func (p *project) holds(folder string, name *regexp.Regexp) bool {
	prefix := join(p.root, folder) + "/"
	for _, f := range p.t.list {
		if strings.HasPrefix(f, prefix) && name.MatchString(path.Base(f)) {
			return true
		}
	}
	return false
}

// VersionWarnings names the variables of a site by which other hosts choose programs. Here
// they choose none: the plan was made without them.
func (p Plan) VersionWarnings(env map[string]string) (out []string) {
	for _, k := range sortedKeys(env) {
		switch v, inFile := p.Env[k]; {
		case inFile && v == env[k]: // the plan has a warning or has obeyed
		case k == "NODE_VERSION" && env[k] != p.Node:
			out = append(out, "The variable NODE_VERSION chooses no Node.js here; set build.node, .nvmrc or engines in package.json")
		case isVersion(k):
			out = append(out, "The variable "+k+" chooses no program here; commands see it as a variable")
		}
	}
	return out
}
