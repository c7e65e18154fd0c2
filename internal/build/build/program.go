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

// program returns the artefact of a program: the checkout without development dependencies.
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

// traced reports whether Nitro copied all packages that its server needs, and the start command runs only that server.
func (b *build) traced(root *os.Root) bool {
	p := pruning{root: root}
	server := path.Join(b.Plan.Root, ".output/server")
	return b.Plan.Start != nil && path.Clean(b.Plan.Output) == ".output" && len(b.Commands) == 0 &&
		slices.Equal(b.Plan.Start.Command.Argv, []string{"node", ".output/server/index.mjs"}) &&
		p.has(path.Join(server, "index.mjs")) && p.has(path.Join(server, "package.json"))
}

// startStandalone returns the start command of Next.js's standalone server in a folder.
func startStandalone(dir string) *framework.Start {
	return &framework.Start{Command: framework.Command{Argv: []string{"node", "server.js"}, Dir: dir}, PortEnv: "PORT"}
}

// within reports whether name is dir or below it.
func within(name, dir string) bool { return name == dir || strings.HasPrefix(name, dir+"/") }

// Limits of the files that a Next.js build writes: they are untrusted, and decoding them here has no memory limit.
const (
	maxNextManifest = 1 << 20 // bytes of one manifest
	maxNextRules    = 500     // rules with compiled patterns
	maxNextPattern  = 1 << 10 // bytes of one pattern
	maxNextSize     = 5000    // steps of one pattern, with counted repetitions expanded
)

// nextOutput reads the files that a Next.js build wrote.
type nextOutput struct {
	root *os.Root
	dir  string // the project's folder in the checkout
}

// read decodes a file of the build. It returns false if something exists there that can't be decoded: not a file, too
// large, or invalid JSON.
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

// assets returns the folders that are served as files. Files that the application's middleware, redirects or headers
// may change are left to the application.
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
		return nil // unknown format
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

// concerns reports whether a rule may match files below at.
func (r nextRoute) concerns(at string) bool {
	if r.Regex == "" || len(r.Regex) > maxNextPattern {
		return true
	}
	parsed, err := syntax.Parse(r.Regex, syntax.Perl)
	if err != nil || expanded(parsed) > maxNextSize {
		return true // Go's regexp can't compile it, or it would take 100 MB
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

// expanded estimates the steps of a compiled pattern: (a{1000}b){1000} has a million.
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

// rewritesFirst reports whether rewrites may take precedence over files.
func rewritesFirst(raw json.RawMessage) bool {
	var forms struct {
		BeforeFiles []json.RawMessage `json:"beforeFiles"`
	}
	return json.Unmarshal(raw, &forms) == nil && len(forms.BeforeFiles) > 0
}

// middleware reports whether the application may handle requests before files are served.
func (n nextOutput) middleware() bool {
	var edge struct {
		Middleware map[string]json.RawMessage `json:"middleware"`
	}
	var functions struct {
		Functions map[string]json.RawMessage `json:"functions"`
	}
	if !n.read("server/middleware-manifest.json", &edge) || !n.read("server/functions-config-manifest.json", &functions) {
		return true // unreadable, so assume there is one
	}
	return len(edge.Middleware) > 0 || functions.Functions["/_middleware"] != nil ||
		n.has(".next/server/middleware.js", ".next/server/proxy.js", "middleware.ts", "middleware.js", "middleware.mjs",
			"proxy.ts", "proxy.js", "proxy.mjs", "src/middleware.ts", "src/middleware.js", "src/middleware.mjs",
			"src/proxy.ts", "src/proxy.js", "src/proxy.mjs")
}

var startsNext = lazyregexp.New(`(?:^|[\s/])next\s+start\b|\.next/standalone/`)

// standalone returns the folder of Next.js's standalone server, after adding the static files that Next.js leaves out.
// It returns "" if there is none, or the project is started in another way.
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
			return "" // next start works without it
		}
		return dir
	}
	return ""
}

// move moves a folder of the project, unless the destination exists.
func (n nextOutput) move(name, to string) error {
	from := path.Join(n.dir, name)
	if _, err := n.root.Lstat(to); err == nil {
		return nil
	}
	if _, err := n.root.Lstat(from); errors.Is(err, fs.ErrNotExist) {
		return nil // the project doesn't have the folder
	}
	if err := n.root.MkdirAll(path.Dir(to), 0o755); err != nil {
		return err
	}
	return n.root.Rename(from, to)
}

// moved returns the folders after standalone moved them.
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
