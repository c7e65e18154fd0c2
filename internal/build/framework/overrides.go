package framework

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/BurntSushi/toml"

	"slipway/internal/build/worktree"
)

// slipwayTOML is the schema of slipway.toml, the repository's own settings. The file is in the site's root directory
// or else at the repository's root. Every key is optional:
//
//	output = "dist"          # the same as build.output
//
//	[build]
//	framework = "vite"       # a preset's id, instead of detection
//	root = "apps/web"        # only at the repository's root
//	install = "npm ci"       # "" skips the step
//	command = "npm run build"
//	output = "dist"          # relative to the root directory; "." is that directory
//	node = "22"              # version or npm range
//	watch = ["src/**"]       # pushes that change none of these files are not deployed
//
//	release = "node migrate.js"   # once per deployment, before it goes live
//
//	[run]                    # see Run
//	command = "node server.js"
//
//	[processes]              # run beside it
//	worker = "node worker.js"
//
//	[[cron]]
//	schedule = "*/5 * * * *" # UTC
//	command = "node clean.js"
//
// Invalid TOML, or a value of the wrong type, fails the deployment, because the file was written for Slipway. An
// unknown key causes a warning.
type slipwayTOML struct {
	Output    *string           `toml:"output"`
	Release   *string           `toml:"release"`
	Run       Run               `toml:"run"`
	Processes map[string]string `toml:"processes"`
	Cron      []cronTOML        `toml:"cron"`
	Build     struct {
		Framework *string `toml:"framework"`
		Root      *string `toml:"root"`
		Install   *string `toml:"install"`
		Command   *string `toml:"command"`
		Output    *string `toml:"output"`
		Node      any     `toml:"node"`

		Watch []string `toml:"watch"`
	} `toml:"build"`
}

// said is a value and its source; source is "" if the value isn't set.
type said struct {
	text   string
	source string
}

func (s said) ok() bool { return s.source != "" }

// firm reports whether the value was set for Slipway rather than for another host.
func (s said) firm() bool { return s.source == bySite || s.source == bySlipway }

// Sources of values, as in [Plan.Sources].
const (
	bySite    = "site settings"
	bySlipway = "slipway.toml"

	byVariable = "the site's variables"
	ByNetlify  = "netlify.toml"
	ByVercel   = "vercel.json"
)

// TakesFrom reports whether the plan uses a value of a file, such as ByNetlify.
func (p Plan) TakesFrom(file string) bool {
	for _, source := range p.Sources {
		if source == file {
			return true
		}
	}
	return false
}

// settings holds all configured values, before detection.
type settings struct {
	framework, root, install, command, output, node said

	watch    []string
	commands commands
	place    Place // valid

	env      map[string]string
	sources  map[string]string
	versions map[string]string // those that the site's variables choose, by variable
}

// Limits of watch, equal to those of the site's setting.
const (
	maxWatch     = 50
	maxWatchText = 200 // bytes
)

const maxText = 4096 // bytes of a command

// settle collects the configured values. For each field the first source wins.
func settle(t *worktree.Tree, o Overrides) (settings, error) {
	s := settings{env: map[string]string{}, sources: map[string]string{}, versions: map[string]string{}}
	for f, v := range map[*said]*string{
		&s.framework: o.Framework, &s.root: o.Root, &s.install: o.Install,
		&s.command: o.Command, &s.output: o.Output, &s.node: o.Node,
	} {
		if err := s.say(f, v, bySite); err != nil {
			return s, err
		}
	}
	top, err := readSlipway(t, "slipway.toml")
	if err != nil {
		return s, err
	}
	net := worktree.ReadNetlify(t, "netlify.toml")
	if err := s.say(&s.root, top.Build.Root, bySlipway); err != nil {
		return s, err
	}
	if !s.root.ok() && net.Base != nil {
		s.root = said{*net.Base, ByNetlify}
	}
	root, ok := worktree.CleanDir(s.root.text)
	if !ok {
		return s, invalid("Root directory is outside the repository",
			"root must be a folder of the repository, relative to its top", s.root.text)
	}
	if !t.HasDir(root) {
		return s, invalid(fmt.Sprintf("Root directory %q is not in the repository", root),
			"root must be a folder with files, relative to the top of the repository ("+s.root.source+")", root)
	}
	s.root.text = root
	if err := s.slipway(t, top, root); err != nil {
		return s, err
	}
	if err := s.placed(t, o.Place, root); err != nil {
		return s, err
	}
	for k, v := range o.Variables {
		if isVersion(k) && v != "" && len(v) < maxVersion {
			s.versions[k] = v
		}
	}
	if v := o.Variables["NODE_VERSION"]; v != "" && len(v) < maxVersion {
		if err := s.say(&s.node, &v, byVariable); err != nil {
			return s, err
		}
	}
	s.netlify(t, net, root)
	s.vercel(t, root)
	return s, s.settled()
}

