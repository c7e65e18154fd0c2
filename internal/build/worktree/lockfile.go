package worktree

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"slipway/internal/build/configfile"
	"slipway/internal/platform/lazyregexp"
)

// LockFiles lists the lock files of package managers, newer conventions first: in a project with two, the older one is
// usually a leftover.
var LockFiles = []struct{ File, manager string }{
	{"bun.lock", "bun"},
	{"bun.lockb", "bun"},
	{"pnpm-lock.yaml", "pnpm"},
	{"yarn.lock", "yarn"},
	{"package-lock.json", "npm"},
	{"npm-shrinkwrap.json", "npm"},
}

// Manager says how the project's packages are installed.
type Manager struct {
	Name    string // npm, pnpm, yarn or bun
	Version string
	Dir     string // folder in which it runs: the workspace's or the project's
	Lock    string // name of the lock file, or ""
	Berry   bool   // yarn 2 and later
	Rivals  bool   // other managers have lock files, too, so this one may be out of date
	Source  string
}

// corepack matches package.json's packageManager: name, exact version, and an optional hash.
var corepack = lazyregexp.New(`^(npm|pnpm|yarn|bun)@\^?([0-9]+(?:\.[0-9A-Za-z.-]+)?)(?:\+[A-Za-z0-9.]+)?$`)

var devEngine = lazyregexp.New(`^(npm|pnpm|yarn|bun)@([0-9xX*^~<>=|. -]{0,60})$`)

// FindManager returns the package manager for dir. packageManager in package.json, there or in a parent, takes
// precedence over lock files. Parents of a folder with its own lock file are ignored.
func (t *Tree) FindManager(dir string) Manager {
	m := Manager{Name: "npm", Dir: dir, Source: "detection"}
	var found []string
	for _, l := range LockFiles {
		if t.Has(Join(dir, l.File)) {
			found = append(found, l.File)
		}
	}
	for _, at := range Upward(dir) {
		if at != dir && len(found) > 0 {
			break
		}
		pkg := t.Manifest(at)
		if pkg == nil {
			continue
		}
		if pkg.Manager != "" {
			if f := corepack.FindStringSubmatch(pkg.Manager); f != nil {
				m.Name, m.Version, m.Source = f[1], f[2], Join(at, "package.json")+" packageManager"
				break
			}
			t.Warn(fmt.Sprintf("packageManager %.60q is not of the form name@version and is ignored", pkg.Manager))
		}
		if f := devEngine.FindStringSubmatch(pkg.devManager); f != nil {
			m.Name, m.Version, m.Source = f[1], strings.TrimSpace(f[2]), Join(at, "package.json")+" devEngines"
			break
		}
	}
	named := m.Source != "detection"
	for _, l := range LockFiles {
		name := Join(dir, l.File)
		if !slices.Contains(found, l.File) {
			continue
		}
		if m.Lock == "" && (!named || m.Name == l.manager) {
			m.Name, m.Lock = l.manager, l.File
			if !named {
				m.Source = name
			}
		}
	}
	switch {
	case named && m.Lock == "" && len(found) > 0:
		t.Warn(fmt.Sprintf("package.json asks for %s, but the lock file is %s: dependencies are not pinned", m.Name, found[0]))
	case len(found) > 1 && !(len(found) == 2 && strings.HasPrefix(found[0], "bun") && strings.HasPrefix(found[1], "bun")):
		m.Rivals = !named
		t.Warn(fmt.Sprintf("Several lock files (%s): %s is used; delete the others or set packageManager",
			strings.Join(found, ", "), m.Lock))
	case len(found) == 0 && !named && t.Has(Join(dir, "pnpm-workspace.yaml")):
		m.Name, m.Source = "pnpm", Join(dir, "pnpm-workspace.yaml")
	case len(found) == 0 && !named && t.Has(Join(dir, ".yarnrc.yml")):
		m.Name, m.Source = "yarn", Join(dir, ".yarnrc.yml")
	}
	if m.Lock == "" {
		t.Warn("No lock file: each build installs the newest versions that package.json allows")
	}
	t.managerVersion(&m)
	return m
}

const lockHead = 4 << 10 // bytes that contain a lock file's version

var (
	yarnRelease = lazyregexp.New(`releases/yarn-([0-9]+\.[0-9]+\.[0-9]+(?:-[0-9A-Za-z.]+)?)\.c?js$`)
	berryMeta   = lazyregexp.New(`(?m)^__metadata:\s*\n\s+version:\s*"?(\d+)`)
	pnpmLock    = lazyregexp.New(`(?m)^lockfileVersion:\s*['"]?(\d+)(?:\.(\d+))?`)
)

