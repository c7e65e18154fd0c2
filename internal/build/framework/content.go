package framework

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"slipway/internal/build/worktree"
	"slipway/internal/platform/lazyregexp"
)

// Part is a theme or plugin of a repository that isn't laid out as a wp-content.
type Part struct {
	From string `json:"from"` // its folder in the repository
	At   string `json:"at"`   // its folder in the site's wp-content: "themes/ours"
}

const (
	maxParts    = 50
	maxPartDirs = 4       // levels of folders searched
	maxScripts  = 50      // PHP files of a folder searched for a plugin header
	headerBytes = 8 << 10 // bytes in which WordPress searches for a header
)

// Headers that mark a theme and a plugin for WordPress.
var (
	themeHeader  = lazyregexp.New(`(?mi)^[ \t/*#@]*Theme Name[ \t]*:[ \t]*\S`)
	pluginHeader = lazyregexp.New(`(?mi)^(?:[ \t]*<\?php)?[ \t/*#@]*Plugin Name[ \t]*:[ \t]*\S`)
)

// contentFolders lists folders that identify a wp-content, and contentPlaces where a wp-content usually is.
var (
	contentFolders = []string{"themes", "plugins", "mu-plugins"}
	contentPlaces  = []string{"wp-content", "public/wp-content", "web/wp-content", "web/app", ""}
)

// Content returns the plan of a WordPress site's repository: what to install and build, and what becomes part of the
// site's wp-content. That is either the folder Output, relative to Root, with themes, plugins and mu-plugins, or Parts,
// the themes and plugins elsewhere. A theme or plugin at the root is named after the repository. Its errors are those
// of [Detect].
func Content(files worktree.Files, o Overrides, repository string) (Plan, error) {
	t := worktree.NewTree(files)
	plan, err := planContent(t, o, folderOfWordPress(repository))
	if t.Err() != nil {
		return Plan{}, t.Err()
	}
	return plan, err
}

func planContent(t *worktree.Tree, o Overrides, repository string) (Plan, error) {
	s, err := settle(t, o)
	if err != nil {
		return Plan{}, err
	}
	p := newProject(t, s)
	d := &draft{
		Plan: Plan{
			Framework: WordPress,
			Name:      "WordPress",
			Root:      p.root,
			Runtime:   PHP,
			Env:       map[string]string{},
			Sources:   maps.Clone(s.sources),
			Watch:     s.watch,
		},
	}
	folder, why := "", ""
	switch kind := p.extension(); {
	case kind != "":
		part := Part{p.root, kind + repository}
		if s.output.firm() { // the build makes it
			part.From = worktree.Join(p.root, s.output.text)
		}
		d.Parts, d.Why = []Part{part}, "the repository is a "+strings.TrimSuffix(kind, "s/")
		p.prepare(d)
	default:
		folder, why = p.contentFolder(true)
		if why == "" {
			d.Parts = p.parts(repository)
			if len(d.Parts) == 0 {
				folder, why = p.contentFolder(false)
			} else {
				why = "it has " + d.Parts[0].From + " as a " + strings.TrimSuffix(path.Dir(d.Parts[0].At), "s")
			}
		}
		d.Why = why
		if why == "" {
			return Plan{}, invalid("The repository holds no theme, no plugin and no wp-content",
				`a theme has a style.css with "Theme Name:", a plugin a PHP file with "Plugin Name:", and a wp-content has a folder themes, `+
					"plugins or mu-plugins; set the root directory if they are deeper in the repository",
				nil)
		}
		p.prepare(d)
		if !p.builds() { // else the build at the root builds everything
			p.prepareInside(d, folder)
		}
	}
	d.tool("php", constraint(p.composer()["php"]))
	if err := p.apply(d); err != nil {
		return Plan{}, err
	}
	d.Runtime = PHP // so that an output folder in the settings isn't published
	d.Start, d.Assets, d.Output, d.OutputCandidates, d.Release, d.Processes, d.Crons = &Start{}, nil, folder, nil, nil, nil, nil
	return d.finish(p), nil
}

// styleSources lists the usual sources of a theme's style.css.
var styleSources = []string{
	"", "src", "sass", "scss", "css", "assets", "resources", "src/scss", "src/sass", "src/css", "assets/scss", "assets/sass",
}

// extension returns "themes/" or "plugins/" if the project's folder is a theme or a plugin. Names of its folders don't
// matter: a theme may have a folder named plugins.
func (p *project) extension() string {
	head := func(name string) string { return p.t.Head(worktree.Join(p.root, name), headerBytes) }
	if themeHeader.MatchString(head("style.css")) || p.has("resources/functions.php") && themeHeader.MatchString(head("resources/style.css")) {
		return "themes/"
	}
	if p.any("functions.php", "theme.json") != "" { // a build makes its style.css
		for _, dir := range styleSources {
			for _, name := range []string{"style.scss", "style.css"} {
				if themeHeader.MatchString(head(worktree.Join(dir, name))) {
					return "themes/"
				}
			}
		}
	}
	prefix, n := worktree.Join(p.root, "x"), 0
	prefix = strings.TrimSuffix(prefix, "x")
	first, _ := slices.BinarySearch(p.t.List, prefix)
	for _, f := range p.t.List[first:] {
		name, inside := strings.CutPrefix(f, prefix)
		if !inside || n == maxScripts {
			break
		}
		if strings.Contains(name, "/") || !strings.HasSuffix(name, ".php") {
			continue
		}
		n++
		if pluginHeader.MatchString(head(name)) {
			return "plugins/"
		}
	}
	return ""
}

