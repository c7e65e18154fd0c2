package framework

import (
	"cmp"
	"fmt"
	"strings"
	"unicode/utf8"

	"slipway/internal/build/worktree"
	"slipway/internal/platform/cron"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/lazyregexp"
)

// Run holds the run settings of slipway.toml; nil means not set. The site's settings have the same ranges and take
// precedence.
type Run struct {
	Command                   *string   `toml:"command" json:"command,omitempty"`
	HealthCheckPath           *string   `toml:"health_check_path" json:"healthCheckPath,omitempty"`
	HealthCheckTimeoutSeconds *int      `toml:"health_check_timeout_seconds" json:"healthCheckTimeoutSeconds,omitempty"`
	SleepAfterSeconds         *int      `toml:"sleep_after_seconds" json:"sleepAfterSeconds,omitempty"`
	MemoryMiB                 *int      `toml:"memory_mib" json:"memoryMiB,omitempty"`
	CPUs                      *float64  `toml:"cpus" json:"cpus,omitempty"`
	Pids                      *int      `toml:"pids" json:"pids,omitempty"`
	MinInstances              *int      `toml:"min_instances" json:"minInstances,omitempty"`
	MaxInstances              *int      `toml:"max_instances" json:"maxInstances,omitempty"`
	DrainSeconds              *int      `toml:"drain_seconds" json:"drainSeconds,omitempty"`
	Storage                   *[]string `toml:"storage" json:"storage,omitempty"`
	StorageMiB                *int      `toml:"storage_mib" json:"storageMiB,omitempty"`
	RequestMiB                *int      `toml:"request_mib" json:"requestMiB,omitempty"`
	ResponseSeconds           *int      `toml:"response_seconds" json:"responseSeconds,omitempty"`
	Ports                     *[]int    `toml:"ports" json:"ports,omitempty"`
	ReadOnly                  *bool     `toml:"read_only" json:"readOnly,omitempty"`               // the program can't write to its own files
	Closed                    *[]string `toml:"closed" json:"closed,omitempty"`                    // in addition to those of Start
	FrontController           *string   `toml:"front_controller" json:"frontController,omitempty"` // PHP: instead of the detected one
	DocumentRoot              *string   `toml:"document_root" json:"documentRoot,omitempty"`       // PHP: instead of the detected one
	Passthru                  *bool     `toml:"passthru" json:"passthru,omitempty"`                // PHP: whether it answers for paths without a file
	DevDependencies           *bool     `toml:"dev_dependencies" json:"devDependencies,omitempty"` // store them with the release
}

// Process is a background program without a port.
type Process struct {
	Name    string  `json:"name"`
	Command Command `json:"command"`
}

// Cron is a command with a schedule, in UTC.
type Cron struct {
	Name     string  `json:"name"`
	Schedule string  `json:"schedule"` // in the syntax of package cron
	Command  Command `json:"command"`
}

// Limits per project.
const (
	maxProcesses = 10
	maxCrons     = 20
)

// cronTOML is one [[cron]] of slipway.toml.
type cronTOML struct {
	Name     string `toml:"name"`
	Schedule string `toml:"schedule"`
	Command  string `toml:"command"`
}

// commands holds the commands that the repository defines, other than the build.
type commands struct {
	run       Run
	release   said
	web       said // start command from [processes] or the Procfile
	processes []Process
	crons     []Cron
}

var processName = lazyregexp.New(`^[a-z][a-z0-9_-]{0,31}$`)

func badRun(details string, received any) error {
	return fault.New(fault.Invalid, "invalid_slipway_toml", "slipway.toml can't be used", details).Got(received)
}