// managerVersion sets the version if packageManager doesn't: from volta or engines, or else from the format of the lock
// file.
func (t *Tree) managerVersion(m *Manager) {
	for _, at := range Upward(m.Dir) {
		pkg := t.Manifest(at)
		if pkg == nil || m.Version != "" {
			continue
		}
		for _, v := range []string{pkg.Volta[m.Name], pkg.Engines[m.Name]} {
			if v, ok := NodeVersion(v); ok && m.Version == "" && v[0] != 'l' {
				m.Version = v
			}
		}
	}
	switch m.Name {
	case "yarn":
		rc := t.Read(Join(m.Dir, ".yarnrc.yml"))
		lock := berryMeta.FindStringSubmatch(t.Head(Join(m.Dir, "yarn.lock"), lockHead))
		if f := yarnRelease.FindStringSubmatch(configfile.YAMLScalar(rc, "yarnPath")); f != nil && m.Version == "" {
			m.Version = f[1]
		}
		if m.Version == "" && lock != nil {
			switch n, _ := strconv.Atoi(lock[1]); {
			case n <= 4:
				m.Version = "^2"
			case n <= 7:
				m.Version = "^3"
			default:
				m.Version = "^4"
			}
		}
		m.Berry = lock != nil || rc != "" || Major(m.Version) >= 2
		if m.Version == "" {
			m.Version = "^1"
			if m.Berry {
				m.Version = "^4"
			}
		}
	case "pnpm":
		f := pnpmLock.FindStringSubmatch(t.Head(Join(m.Dir, "pnpm-lock.yaml"), lockHead))
		if f == nil || m.Version != "" {
			return
		}
		switch f[1] {
		case "5":
			m.Version = "^6"
			if f[2] == "4" {
				m.Version = "^7"
			}
		case "6":
			m.Version = "^8"
		case "9":
			m.Version = "^9 || ^10"
		}
	}
}

// Install returns the command that installs all dependencies, including development ones regardless of NODE_ENV, and
// that fails rather than change an existing lock file.
func (m Manager) Install() []Command {
	var argv []string
	switch frozen := m.Lock != ""; m.Name {
	case "pnpm":
		argv = []string{"pnpm", "install", "--prod=false", "--no-frozen-lockfile"}
		if frozen {
			argv[3] = "--frozen-lockfile"
		}
	case "yarn":
		switch {
		case m.Berry && frozen:
			argv = []string{"yarn", "install", "--immutable"}
		case m.Berry:
			argv = []string{"yarn", "install", "--no-immutable"}
		default:
			argv = []string{"yarn", "install", "--non-interactive", "--production=false"}
			if frozen && !m.Rivals { // install packages that the lock file lacks, as yarn does by default
				argv = append(argv, "--frozen-lockfile")
			}
		}
	case "bun":
		argv = []string{"bun", "install"}
		if frozen {
			argv = append(argv, "--frozen-lockfile")
		}
	default:
		argv = []string{"npm", "install", "--include=dev", "--no-audit", "--no-fund"}
		if frozen {
			argv[1] = "ci"
		}
	}
	return []Command{{Argv: argv, Dir: m.Dir}}
}

// Run returns the command for a script of package.json.
func (m Manager) Run(dir, script string) Command {
	return Command{Argv: []string{m.Name, "run", script}, Dir: dir}
}

// Exec returns the command for a program of a dependency. It never downloads one.
func (m Manager) Exec(dir string, argv ...string) Command {
	var head []string
	switch m.Name {
	case "pnpm":
		head = []string{"pnpm", "exec"}
	case "yarn":
		head = []string{"yarn", "run"}
	case "bun":
		head = []string{"bun", "run"}
	default:
		head = []string{"npx", "--no-install"}
	}
	return Command{Argv: append(head, argv...), Dir: dir}
}

// Stores returns the caches of downloaded packages. None contains built code.
func (m Manager) Stores() []string {
	switch {
	case m.Name == "pnpm":
		return []string{"~/.local/share/pnpm/store", "~/.cache/pnpm"}
	case m.Name == "yarn" && m.Berry:
		return []string{"~/.yarn/berry/cache"}
	case m.Name == "yarn":
		return []string{"~/.cache/yarn"}
	case m.Name == "bun":
		return []string{"~/.bun/install/cache"}
	}
	return []string{"~/.npm"}
}

// Command is one step of a plan. Exactly one of Argv and Shell is set.
type Command struct {
	Argv  []string `json:"argv,omitempty"`  // generated: runs without a shell
	Shell string   `json:"shell,omitempty"` // the user's own command: for `sh -c` inside the sandbox only
	Dir   string   `json:"dir,omitempty"`   // working directory, relative to the repository
}

// String returns the command as a person would type it, for logs only.
func (c Command) String() string {
	if c.Shell != "" {
		return c.Shell
	}
	words := make([]string, len(c.Argv))
	for i, a := range c.Argv {
		if a == "" || strings.ContainsAny(a, " \t\n\"'`$&|;<>()*?[]{}\\#~!") {
			a = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
		}
		words[i] = a
	}
	return strings.Join(words, " ")
}
