// Package framework owns framework detection: from the files of a repository to the plan
// by which it is built and served.
//
// Detect is a pure function. It reads file names and a bounded number of small files
// through Files, so the same code works on a checked-out directory and a listing of git
// objects, and it returns a Plan in which every decision names its source. The presets
// are one ordered list (presets.go); the first that recognizes the folder makes the plan.
// What a person has configured takes precedence: site settings, then slipway.toml, then
// netlify.toml and vercel.json.
//
// The package never runs anything, never evaluates a configuration file written in a
// programming language (it looks for the few words that decide, see config.go), never
// touches a file system by itself, and never names a folder outside the tree.
package framework

import (
	"maps"
	"slices"
	"strings"

	"slipway/internal/build/worktree"
	"slipway/internal/platform/fault"
)

// The runtimes a plan may end in.
const (
	Static = "static" // the output folder is published as files
	Node   = "node"   // a Node.js process answers
	PHP    = "php"    // PHP-FPM answers

	WordPress = "wordpress" // PHP-FPM answers, from a core that all sites share
)

// Plan says how a repository becomes a site. It has JSON names because a deployment
// stores the plan that it used.
//
// Root is relative to the repository; Output, OutputCandidates and Cache are relative
// to Root; every one of them is a clean slash-separated path inside the repository,
// with "" for the folder itself. A Cache entry that starts with "~/" is relative to the
// home folder of the build instead.
type Plan struct {
	Framework string `json:"framework"` // a preset's id: "vite", "static"
	Name      string `json:"name"`      // for people: "Vite with React"
	Why       string `json:"why"`       // one sentence: what decided
	Root      string `json:"root"`
	Runtime   string `json:"runtime"` // Static, Node or PHP

	Manager        string `json:"manager,omitempty"`        // npm, pnpm, yarn, bun, or "" without package.json
	ManagerVersion string `json:"managerVersion,omitempty"` // exact or an npm range; "" is whatever there is
	Node           string `json:"node,omitempty"`           // version, npm range, "lts/*" or "latest"; "" is the host's
	Tools          []Tool `json:"tools,omitempty"`          // programs other than Node that the commands call

	Install          []Command `json:"install,omitempty"` // in order; may be empty
	Build            []Command `json:"build,omitempty"`   // in order; may be empty
	Output           string    `json:"output"`            // the folder to publish
	OutputCandidates []string  `json:"outputCandidates,omitempty"`
	Start            *Start    `json:"start,omitempty"` // for Node and PHP

	// Server is the package of a server that the project depends on, though its plan publishes files. A build that makes
	// no page of it is one of a server.
	Server string `json:"server,omitempty"`

	Run       *Run      `json:"run,omitempty"`     // what slipway.toml says about running it
	Release   *Command  `json:"release,omitempty"` // once per deployment, before it goes live
	Processes []Process `json:"processes,omitempty"`
	Crons     []Cron    `json:"crons,omitempty"`

	// Modules are the folders that Install fills and Inputs the files that decide with
	// what, both relative to the repository. Where none of them changed, nor Node or
	// the manager, Modules of an earlier build and a run of Scripts may stand in for
	// Install. Inputs is empty where that would be wrong: nothing is pinned, or what is
	// installed is patched.
	Modules []string  `json:"modules,omitempty"`
	Inputs  []string  `json:"inputs,omitempty"`
	Scripts []Command `json:"scripts,omitempty"`

	Hashed []HashedFolder `json:"hashed,omitempty"` // where the output's files have a digest in their names
	Assets []AssetFolder  `json:"assets,omitempty"` // of a server: folders whose files are served without it
	// Content are the folders of a WordPress site's wp-content that come from the repository.
	Content []string `json:"content,omitempty"`
	Parts   []Part   `json:"parts,omitempty"` // what becomes of a repository that isn't laid out as a wp-content
	SPA     bool     `json:"spa,omitempty"`   // the browser's router answers for paths without a file
	Watch   []string `json:"watch,omitempty"` // patterns of slipway.toml: a push that changes none of these files is not deployed

	// Uses are the folders of the workspace's members that the project is made of: its own and
	// those that it depends on, however far. Empty where it is a member of no workspace.
	Uses []string `json:"uses,omitempty"`

	Cache []string `json:"cache,omitempty"`
	// what the preset and the repository's files ask for; the site's own variables win
	Env      map[string]string `json:"env,omitempty"`
	Sources  map[string]string `json:"sources,omitempty"` // field → who said it: "site settings", "slipway.toml", ".nvmrc", …
	Warnings []string          `json:"warnings,omitempty"`
}

// Command is one step of a plan.
type Command = worktree.Command

// Tool is a program that a plan needs besides Node and its package managers.
type Tool struct {
	Name    string `json:"name"`              // hugo, jekyll, bundle, python3, zola, mdbook, composer, php, …
	Version string `json:"version,omitempty"` // as the repository asks for it; "" is any
}

// Start says how a server is kept running. Every Node program gets the port to listen
// on in PORT and the address in HOST (and HOSTNAME, which Next.js reads instead).
type Start struct {
	Command         Command  `json:"command,omitzero"`          // Node
	PortEnv         string   `json:"portEnv,omitempty"`         // the variable that carries the port: "PORT"
	DocumentRoot    string   `json:"documentRoot,omitempty"`    // PHP: relative to Root, "" is Root
	FrontController string   `json:"frontController,omitempty"` // PHP: answers what is not a file, relative to DocumentRoot
	Closed          []string `json:"closed,omitempty"`          // PHP: files and folders that visitors never reach, relative to DocumentRoot
	// Storage are the folders, relative to Root, that a program may write to and that stay
	// when another deployment takes over; Temporary begin anew with each start.
	Storage   []string `json:"storage,omitempty"`
	Temporary []string `json:"temporary,omitempty"`
}