func (s *settings) say(f *said, v *string, source string) error {
	if v == nil || f.ok() {
		return nil
	}
	if len(*v) > maxText || !utf8.ValidString(*v) || strings.ContainsRune(*v, 0) {
		return invalid("A build setting is too long or not text",
			"commands and folders are UTF-8 without NUL, at most 4096 bytes ("+source+")", nil)
	}
	*f = said{*v, source}
	return nil
}

// settled validates the values and records their sources.
func (s *settings) settled() error {
	if s.framework.text == "" {
		s.framework = said{}
	}
	if strings.TrimSpace(s.node.text) == "" {
		s.node = said{}
	}
	if s.output.ok() {
		out, ok := worktree.CleanDir(s.output.text)
		if !ok {
			return invalid("Output folder is outside the root directory",
				"output must be a folder inside the root directory ("+s.output.source+")", s.output.text)
		}
		s.output.text = out
	}
	for name, v := range map[string]said{
		"root": s.root, "install": s.install, "build": s.command, "output": s.output,
	} {
		if v.ok() {
			s.sources[name] = v.source
		}
	}
	return nil
}

func readSlipway(t *worktree.Tree, name string) (slipwayTOML, error) {
	var f slipwayTOML
	const remedy = "see docs/slipway-toml.md for its keys"
	md := t.TOML(name, &f, remedy)
	for _, k := range unknown(md) {
		t.Warn(fmt.Sprintf("%s: unknown key %s is ignored", name, k))
	}
	switch f.Build.Node.(type) {
	case nil, string, int64:
	default:
		return f, invalid(name+` can't be read: build.node must be a string such as "22"`, remedy, nil)
	}
	return f, nil
}

func unknown(md toml.MetaData) []string {
	var keys []string
	for _, k := range md.Undecoded() {
		if slices.Contains([]string{"redirects", "headers", "serve"}, k[0]) {
			continue // package release reads them
		}
		if name := k.String(); len(name) <= 100 && len(keys) < 5 {
			keys = append(keys, name)
		}
	}
	return keys
}

func (s *settings) slipway(t *worktree.Tree, f slipwayTOML, root string) error {
	if inner := worktree.Join(root, "slipway.toml"); root != "" && t.Names(inner) {
		var err error
		if f, err = readSlipway(t, inner); err != nil {
			return err
		}
	} else if r := f.Build.Root; r != nil {
		if other, _ := worktree.CleanDir(*r); other != root {
			return nil // it is about another folder than the chosen one
		}
	}
	if len(f.Build.Watch) > maxWatch || slices.ContainsFunc(f.Build.Watch, func(p string) bool {
		return len(p) > maxWatchText || strings.Trim(p, "/!") == "" || !utf8.ValidString(p) || strings.ContainsRune(p, 0)
	}) {
		return invalid("build.watch in slipway.toml has too many or too long patterns",
			fmt.Sprintf("at most %d patterns of 1 to %d bytes", maxWatch, maxWatchText), nil)
	}
	s.watch = f.Build.Watch
	if err := s.readCommands(t, f, root); err != nil {
		return err
	}
	node, isText := f.Build.Node.(string)
	if n, ok := f.Build.Node.(int64); ok {
		node, isText = fmt.Sprint(n), true
	}
	fields := []struct {
		f *said
		v *string
	}{
		{&s.framework, f.Build.Framework},
		{&s.install, f.Build.Install},
		{&s.command, f.Build.Command},
		{&s.output, f.Build.Output},
		{&s.output, f.Output},
	}
	if isText {
		fields = append(fields, struct {
			f *said
			v *string
		}{&s.node, &node})
	}
	for _, x := range fields {
		if err := s.say(x.f, x.v, bySlipway); err != nil {
			return err
		}
	}
	return nil
}

// maxVersion is the length of a version that a variable may name, in bytes.
const maxVersion = 40