// readCommands reads the commands of slipway.toml, or else of the Procfile beside it.
func (s *settings) readCommands(t *worktree.Tree, f slipwayTOML, root string) error {
	c := &s.commands
	c.run = f.Run
	for to, from := range map[*said]*string{&c.release: f.Release, &c.web: f.Run.Command} {
		switch {
		case from == nil || to == &c.web && *from == "":
		case !commandText(*from):
			return badRun(commandRule, nil)
		default:
			*to = said{*from, bySlipway}
		}
	}
	list := f.Processes
	source := bySlipway
	if len(list) == 0 {
		list, source = procfile(t.Read(worktree.Join(root, "Procfile"))), "Procfile"
		if release := list["release"]; release != "" && !c.release.ok() {
			if commandText(release) {
				c.release = said{release, source}
			} else {
				t.Warn("Procfile: process \"release\" is ignored")
			}
		}
		delete(list, "release")
	}
	for _, name := range worktree.SortedKeys(list) {
		command := strings.TrimSpace(list[name])
		switch {
		case source != bySlipway && (!processName.MatchString(name) || command == "" || !commandText(command) || name != "web" &&
			len(c.processes) == maxProcesses):
			t.Warn(fmt.Sprintf("Procfile: process %.40q is ignored", name))
			continue
		case name == "web" && commandText(command):
			if !c.web.ok() {
				c.web = said{command, source}
			}
			continue
		case !processName.MatchString(name):
			return badRun("a process has a name of up to 32 small letters, digits, - and _, beginning with a letter", name)
		case len(c.processes) == maxProcesses:
			return badRun(fmt.Sprintf("at most %d processes", maxProcesses), len(list))
		case command == "":
			return badRun("the command of process "+name+" is empty", nil)
		case !commandText(command):
			return badRun(commandRule+" (process "+name+")", nil)
		}
		c.processes = append(c.processes, Process{name, in(root, command)})
	}
	return c.readCrons(f.Cron, root)
}

// placed takes where a PHP project is served from, from the site's settings or else slipway.toml.
func (s *settings) placed(t *worktree.Tree, o Place, root string) error {
	toml := s.commands.run
	s.place = Place{
		cmp.Or(o.DocumentRoot, toml.DocumentRoot), cmp.Or(o.FrontController, toml.FrontController), cmp.Or(o.Passthru, toml.Passthru),
	}
	bad := func(setting *string, field, key, details string, received string) error {
		if setting != nil {
			return fault.New(fault.Invalid, "invalid_run", "Invalid run."+field, details).Got(received)
		}
		return badRun(key+" is "+details, received)
	}
	if front := s.place.FrontController; front != nil && *front != "" {
		if clean, ok := worktree.CleanDir(*front); !ok || clean != *front || !phpFile.MatchString(clean) {
			return bad(o.FrontController, "frontController", "front_controller",
				"a .php file, relative to the document root; \"\" is none", *front)
		}
	}
	if dir := s.place.DocumentRoot; dir != nil {
		clean, ok := worktree.CleanDir(*dir)
		at := worktree.Join(root, clean)
		there := at == "" || t.HasDir(at) || t.Has(worktree.Join(root, "composer.json")) // packages may bring it
		if !ok || !there {
			return bad(o.DocumentRoot, "documentRoot", "document_root", "a folder of the project, relative to its root directory", *dir)
		}
		s.place.DocumentRoot = &clean
	}
	return nil
}

func (c *commands) readCrons(list []cronTOML, root string) error {
	if len(list) > maxCrons {
		return badRun(fmt.Sprintf("at most %d scheduled commands", maxCrons), len(list))
	}
	names := map[string]bool{}
	for i, x := range list {
		if x.Name == "" {
			x.Name = fmt.Sprintf("cron-%d", i+1)
		}
		if !processName.MatchString(x.Name) || names[x.Name] {
			return badRun("a [[cron]] has a name of its own: up to 32 small letters, digits, - and _, beginning with a letter", x.Name)
		}
		names[x.Name] = true
		switch command := strings.TrimSpace(x.Command); {
		case command == "":
			return badRun("the command of [[cron]] "+x.Name+" is empty", nil)
		case !commandText(command):
			return badRun(commandRule+" ([[cron]] "+x.Name+")", nil)
		}
		if _, err := cron.Parse(x.Schedule); err != nil {
			return badRun("the schedule of [[cron]] "+x.Name+": "+fault.As(err).Details, x.Schedule)
		}
		c.crons = append(c.crons, Cron{x.Name, x.Schedule, in(root, strings.TrimSpace(x.Command))})
	}
	return nil
}

