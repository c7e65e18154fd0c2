package build

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"

	"slipway/internal/build/framework"
	"slipway/internal/platform/lazyregexp"
)

// Limits of what is read to find the packages that a program needs.
const (
	maxPackageJSON = 1 << 20  // bytes of one package.json
	maxManifests   = 64 << 20 // bytes of all package.json files
	maxPackages    = 50_000
	maxLookups     = 400_000 // files and folders looked up
	maxScripts     = 5       // nesting of scripts that call scripts
)

// pruning finds the packages that a built project doesn't need: those that only devDependencies lead to. It follows
// dependencies on disk as Node.js resolves them, so it works for every package manager. Links are resolved by name, and
// os.Root keeps them inside.
type pruning struct {
	root    *os.Root
	modules []string        // the folders with installed packages
	keep    map[string]bool // needed folders of packages, and links to them
	names   map[string]bool // names of the packages left out

	lookups, bytes int // lookups and bytes read so far
}

// over reports whether more was read than any real project needs: untrusted packages may refer to each other endlessly.
func (p *pruning) over() bool { return p.lookups > maxLookups || p.bytes > maxManifests }

// dependencies holds the dependency fields of a package.json.
type dependencies struct {
	Dependencies map[string]json.RawMessage `json:"dependencies"`
	Development  map[string]json.RawMessage `json:"devDependencies"`
	Optional     map[string]json.RawMessage `json:"optionalDependencies"`
	Peer         map[string]json.RawMessage `json:"peerDependencies"`
	Scripts      map[string]string          `json:"scripts"`
	Main         string                     `json:"main"`
}

// prune returns the paths to leave out of a program's files, including whole folders, and the number of packages in
// them. It returns nil if nothing is known to be unnecessary: there is no lock file, or a command needs a development
// package.
func prune(root *os.Root, plan framework.Plan, commands []string) (skip map[string]bool, packages int) {
	p := &pruning{root: root, modules: plan.Modules, keep: map[string]bool{}, names: map[string]bool{}}
	if len(plan.Modules) == 0 || !p.locked() {
		return nil, 0
	}
	from := []string{plan.Root}
	for _, m := range plan.Modules {
		from = append(from, parentOf(m))
	}
	if !p.follow(append(from, p.loaded(plan)...)) {
		return nil, 0
	}
	skip = map[string]bool{}
	for _, m := range plan.Modules {
		p.entries(m, func(name, at string) {
			if !p.keep[at] {
				skip[at], p.names[name] = true, true
			}
		})
		for _, store := range []string{".pnpm", ".bun"} {
			p.stored(path.Join(m, store), skip)
		}
	}
	if len(skip) == 0 || p.over() || p.calls(plan, commands) || p.over() {
		return nil, 0
	}
	return skip, len(p.names)
}

// lockNames lists the files that pin the installed packages.
var lockNames = []string{"package-lock.json", "npm-shrinkwrap.json", "pnpm-lock.yaml", "yarn.lock", "bun.lock", "bun.lockb"}

// locked reports whether the project has a lock file.
func (p *pruning) locked() bool {
	for _, m := range p.modules {
		for _, name := range lockNames {
			if info, err := p.root.Lstat(path.Join(parentOf(m), name)); err == nil && info.Mode().IsRegular() {
				return true
			}
		}
	}
	return false
}

// parentOf returns a folder's parent; "." is the root.
func parentOf(dir string) string { return path.Dir(path.Clean(dir)) }

func (p *pruning) manifest(dir string) (d dependencies, ok bool) {
	f, err := openRegular(p.root, path.Join(dir, "package.json"))
	if err != nil {
		return d, false
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxPackageJSON+1))
	if err != nil || len(text) > maxPackageJSON {
		return d, false
	}
	p.bytes += len(text)
	return d, json.Unmarshal(text, &d) == nil
}

// follow marks everything that the packages in these folders need. It returns false if that can't be determined.
func (p *pruning) follow(todo []string) bool {
	seen := map[string]bool{}
	for i, dir := range todo {
		todo[i] = path.Clean(dir)
	}
	for len(todo) > 0 {
		dir := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if seen[dir] {
			continue
		}
		seen[dir] = true
		if len(seen) > maxPackages || p.over() {
			return false
		}
		d, ok := p.manifest(dir)
		if !ok {
			if _, err := p.root.Lstat(path.Join(dir, "package.json")); errors.Is(err, fs.ErrNotExist) {
				continue // this folder has no dependencies
			}
			return false
		}
		for _, needs := range []map[string]json.RawMessage{d.Dependencies, d.Optional, d.Peer} {
			for name := range needs {
				if !packageName.MatchString(name) {
					continue
				}
				if p.over() {
					return false
				}
				if at, real := p.resolve(dir, name); at != "" {
					p.keep[at], p.keep[real] = true, true
					todo = append(todo, real)
				}
			}
		}
	}
	return true
}

var packageName = lazyregexp.New(`^(?:@[\w.~-]+/)?[\w.~-]+$`)

