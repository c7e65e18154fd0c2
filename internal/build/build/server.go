package build

import (
	"cmp"
	"context"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"slipway/internal/build/framework"
	"slipway/internal/platform/fault"
)

// Limits of the search for pages and for a server in a build's output.
const (
	maxSearched = 20_000 // entries
	maxBelow    = 5      // nested folders
	maxCompiled = 5      // files named in an error
)

// builtFolders lists folders that compilers write to, and serverNames the usual names of a server's main file,
// likeliest first.
var (
	compiled     = []string{".js", ".cjs", ".mjs"}
	builtFolders = []string{"dist", "build", "out", "lib", "output"}
	serverNames  = []string{"main", "server", "index", "app"}
)

// walk calls fn with the content of a folder of the checkout, recursively, until fn returns false.
func walk(root *os.Root, folder string, fn func(name string, e fs.DirEntry) bool) {
	n := 0
	_ = fs.WalkDir(root.FS(), path.Clean(folder), func(name string, e fs.DirEntry, err error) error {
		switch n++; {
		case err != nil || n > maxSearched || !fn(name, e):
			return fs.SkipAll
		case e.IsDir() && (e.Name() == "node_modules" || strings.Count(strings.TrimPrefix(name, folder), "/") > maxBelow):
			return fs.SkipDir
		}
		return nil
	})
}

// hasPage reports whether a folder contains an HTML file.
func hasPage(root *os.Root, folder string) (found bool) {
	walk(root, folder, func(name string, e fs.DirEntry) bool {
		found = e.Type().IsRegular() && slices.Contains([]string{".html", ".htm", ".xhtml"}, strings.ToLower(path.Ext(name)))
		return !found
	})
	return found
}

// compiledServer returns the built file that starts the server, relative to the plan's root: the main file of
// package.json, or the only one with a usual name in the topmost folder. If there are several, it returns them and no
// file.
func (b *build) compiledServer(root *os.Root) (file string, several []string) {
	dir := path.Clean(b.Plan.Root)
	p := pruning{root: root}
	if d, ok := p.manifest(dir); ok && d.Main != "" {
		if name, _ := p.module(path.Join(dir, d.Main)); within(name, dir) || dir == "." && name != "" {
			if slices.Contains(compiled, path.Ext(name)) {
				return relative(dir, name), nil
			}
		}
	}
	found := map[string][]string{} // by name without extension
	for _, folder := range builtFolders {
		walk(root, path.Join(dir, folder), func(name string, e fs.DirEntry) bool {
			ext := path.Ext(name)
			stem := strings.TrimSuffix(path.Base(name), ext)
			if e.Type().IsRegular() && slices.Contains(compiled, ext) && slices.Contains(serverNames, stem) &&
				!p.has(path.Join(path.Dir(name), "index.html")) { // with an index.html, it belongs to a front end
				found[stem] = append(found[stem], relative(dir, name))
			}
			return true
		})
	}
	for _, stem := range serverNames {
		list := found[stem]
		if len(list) == 0 {
			continue
		}
		slices.SortStableFunc(list, func(a, b string) int { return cmp.Compare(strings.Count(a, "/"), strings.Count(b, "/")) })
		if len(list) == 1 || strings.Count(list[0], "/") < strings.Count(list[1], "/") { // compilers repeat the folders of the sources below
			return list[0], nil
		}
		if several == nil {
			several = list[:min(len(list), maxCompiled)]
		}
	}
	return "", several
}

func relative(dir, name string) string {
	if dir == "." {
		return name
	}
	return strings.TrimPrefix(name, dir+"/")
}

// startServer returns the start command of a server that a build wrote.
func startServer(dir, file string) *framework.Start {
	return &framework.Start{Command: framework.Command{Argv: []string{"node", file}, Dir: dir}, PortEnv: "PORT"}
}

// serve hands over a server if the plan expected pages and the build made none.
func (b *build) serve(ctx context.Context, root *os.Root, use func(context.Context, Artefact) error) error {
	file, several := b.compiledServer(root)
	if file == "" {
		f := fault.New(fault.Invalid, "start_command_missing",
			"The build made no page, and package.json depends on "+b.Plan.Server+", so this is a server without a start command",
			"set command under [run] in slipway.toml, such as \"node dist/main.js\", or run.command in the site's settings; "+
				"to publish files, set the output folder")
		if len(several) > 0 {
			f.Details += "; the build wrote " + strings.Join(several, ", ")
		}
		return f
	}
	b.printf("info", "The build made no page, and package.json depends on %s: node %s is started as a server", b.Plan.Server, file)
	b.Plan.Runtime, b.Plan.Start = framework.Node, startServer(b.Plan.Root, file)
	a := b.program(root)
	a.Server = file
	return use(ctx, a)
}

// correct makes Start run the file that the build wrote if the plan's file is missing, and returns that file; "" if
// nothing changes.
func (b *build) correct(root *os.Root) string {
	if b.Plan.Runtime != framework.Node || b.Plan.Start == nil {
		return ""
	}
	argv, dir := b.Plan.Start.Command.Argv, b.Plan.Start.Command.Dir
	if len(argv) != 2 || argv[0] != "node" || strings.HasPrefix(argv[1], "-") || dir != b.Plan.Root ||
		b.Plan.Run != nil && b.Plan.Run.Command != nil {
		return ""
	}
	p := pruning{root: root}
	if name, _ := p.module(path.Join(dir, argv[1])); name != "" || p.has(path.Join(dir, argv[1], "package.json")) {
		return ""
	}
	file, _ := b.compiledServer(root)
	if file != "" {
		b.printf("warn", "%s is not there after the build: node %s is started instead", argv[1], file)
		b.Plan.Start = startServer(dir, file)
	}
	return file
}