// AssetFolder is a folder of files that a server would answer with as they are.
type AssetFolder struct {
	Folder string `json:"folder"`       // relative to Root
	At     string `json:"at,omitempty"` // the path below which they are served, without slashes around it
}

// Overrides holds the build settings of the site or the deploy request. A nil field is not
// set. An empty Install or Command skips that step; an empty Output or Root names the
// folder itself; an empty Framework or Node is as good as nil.
type Overrides struct {
	Framework *string // a preset's id; an unknown one is ignored with a warning
	Root      *string
	Install   *string
	Command   *string
	Output    *string
	Node      *string
}

// Detect reads files and returns the plan. The only errors are fault.Invalid, with a
// sentence for the owner of the repository: a folder that is not there or not inside
// the tree, a workspace of which several members could be the site, a manifest or a
// configuration that can't be read or understood.
func Detect(files worktree.Files, o Overrides) (Plan, error) {
	t := worktree.NewTree(files)
	plan, err := detect(t, o)
	if t.Err() != nil { // what follows from it says less
		return Plan{}, t.Err()
	}
	return plan, err
}

func detect(t *worktree.Tree, o Overrides) (Plan, error) {
	s, err := settle(t, o)
	if err != nil {
		return Plan{}, err
	}
	p := newProject(t, s)
	chosen, why, err := choose(p)
	if err != nil {
		return Plan{}, err
	}
	if p.root != s.root.text && p.configured() {
		// The folder that was picked brings settings of its own.
		o.Root = &p.root
		if s, err = settle(t, o); err != nil {
			return Plan{}, err
		}
		delete(s.sources, "root")
		p = newProject(t, s)
		first := why
		if chosen, why, err = choose(p); err != nil {
			return Plan{}, err
		}
		if s.framework.ok() {
			why = first + "; " + why
		} else {
			why = first
		}
	}
	d := &draft{Plan: Plan{
		Framework: chosen.ID, Name: chosen.Name, Why: why, Root: p.root, Runtime: chosen.Runtime,
		Env: map[string]string{}, Sources: maps.Clone(s.sources), Watch: s.watch,
	}}
	if _, said := d.Sources["framework"]; !said {
		d.Sources["framework"] = "detection"
	}
	chosen.plan(p, d)
	if d.refused != nil && !p.s.commands.web.ok() && !p.s.output.ok() && !p.s.command.ok() {
		return Plan{}, d.refused
	}
	if err := p.apply(d); err != nil {
		return Plan{}, err
	}
	p.otherHosts(d)
	hashed(p, d)
	d.SPA = singlePage(p, d)
	if d.Runtime == Static && len(d.Build) > 0 && !p.s.output.ok() {
		d.Server = p.serverDep("@nestjs/core")
	}
	d.Uses = p.uses()
	return d.finish(p), nil
}

// draft is a plan while its preset and the overrides work on it.
type draft struct {
	Plan
	refused error // why what the build makes can't run here, unless the owner says how
	// pathsMissing says that an index of PHP looks at paths, but no rule and no framework says that it answers for all of them.
	pathsMissing bool
}

// refuse says that a project builds for another host, and what to do.
func (d *draft) refuse(what, remedy string) {
	if d.refused == nil {
		d.refused = invalid(what+" builds for another host", remedy, nil)
	}
}

func (d *draft) warn(text string) { d.Warnings = append(d.Warnings, text) }

func (d *draft) tool(name, version string) {
	d.Tools = append(d.Tools, Tool{Name: name, Version: version})
}

func (d *draft) env(key, value string) { d.Env[key] = value }

func (d *draft) cache(dirs ...string) { d.Cache = append(d.Cache, dirs...) }

// output sets the folder to publish, the one a configuration names or else the
// preset's own, and where to look when it is not there.
func (d *draft) output(configured, usual string, others ...string) {
	d.Output = usual
	if clean, ok := worktree.CleanDir(configured); ok && configured != "" && clean != "" {
		d.Output = clean
		others = append([]string{usual}, others...)
	}
	d.OutputCandidates = others
}

// finish puts the plan in its canonical form and drops every folder that would lead
// out of the tree.
func (d *draft) finish(p *project) Plan {
	d.Warnings = append(slices.Clone(p.t.Warnings), d.Warnings...)
	if p.t.Truncated() {
		d.warn("The repository has more files than detection reads; set a root directory")
	}
	slices.SortStableFunc(d.Tools, func(a, b Tool) int { return strings.Compare(a.Name, b.Name) })
	d.Tools = slices.CompactFunc(d.Tools, func(a, b Tool) bool { return a.Name == b.Name })
	d.Cache = worktree.CleanDirs(d.Cache)
	d.OutputCandidates = slices.DeleteFunc(worktree.CleanDirs(d.OutputCandidates), func(s string) bool { return s == d.Output })
	d.Warnings = worktree.Compact(d.Warnings, worktree.MaxWarnings)
	for _, f := range []string{"root", "output", "install", "build"} {
		if _, ok := d.Sources[f]; !ok {
			d.Sources[f] = "detection"
		}
	}
	if len(d.Env) == 0 {
		d.Env = nil
	}
	return d.Plan
}

func invalid(message, details string, received any) error {
	return &fault.Error{Kind: fault.Invalid, Message: message, Details: details, Received: received}
}