// resolve finds a package as Node.js does, in the nearest node_modules upwards. If at is a link, real is its target.
func (p *pruning) resolve(dir, name string) (at, real string) {
	for up := dir; ; up = path.Dir(up) {
		if path.Base(up) != "node_modules" {
			at = path.Join(up, "node_modules", name)
			p.lookups++
			if info, err := p.root.Lstat(at); err == nil {
				return at, p.target(at, info)
			}
		}
		if up == "." || up == "/" {
			return "", ""
		}
	}
}

// target follows links by name.
func (p *pruning) target(at string, info fs.FileInfo) string {
	for range 10 {
		if info.Mode()&fs.ModeSymlink == 0 {
			break
		}
		to, err := p.root.Readlink(at)
		if err != nil || path.IsAbs(to) {
			break
		}
		at = path.Join(path.Dir(at), to)
		if info, err = p.root.Lstat(at); err != nil {
			break
		}
	}
	return at
}

// entries calls f with every package in a node_modules folder.
func (p *pruning) entries(dir string, f func(name, at string)) {
	for _, name := range p.list(dir) {
		switch {
		case strings.HasPrefix(name, "."): // internal folders of package managers
		case strings.HasPrefix(name, "@"):
			for _, inner := range p.list(path.Join(dir, name)) {
				f(name+"/"+inner, path.Join(dir, name, inner))
			}
		default:
			f(name, path.Join(dir, name))
		}
	}
}

// stored marks unneeded packages in a manager's own store.
func (p *pruning) stored(dir string, skip map[string]bool) {
	used := map[string]bool{}
	for at := range p.keep {
		if rest, ok := strings.CutPrefix(at, dir+"/"); ok {
			name, _, _ := strings.Cut(rest, "/")
			used[name] = true
		}
	}
	for _, name := range p.list(dir) {
		if name == "node_modules" || strings.HasSuffix(name, ".yaml") || used[name] {
			continue
		}
		skip[path.Join(dir, name)] = true
		p.entries(path.Join(dir, name, "node_modules"), func(dep, at string) {
			if info, err := p.root.Lstat(at); err == nil && info.IsDir() {
				p.names[dep] = true
			}
		})
	}
}

func (p *pruning) list(dir string) []string {
	p.lookups++
	if p.over() {
		return nil
	}
	list := names(p.root, dir, maxPackages)
	p.lookups += len(list)
	slices.Sort(list)
	return list
}

var wordSplit = lazyregexp.New(`[^\w@./~-]+`)

// calls reports whether a command names a package, or a program of one, that would be left out: a program that is
// started is needed even if package.json lists it in devDependencies.
func (p *pruning) calls(plan framework.Plan, commands []string) bool {
	programs := map[string]bool{}
	for _, m := range plan.Modules {
		for _, bin := range p.list(path.Join(m, ".bin")) {
			at := path.Join(m, ".bin", bin)
			info, err := p.root.Lstat(at)
			if err != nil {
				continue
			}
			real := p.target(at, info)
			if info.Mode()&fs.ModeSymlink == 0 { // pnpm writes scripts instead of links
				real = p.mentioned(at)
			}
			if name := packageOf(real); p.names[name] {
				programs[bin] = true
			}
		}
	}
	if plan.Start != nil {
		commands = append(slices.Clone(commands), plan.Start.Command.String())
	}
	for _, word := range p.words(plan.Root, commands) {
		name := packageOf("node_modules/" + strings.TrimPrefix(word, "./"))
		if inside := packageOf(word); inside != "" {
			name = inside
		}
		if p.names[name] || programs[word] || programs[path.Base(word)] {
			return true
		}
	}
	return false
}

// mentioned returns the package that a script of node_modules/.bin runs: the last one that it names.
func (p *pruning) mentioned(at string) string {
	f, err := openRegular(p.root, at)
	if err != nil {
		return ""
	}
	defer f.Close()
	text, _ := io.ReadAll(io.LimitReader(f, 16<<10))
	i := strings.LastIndex(string(text), "node_modules/")
	if i < 0 {
		return ""
	}
	return string(text[i:])
}

// packageOf returns the package that contains a path: the part after the last node_modules.
func packageOf(at string) string {
	i := strings.LastIndex(at, "node_modules/")
	if i < 0 {
		return ""
	}
	parts := strings.SplitN(at[i+len("node_modules/"):], "/", 3)
	if strings.HasPrefix(parts[0], "@") && len(parts) > 1 {
		return parts[0] + "/" + strings.Trim(parts[1], "\"' \n")
	}
	return parts[0]
}

// words returns the words of commands and of the scripts that they call.
func (p *pruning) words(dir string, commands []string) []string {
	d, _ := p.manifest(path.Clean(dir))
	all := map[string]bool{}
	for range maxScripts {
		var next []string
		for _, c := range commands {
			for _, w := range wordSplit.Split(c, -1) {
				if w == "" || all[w] {
					continue
				}
				all[w] = true
				for _, script := range []string{"pre" + w, w, "post" + w} {
					if body := d.Scripts[script]; body != "" {
						next = append(next, body)
					}
				}
			}
		}
		commands = next
	}
	return slices.Collect(maps.Keys(all))
}
