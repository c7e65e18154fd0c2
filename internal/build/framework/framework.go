// Package framework owns framework detection: from the files of a repository to the plan by which it is built and
// served.
//
// Detect is a pure function. It reads file names and a bounded number of small files through Files, so that it works on
// a checked-out directory and on a listing of git objects. In the Plan that it returns, every decision names its
// source. The presets are an ordered list (presets.go); the first one that matches the folder makes the plan.
// Configured settings take precedence, in this order: site settings, slipway.toml, netlify.toml and vercel.json.
//
// The package never runs anything. It never evaluates a configuration file written in a programming language; it
// searches it for known settings (see package configfile). It never accesses a file system by itself, and never names a
// folder outside the tree.
package framework

import (
	"maps"
	"slices"
	"strings"

	"slipway/internal/build/htaccess"
	"slipway/internal/build/worktree"
	"slipway/internal/platform/fault"
)

// The runtimes of plans.
const (
	Static = "static" // the output folder is published as files
	Node   = "node"   // a Node.js process serves requests
	PHP    = "php"    // PHP-FPM serves requests

	WordPress = "wordpress" // PHP-FPM serves requests, from a core that all sites share
)

// Plan says how a repository becomes a site. It is stored as JSON with the deployment.
//
// Root is relative to the repository; Output, OutputCandidates and Cache are relative to Root. Each is a clean
// slash-separated path inside the repository; "" is the folder itself. A Cache entry that starts with "~/" is relative
// to the build's home folder.
type Plan struct {
	Framework string `json:"framework"` // a preset's id: "vite", "static"
	Name      string `json:"name"`      // display name: "Vite with React"
	Why       string `json:"why"`       // one sentence about what decided
	Root      string `json:"root"`
	Runtime   string `json:"runtime"` // Static, Node or PHP

	Manager        string `json:"manager,omitempty"`        // npm, pnpm, yarn, bun, or "" without package.json
	ManagerVersion string `json:"managerVersion,omitempty"` // exact version or npm range; "" means any
	Node           string `json:"node,omitempty"`           // version, npm range, "lts/*" or "latest"; "" means the host's
	Makeshift      bool   `json:"makeshift,omitempty"`      // it has the host's Node only because no other could be downloaded
	Tools          []Tool `json:"tools,omitempty"`          // programs other than Node.js that the commands call

	Install          []Command `json:"install,omitempty"` // in order; may be empty
	Build            []Command `json:"build,omitempty"`   // in order; may be empty
	Output           string    `json:"output"`            // the folder to publish
	OutputCandidates []string  `json:"outputCandidates,omitempty"`
	Start            *Start    `json:"start,omitempty"` // for Node and PHP

	// Server is a server package that the project depends on although its plan publishes files. If the build makes no
	// page, the project is treated as a server.
	Server string `json:"server,omitempty"`

	Run       *Run      `json:"run,omitempty"`     // run settings of slipway.toml
	Release   *Command  `json:"release,omitempty"` // once per deployment, before it goes live
	Processes []Process `json:"processes,omitempty"`
	Crons     []Cron    `json:"crons,omitempty"`

	// Modules are the folders that Install fills, and Inputs the files that determine their content, both relative to
	// the repository. If no input, the Node.js version or the package manager changed, a build may reuse the Modules of
	// an earlier build and run only Scripts instead of Install. Inputs is empty if that would be wrong: versions aren't
	// pinned, or installed packages are patched.
	Modules []string  `json:"modules,omitempty"`
	Inputs  []string  `json:"inputs,omitempty"`
	Scripts []Command `json:"scripts,omitempty"`

	Hashed []HashedFolder `json:"hashed,omitempty"` // folders whose file names contain a digest
	Assets []AssetFolder  `json:"assets,omitempty"` // of a server: folders whose files are served without it
	// Content lists the folders of a WordPress site's wp-content that come from the repository.
	Content []string `json:"content,omitempty"`
	Parts   []Part   `json:"parts,omitempty"` // themes and plugins of a repository that isn't laid out as a wp-content
	SPA     bool     `json:"spa,omitempty"`   // paths without a file are answered with index.html, for the router in the browser
	Watch   []string `json:"watch,omitempty"` // patterns of slipway.toml: pushes that change none of these files are not deployed

	// Uses lists the workspace folders that the project is made from: its own and those of its direct and indirect
	// dependencies. Empty if it isn't in a workspace.
	Uses []string `json:"uses,omitempty"`

	Cache []string `json:"cache,omitempty"`
	// Variables of the preset and the repository's files. The site's own variables take precedence.
	Env      map[string]string `json:"env,omitempty"`
	Sources  map[string]string `json:"sources,omitempty"` // field → source: "site settings", "slipway.toml", ".nvmrc", …
	Warnings []string          `json:"warnings,omitempty"`
}

