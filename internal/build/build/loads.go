package build

import (
	"io"
	"path"
	"strings"

	"slipway/internal/build/framework"
	"slipway/internal/platform/lazyregexp"
)

// Limits of the search for packages that a program imports.
const (
	maxLoaded     = 500     // files of the project
	maxLoadedFile = 1 << 20 // bytes of each
)

// imported matches imports anywhere in a JavaScript or TypeScript file.
var imported = lazyregexp.New(
	"(?:\\bfrom\\s*|\\bimport\\s*\\(?\\s*|\\brequire(?:\\.resolve)?\\s*\\(\\s*)[\"'`]([^\"'`\\s]{1,200})[\"'`]",
)

var moduleEndings = []string{
	"", ".js", ".mjs", ".cjs", ".ts", ".mts", ".cts", ".json", "/index.js", "/index.mjs", "/index.cjs", "/index.ts",
}

// loaded marks the packages that the program imports at its start, even if package.json lists them in devDependencies,
// and returns their folders: imports of the started files, and packages with which Next.js reads its configuration.
func (p *pruning) loaded(plan framework.Plan) (folders []string) {
	root := path.Clean(plan.Root)
	keep := func(dir, name string) {
		if parts := strings.SplitN(name, "/", 3); strings.HasPrefix(name, "@") && len(parts) > 1 {
			name = parts[0] + "/" + parts[1]
		} else {
			name = parts[0]
		}
		if !packageName.MatchString(name) {
			return
		}
		if at, real := p.resolve(dir, name); at != "" {
			p.keep[at], p.keep[real] = true, true
			folders = append(folders, real)
		}
	}
	var todo []string
	if plan.Start != nil {
		for _, word := range p.words(plan.Root, []string{plan.Start.Command.String()}) {
			todo = append(todo, path.Join(root, word))
			if word == "." {
				d, _ := p.manifest(root)
				todo = append(todo, path.Join(root, d.Main))
			}
		}
	}
	if next, _ := p.resolve(root, "next"); next != "" {
		for _, ending := range moduleEndings[1:7] {
			config := path.Join(root, "next.config"+ending)
			todo = append(todo, config)
			if strings.HasSuffix(ending, "ts") && p.has(config) {
				keep(root, "typescript") // Next.js would try to install it
			}
		}
	}
	seen := map[string]bool{}
	for len(todo) > 0 && len(seen) < maxLoaded && !p.over() {
		name, text := p.module(todo[0])
		todo = todo[1:]
		if name == "" || seen[name] {
			continue
		}
		seen[name] = true
		for _, m := range imported.FindAllStringSubmatch(text, -1) {
			if strings.HasPrefix(m[1], ".") {
				todo = append(todo, path.Join(path.Dir(name), m[1]))
			} else {
				keep(path.Dir(name), m[1])
			}
		}
	}
	return folders
}

func (p *pruning) has(name string) bool {
	p.lookups++
	_, err := p.root.Lstat(name)
	return err == nil
}

// module returns the name and the text of the project's file that an import refers to; "" if there is none.
func (p *pruning) module(at string) (name, text string) {
	if within(at, "..") || packageOf(at) != "" {
		return "", ""
	}
	for _, ending := range moduleEndings {
		p.lookups++
		f, err := openRegular(p.root, at+ending)
		if err != nil {
			continue
		}
		b, err := io.ReadAll(io.LimitReader(f, maxLoadedFile))
		f.Close()
		if err != nil {
			continue
		}
		p.bytes += len(b)
		return at + ending, string(b)
	}
	return "", ""
}