const commandRule = "a command is UTF-8 without NUL, at most 4096 bytes"

// commandText reports whether a command is valid.
func commandText(s string) bool {
	return len(s) <= maxText && utf8.ValidString(s) && !strings.ContainsRune(s, 0)
}

func in(root, command string) Command {
	c := ParseCommand(command)
	c.Dir = root
	return c
}

// procfile parses lines of the form name: command.
func procfile(text string) map[string]string {
	out := map[string]string{}
	for line := range strings.Lines(text) {
		name, command, ok := strings.Cut(strings.TrimSpace(line), ":")
		if ok && !strings.HasPrefix(name, "#") && len(out) < 100 {
			out[strings.TrimSpace(name)] = strings.TrimSpace(command)
		}
	}
	return out
}

// applyCommands adds the repository's commands to a plan.
func (p *project) applyCommands(d *draft) {
	c := p.s.commands
	if c.run != (Run{}) {
		d.Run = &c.run
	}
	if c.web.ok() && c.web.source == bySlipway && !(p.s.output.ok() && d.Runtime == Static) {
		start := &Start{Command: in(p.root, c.web.text), PortEnv: "PORT"}
		if d.Start != nil {
			start.Storage, start.Temporary = d.Start.Storage, d.Start.Temporary
			start.DocumentRoot, start.Closed, start.Rules = d.Start.DocumentRoot, d.Start.Closed, d.Start.Rules
		}
		d.Start = start
		if d.Runtime == Static {
			d.Runtime, d.Why = Node, d.Why+"; slipway.toml says how it is started"
		}
	}
	p.warnOfWeb(d)
	if d.Runtime == Static {
		if len(c.processes)+len(c.crons) > 0 || c.release.ok() {
			d.warn("Processes, scheduled commands and the release command are ignored: the site is published as files")
		}
		return
	}
	if c.release.ok() && strings.TrimSpace(c.release.text) != "" {
		command := in(p.root, c.release.text)
		d.Release = &command
	}
	d.Processes, d.Crons = c.processes, c.crons
}

// runsScript matches start commands that only run the start script of package.json, or the buildpacks' name for PHP
// behind a web server, which are the defaults here.
var runsScript = lazyregexp.New(`^(?:(?:npm|yarn|pnpm|bun)(?:\s+run)?\s+start(?::prod)?|(?:vendor/bin/)?heroku-php-\S+(?:\s.*)?)$`)

// warnOfWeb warns if the Procfile names another start command than the plan's.
func (p *project) warnOfWeb(d *draft) {
	web := p.s.commands.web
	switch command := in(p.root, web.text).String(); {
	case web.source != "Procfile" || web.text == "":
	case d.Start == nil:
		d.warn("Procfile: the process web is not started, because the site is published as files")
	case d.Start.Command.String() != command && !runsScript.MatchString(command) && strings.TrimSpace(p.pkg.ScriptBody("start")) != web.text:
		d.warn(
			"Procfile: the process web is not started, because " + d.Name +
				" is started in its own way; to start it, set command under [run] in slipway.toml",
		)
	}
}

// procfilePreset matches projects whose only start command is in their Procfile.
func procfilePreset() preset {
	return preset{
		Preset: Preset{"procfile", "Procfile", Node}, tier: weak, server: true,
		match: func(p *project) string {
			if w := p.s.commands.web; w.ok() && w.source == "Procfile" && w.text != "" && !p.has("index.html") {
				return "its Procfile says how the process web is started"
			}
			return ""
		},
		plan: func(p *project, d *draft) {
			if p.pkg != nil {
				m := p.js(d)
				p.build(d, m, []string{"build"})
			}
			d.Start = &Start{Command: in(p.root, p.s.commands.web.text), PortEnv: "PORT"}
			d.Output = ""
		},
	}
}
