package build

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"

	"slipway/internal/build/framework"
	"slipway/internal/platform/lazyregexp"
	"slipway/internal/platform/text"
)

// program returns what a program runs from: the checkout, without what only its
// development needs.
func (b *build) program(root *os.Root) Artefact {
	plan := b.Plan
	a := Artefact{Files: root, Runtime: plan.Runtime, Start: plan.Start, Assets: slices.Clone(plan.Assets)}
	for i, f := range a.Assets {
		a.Assets[i].Folder = path.Join(plan.Root, f.Folder)
	}
	if plan.Framework == "next" {
		n := nextOutput{root: root, dir: path.Clean(plan.Root)}
		a.Assets = n.assets()
		if dir := n.standalone(plan); dir != "" {
			a.Start, a.Standalone = startStandalone(dir), dir
			a.Assets = n.moved(dir, a.Assets)
			if len(b.Commands) == 0 {
				b.printf("info", "Next.js standalone output: the program runs from it alone")
				a.Skip = func(name string) bool { return !within(name, dir) && !within(dir, name) }
				return a
			}
		}
	}
	if plan.Runtime == framework.PHP {
		b.phpProgram(&a)
		return a
	}
	if b.Whole {
		return a
	}
	if b.traced(root) {
		b.printf("info", "The server has the packages that it needs in .output: node_modules is not stored")
		a.Skip = func(name string) bool { return slices.Contains(plan.Modules, name) }
		return a
	}
	if skip, packages := prune(root, plan, b.Commands); packages > 0 {
		b.printf("info", "Skipped %s that only development needs", text.Count(packages, "package"))
		a.Skip = func(name string) bool { return skip[name] }
	}
	return a
}

// traced reports whether Nitro has copied the packages that its server needs beside it, and nothing else is started.
func (b *build) traced(root *os.Root) bool {
	p := pruning{root: root}
	server := path.Join(b.Plan.Root, ".output/server")
	return b.Plan.Start != nil && path.Clean(b.Plan.Output) == ".output" && len(b.Commands) == 0 &&
		slices.Equal(b.Plan.Start.Command.Argv, []string{"node", ".output/server/index.mjs"}) &&
		p.has(path.Join(server, "index.mjs")) && p.has(path.Join(server, "package.json"))
}

// startStandalone is how the server that Next.js has made in a folder is started.
func startStandalone(dir string) *framework.Start {
	return &framework.Start{Command: framework.Command{Argv: []string{"node", "server.js"}, Dir: dir}, PortEnv: "PORT"}
}

// within reports whether name is dir or below it.
func within(name, dir string) bool { return name == dir || strings.HasPrefix(name, dir+"/") }

// The bounds of what a build of Next.js says of itself: the build is a stranger's, and what
// is decoded here has no memory limit of its own.
const (
	maxNextManifest = 1 << 20 // bytes of one manifest
	maxNextRules    = 500     // rules whose patterns are compiled
	maxNextPattern  = 1 << 10 // bytes of one pattern
	maxNextSize     = 5000    // steps of one pattern, counted repetitions written out
)

// nextOutput reads what a build of Next.js has left.
type nextOutput struct {
	root *os.Root
	dir  string // of the project, in the checkout
}

// read decodes a file that the build wrote. It reports false where something is there that
// can't be known: no file, too large, or no JSON of that form.
func (n nextOutput) read(name string, into any) bool {
	f, err := openRegular(n.root, path.Join(n.dir, ".next", name))
	if err != nil {
		return errors.Is(err, fs.ErrNotExist)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxNextManifest+1))
	return err == nil && len(text) <= maxNextManifest && json.Unmarshal(text, into) == nil
}

func (n nextOutput) has(names ...string) bool {
	return slices.ContainsFunc(names, func(name string) bool {
		_, err := n.root.Lstat(path.Join(n.dir, name))
		return err == nil
	})
}

// assets are the folders that answer as files. What the application's own middleware,
// redirects or headers may change is left to it: they come before files.
func (n nextOutput) assets() []framework.AssetFolder {
	var routes struct {
		BasePath string                     `json:"basePath"`
		Headers  []nextRoute                `json:"headers"`
		Redirect []nextRoute                `json:"redirects"`
		Rewrites json.RawMessage            `json:"rewrites"`
		I18n     map[string]json.RawMessage `json:"i18n"`
		Version  int                        `json:"version"`
	}
	if !n.read("routes-manifest.json", &routes) || routes.Version == 0 || len(routes.Headers) > maxNextRules {
		return nil // a form that is not known
	}
	base := strings.Trim(routes.BasePath, "/")
	if slices.ContainsFunc(routes.Headers, func(r nextRoute) bool { return r.concerns("/" + path.Join(base, "_next/static")) }) {
		return nil
	}
	list := []framework.AssetFolder{{Folder: path.Join(n.dir, ".next/static"), At: path.Join(base, "_next/static")}}
	own := slices.ContainsFunc(routes.Redirect, func(r nextRoute) bool { return !r.Internal })
	if len(routes.Headers) > 0 || own || routes.I18n != nil || rewritesFirst(routes.Rewrites) || n.middleware() {
		return list
	}
	return append(list, framework.AssetFolder{Folder: path.Join(n.dir, "public"), At: base})
}