// contentFolder returns the folder that is a wp-content, and why. If certain is set, it must contain a theme or a
// plugin; otherwise the names of its folders are enough.
func (p *project) contentFolder(certain bool) (folder, why string) {
	for _, at := range contentPlaces {
		for _, name := range contentFolders {
			dir := worktree.Join(at, name)
			if !p.hasDir(dir) {
				continue
			}
			if found := dir; certain {
				found = p.extensionIn(dir)
				if found == "" {
					continue
				}
				return at, found + " is there"
			}
			return at, dir + " is there"
		}
	}
	return "", ""
}

// extensionIn returns a theme or plugin in a folder of wp-content, or "".
func (p *project) extensionIn(dir string) string {
	if in := p.at(worktree.Join(p.root, dir)); in.extension() != "" || path.Base(dir) == "mu-plugins" && in.holds("", phpFile) {
		return dir
	}
	for _, sub := range p.foldersIn(dir, 1) {
		if p.at(sub).extension() != "" {
			return strings.TrimPrefix(strings.TrimPrefix(sub, p.root), "/")
		}
	}
	return ""
}

// foldersIn lists the folders below one of the project's folders, as paths of the repository, upper ones first.
func (p *project) foldersIn(dir string, deep int) (list []string) {
	prefix := worktree.Join(p.root, dir)
	if prefix != "" {
		prefix += "/"
	}
	seen := map[string]bool{}
	for _, f := range p.t.List {
		rest, ok := strings.CutPrefix(f, prefix)
		if !ok {
			continue
		}
		parts := strings.Split(rest, "/")
		for n := 1; n <= min(deep, len(parts)-1) && !aside(parts[n-1]); n++ {
			if at := prefix + strings.Join(parts[:n], "/"); !seen[at] && len(list) < worktree.MaxMembers {
				seen[at] = true
				list = append(list, at)
			}
		}
	}
	slices.SortStableFunc(list, func(a, b string) int { return strings.Count(a, "/") - strings.Count(b, "/") })
	return list
}

// parts lists the themes and plugins of a repository that isn't laid out as a wp-content.
func (p *project) parts(repository string) (list []Part) {
	for _, dir := range p.foldersIn("", maxPartDirs) {
		if len(list) == maxParts || slices.ContainsFunc(list, func(x Part) bool { return strings.HasPrefix(dir, x.From+"/") }) {
			continue
		}
		kind := p.at(dir).extension()
		if kind == "" {
			continue
		}
		at := kind + folderOfWordPress(path.Base(dir))
		if slices.ContainsFunc(list, func(x Part) bool { return x.At == at }) {
			p.t.Warn(dir + " is skipped: another folder of this name is a " + strings.TrimSuffix(kind, "s/"))
			continue
		}
		list = append(list, Part{dir, at})
	}
	if len(list) == 1 && slices.Contains([]string{"theme", "plugin", "src", "app", "wordpress", "wp"}, path.Base(list[0].From)) {
		list[0].At = path.Join(path.Dir(list[0].At), repository)
	}
	return list
}

// prepare adds the build of the folder itself, and its Composer packages unless they are committed.
func (p *project) prepare(d *draft) {
	install, build, manager, version := d.Install, d.Build, d.Manager, d.ManagerVersion
	d.Install, d.Build = nil, nil
	if p.builds() {
		m := p.js(d)
		p.build(d, m, []string{"build"})
		if manager != "" && manager != d.Manager {
			d.warn(fmt.Sprintf("%s uses %s, and another folder %s", p.root, d.Manager, manager))
			d.Manager, d.ManagerVersion = manager, version
		}
	}
	if p.needsComposer() {
		d.Install = append([]Command{composerInstall(p.root)}, d.Install...)
		d.tool("composer", "")
		d.cache("~/.cache/composer")
		if !p.has("composer.lock") {
			d.warn("No composer.lock: each build installs the newest versions that composer.json allows")
		}
	}
	for _, c := range d.Install { // workspace members share an installation
		if !slices.ContainsFunc(install, func(have Command) bool { return have.Dir == c.Dir && have.String() == c.String() }) {
			install = append(install, c)
		}
	}
	d.Install, d.Build = install, append(build, d.Build...)
	if len(d.Install) > 1 { // one set of modules would stand for all installations
		d.Modules, d.Inputs, d.Scripts = nil, nil, nil
	}
}

// prepareInside prepares the themes and plugins in the repository.
func (p *project) prepareInside(d *draft, folder string) {
	var dirs []string
	for _, part := range d.Parts {
		dirs = append(dirs, part.From)
	}
	for _, name := range contentFolders {
		if d.Parts == nil {
			dirs = append(dirs, p.foldersIn(worktree.Join(folder, name), 1)...)
		}
	}
	for _, dir := range dirs {
		if in := p.at(dir); in.extension() != "" {
			in.prepare(d)
		}
	}
}

// needsComposer reports whether code of the folder uses Composer's packages or autoloader.
func (p *project) needsComposer() bool {
	var f map[string]json.RawMessage
	if !p.t.JSON(worktree.Join(p.root, "composer.json"), &f) || p.has("vendor/autoload.php") {
		return false
	}
	for name := range worktree.Table(f["require"]) {
		if strings.Contains(name, "/") {
			return true
		}
	}
	return f["autoload"] != nil
}

// folderOfWordPress converts a repository's name to a folder's name.
func folderOfWordPress(name string) string {
	name = strings.TrimSuffix(path.Base(name), ".git")
	name = strings.Trim(strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_' {
			return r
		}
		return '-'
	}, name), "-")
	return cmp.Or(name[:min(len(name), 100)], "site")
}