// versions lists the variables, besides NODE_VERSION, with which other hosts choose programs.
var versions = []string{
	"BUN_VERSION", "COMPOSER_VERSION", "DENO_VERSION", "GO_VERSION", "HUGO_VERSION", "MDBOOK_VERSION", "NPM_VERSION",
	"PHP_VERSION", "PNPM_VERSION", "PYTHON_VERSION", "RUBY_VERSION", "RUST_VERSION", "SWIFT_VERSION", "YARN_VERSION",
	"ZOLA_VERSION",
}

func isVersion(variable string) bool { return slices.Contains(versions, variable) }

// isFlags reports whether a variable holds installation options of other hosts.
func isFlags(variable string) bool {
	return slices.Contains([]string{"NPM_FLAGS", "YARN_FLAGS", "PNPM_FLAGS", "BUN_FLAGS", "PIP_FLAGS"}, variable)
}

const useInstall = "put the options into .npmrc or the manager's own file, or set the install command"

// toolNames are the display names of programs of which a build takes the installed version, whatever the plan requests.
var toolNames = map[string]string{"python3": "Python", "bundle": "Ruby", "zola": "Zola", "mdbook": "mdBook"}

// versionVariable returns the variable that chooses the version of a tool.
func versionVariable(tool string) string {
	switch tool {
	case "python3":
		return "PYTHON_VERSION"
	case "bundle":
		return "RUBY_VERSION"
	}
	return strings.ToUpper(tool) + "_VERSION"
}

// apply applies the configured values to the preset's plan.
func (p *project) apply(d *draft) error {
	s := p.s
	step := func(v said) []Command {
		if strings.TrimSpace(v.text) == "" {
			return nil
		}
		return []Command{{Shell: v.text, Dir: p.root}}
	}
	if s.install.ok() {
		d.Install = step(s.install)
		d.Modules, d.Inputs, d.Scripts = nil, nil, nil // it isn't known what the custom command installs
	}
	if s.command.ok() {
		d.Build = step(s.command)
	}
	if s.output.ok() {
		p.applyOutput(d)
	}
	p.applyCommands(d)
	for k, v := range s.env {
		d.Env[k] = v
	}
	used := map[string]bool{}
	for i, t := range d.Tools { // HUGO_VERSION, PHP_VERSION, PYTHON_VERSION and the like, as at Netlify
		key := versionVariable(t.Name)
		if v := cmp.Or(s.versions[key], s.env[key]); v != "" && len(v) < maxVersion {
			if t.Name == "php" {
				both, ok := minorOf(v, t.Version)
				if !ok {
					return invalid("PHP_VERSION must be a version of PHP, such as 8.4", "it is a variable of the site or of netlify.toml", v)
				}
				v = both
			}
			d.Tools[i].Version = v
		}
		used[key] = true
		if name, v := toolNames[t.Name], d.Tools[i].Version; v != "" && name != "" {
			d.warn(fmt.Sprintf("The repository asks for %s %.60s; the build runs with the installed version", name, v))
		}
	}
	for _, k := range worktree.SortedKeys(s.env) {
		if isFlags(k) {
			d.warn(fmt.Sprintf("%s in %s changes no installation here; %s", k, s.sources["env"], useInstall))
		}
		if isVersion(k) && !used[k] {
			d.warn(fmt.Sprintf("%s in %s chooses no program here; commands see it as a variable", k, s.sources["env"]))
		}
	}
	return nil
}

// applyOutput uses the configured output folder. For a server, it means that the folder is published instead of running
// the server, unless the setting is from a file of another host: at Netlify, `publish = ".next"` is part of hosting the
// server.
func (p *project) applyOutput(d *draft) {
	s := p.s.output
	if d.Runtime != Static {
		if !s.firm() && metaFramework(d.Framework) {
			d.warn(fmt.Sprintf("%s names the output folder %q, which a %s server does not need", s.source, s.text, d.Name))
			d.Sources["output"] = "detection"
			return
		}
		d.Runtime, d.Start, d.Assets = Static, nil, nil
		d.Why += "; an output folder is set in " + s.source + ", so its files are published"
	}
	before := append([]string{d.Output}, d.OutputCandidates...)
	d.Output, d.OutputCandidates = s.text, nil
	if !s.firm() {
		d.OutputCandidates = before
		// Older netlify.toml files repeat the base folder in publish.
		if rest, ok := strings.CutPrefix(s.text, p.root+"/"); ok && p.root != "" {
			d.OutputCandidates = append([]string{rest}, before...)
		}
	}
}