// nextRoute is a rule of routes-manifest.json.
type nextRoute struct {
	Regex    string `json:"regex"`
	Internal bool   `json:"internal"`
}

// concerns reports whether a rule may be about files below at.
func (r nextRoute) concerns(at string) bool {
	if r.Regex == "" || len(r.Regex) > maxNextPattern {
		return true
	}
	parsed, err := syntax.Parse(r.Regex, syntax.Perl)
	if err != nil || expanded(parsed) > maxNextSize {
		return true // it has what Go's expressions have not, or takes 100 MB to compile
	}
	re, err := regexp.Compile(r.Regex)
	if err != nil {
		return true
	}
	return slices.ContainsFunc([]string{
		"/chunks/a-0.js",
		"/css/a.css",
		"/media/a.woff2",
		"/build/_buildManifest.js",
	}, func(file string) bool { return re.MatchString(at + file) })
}

// expanded is about how many steps a pattern has once it is compiled: (a{1000}b){1000} has a
// million.
func expanded(re *syntax.Regexp) int {
	n := 1 + len(re.Rune)
	for _, sub := range re.Sub {
		n += expanded(sub)
	}
	if re.Op == syntax.OpRepeat {
		n *= max(re.Min, re.Max, 1)
	}
	return n
}

// rewritesFirst reports whether rewrites may come before files.
func rewritesFirst(raw json.RawMessage) bool {
	var forms struct {
		BeforeFiles []json.RawMessage `json:"beforeFiles"`
	}
	return json.Unmarshal(raw, &forms) == nil && len(forms.BeforeFiles) > 0
}

// middleware reports whether the application sees requests before its files answer.
func (n nextOutput) middleware() bool {
	var edge struct {
		Middleware map[string]json.RawMessage `json:"middleware"`
	}
	var functions struct {
		Functions map[string]json.RawMessage `json:"functions"`
	}
	if !n.read("server/middleware-manifest.json", &edge) || !n.read("server/functions-config-manifest.json", &functions) {
		return true // what can't be known may be there
	}
	return len(edge.Middleware) > 0 || functions.Functions["/_middleware"] != nil ||
		n.has(".next/server/middleware.js", ".next/server/proxy.js", "middleware.ts", "middleware.js", "middleware.mjs",
			"proxy.ts", "proxy.js", "proxy.mjs", "src/middleware.ts", "src/middleware.js", "src/middleware.mjs",
			"src/proxy.ts", "src/proxy.js", "src/proxy.mjs")
}

var startsNext = lazyregexp.New(`(?:^|[\s/])next\s+start\b|\.next/standalone/`)

// standalone returns the folder of the server that Next.js has made with only what it
// needs, with the static files in it that it leaves out; "" where there is none, or the
// project is started in another way.
func (n nextOutput) standalone(plan framework.Plan) string {
	p := pruning{root: n.root}
	command := ""
	if plan.Start != nil {
		command = plan.Start.Command.String()
	}
	d, _ := p.manifest(n.dir)
	for _, name := range []string{"start:prod", "start"} {
		if strings.HasSuffix(command, " "+name) && d.Scripts[name] != "" {
			command = d.Scripts[name]
			break
		}
	}
	if !startsNext.MatchString(command) {
		return ""
	}
	top := path.Join(n.dir, ".next/standalone")
	for _, dir := range []string{top, path.Join(top, n.dir)} {
		info, err := n.root.Lstat(path.Join(dir, "server.js"))
		if err != nil || !info.Mode().IsRegular() {
			continue
		}
		if err := errors.Join(
			n.move(".next/static", path.Join(dir, ".next/static")),
			n.move("public", path.Join(dir, "public")),
		); err != nil {
			return "" // next start does without
		}
		return dir
	}
	return ""
}

// move puts a folder of the project at another place, unless something is there.
func (n nextOutput) move(name, to string) error {
	from := path.Join(n.dir, name)
	if _, err := n.root.Lstat(to); err == nil {
		return nil
	}
	if _, err := n.root.Lstat(from); errors.Is(err, fs.ErrNotExist) {
		return nil // the project has none
	}
	if err := n.root.MkdirAll(path.Dir(to), 0o755); err != nil {
		return err
	}
	return n.root.Rename(from, to)
}

// moved is where folders are after standalone has moved them.
func (n nextOutput) moved(dir string, list []framework.AssetFolder) []framework.AssetFolder {
	for i, f := range list {
		if rest, ok := strings.CutPrefix(path.Clean(f.Folder), path.Join(n.dir, ".next/static")); ok && rest == "" {
			list[i].Folder = path.Join(dir, ".next/static")
		} else {
			list[i].Folder = path.Join(dir, "public")
		}
	}
	return list
}