// Command is one step of a plan.
type Command = worktree.Command

// Tool is a program that a plan needs besides Node.js and its package managers.
type Tool struct {
	Name    string `json:"name"`              // hugo, jekyll, bundle, python3, zola, mdbook, composer, php, …
	Version string `json:"version,omitempty"` // as requested by the repository; "" is any

	Extensions []string `json:"extensions,omitempty"` // of PHP that composer.json requires, without ext-
}

// Start says how to run a server. Every Node.js program gets its port in PORT and its address in HOST (and HOSTNAME,
// which Next.js reads instead).
type Start struct {
	Command         Command  `json:"command,omitzero"`          // Node
	PortEnv         string   `json:"portEnv,omitempty"`         // variable that contains the port: "PORT"
	DocumentRoot    string   `json:"documentRoot,omitempty"`    // PHP: relative to Root, "" is Root
	FrontController string   `json:"frontController,omitempty"` // PHP: answers for paths without a file, relative to DocumentRoot
	Closed          []string `json:"closed,omitempty"`          // PHP: files and folders that are never served, relative to DocumentRoot
	// PHP: what the .htaccess files of the document root say about addresses. If they name the front controller, Ruled is
	// set, and FrontController serves versions that don't know Rules.
	Rules []htaccess.Folder `json:"rules,omitempty"`
	Ruled bool              `json:"ruled,omitempty"`
	// Storage lists the folders, relative to Root, that a program may write to and that are kept between deployments.
	// Temporary folders are emptied at each start.
	Storage   []string `json:"storage,omitempty"`
	Temporary []string `json:"temporary,omitempty"`
}

// AssetFolder is a folder whose files a server would serve unchanged.
type AssetFolder struct {
	Folder string `json:"folder"`       // relative to Root
	At     string `json:"at,omitempty"` // URL path of the folder, without leading and trailing slashes
}

// Overrides holds the build settings of the site or the deploy request. nil means not set. An empty Install or Command
// skips that step; an empty Output or Root means the folder itself; an empty Framework or Node is like nil.
type Overrides struct {
	Framework *string // a preset's id; an unknown one is ignored with a warning
	Root      *string
	Install   *string
	Command   *string
	Output    *string
	Node      *string
	Place     Place // of a PHP project

	// Variables are those of the site. Their versions, such as HUGO_VERSION, go before those that the repository names for
	// its tools, and NODE_VERSION comes after build.node of the settings and slipway.toml.
	Variables map[string]string
}

// Place says where a PHP project is served from. A nil field isn't set.
type Place struct {
	DocumentRoot    *string // relative to the root directory
	FrontController *string // relative to the document root; empty: none
	Passthru        *bool   // whether the front controller answers for paths without a file
}

// Detect reads files and returns the plan. Its only errors are of kind [fault.Invalid], with a sentence for the owner: a
// folder that is missing or outside the tree, a workspace with several possible sites, or an unreadable manifest or
// configuration.
func Detect(files worktree.Files, o Overrides) (Plan, error) {
	t := worktree.NewTree(files)
	plan, err := detect(t, o)
	if t.Err() != nil { // errors that follow from it are less precise
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
		// The picked folder has its own settings.
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
	p.known(d)
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

// draft is a plan that the preset and the overrides are still changing.
type draft struct {
	Plan
	refused error // why the build's output can't run here, unless the owner configures it
	// pathsMissing is set if index.php reads the request's path, but no rule or framework says that it answers for all
	// paths.
	pathsMissing bool
}

// refuse records that a project builds for another host, and the remedy.
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

// output sets the folder to publish, configured or else the preset's usual one, and other candidates in case it is
// missing.
func (d *draft) output(configured, usual string, others ...string) {
	d.Output = usual
	if clean, ok := worktree.CleanDir(configured); ok && configured != "" && clean != "" {
		d.Output = clean
		others = append([]string{usual}, others...)
	}
	d.OutputCandidates = others
}

// finish normalizes the plan and drops folders that lead out of the tree.
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
