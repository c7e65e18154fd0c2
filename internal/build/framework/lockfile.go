package framework

import (
	"fmt"
	"strconv"
	"strings"

	"slipway/internal/platform/lazyregexp"
)

// lockFiles says which file belongs to which manager, the newer convention first: who
// has two usually forgot to delete the older one.
var lockFiles = []struct{ file, manager string }{
	{"bun.lock", "bun"},
	{"bun.lockb", "bun"},
	{"pnpm-lock.yaml", "pnpm"},
	{"yarn.lock", "yarn"},
	{"package-lock.json", "npm"},
	{"npm-shrinkwrap.json", "npm"},
}

// manager is how the project's packages are installed.
type manager struct {
	name    string // npm, pnpm, yarn or bun
	version string
	dir     string // where it is run: the workspace's folder, or the project's
	lock    string // the lock file's name, "" without one
	berry   bool   // yarn 2 and later
	source  string
}

// corepack is the form of package.json's packageManager: name, exact version, and an
// optional hash that corepack checks.
var corepack = lazyregexp.New(`^(npm|pnpm|yarn|bun)@\^?([0-9]+(?:\.[0-9A-Za-z.-]+)?)(?:\+[A-Za-z0-9.]+)?$`)

var devEngine = lazyregexp.New(`^(npm|pnpm|yarn|bun)@([0-9xX*^~<>=|. -]{0,60})$`)

// findManager decides between the lock files of dir. packageManager there or above
// names the manager whatever the lock files say.
func (t *tree) findManager(dir string) manager {
	m := manager{name: "npm", dir: dir, source: "detection"}
	for _, at := range upward(dir) {
		pkg := t.manifest(at)
		if pkg == nil {
			continue
		}
		if pkg.manager != "" {
			if f := corepack.FindStringSubmatch(pkg.manager); f != nil {
				m.name, m.version, m.source = f[1], f[2], join(at, "package.json")+" packageManager"
				break
			}
			t.warn(fmt.Sprintf("packageManager %.60q is not of the form name@version and is ignored", pkg.manager))
		}
		if f := devEngine.FindStringSubmatch(pkg.devManager); f != nil {
			m.name, m.version, m.source = f[1], strings.TrimSpace(f[2]), join(at, "package.json")+" devEngines"
			break
		}
	}
	named := m.source != "detection"
	var found []string
	for _, l := range lockFiles {
		name := join(dir, l.file)
		if !t.has(name) {
			continue
		}
		found = append(found, l.file)
		if m.lock == "" && (!named || m.name == l.manager) {
			m.name, m.lock = l.manager, l.file
			if !named {
				m.source = name
			}
		}
	}
	switch {
	case named && m.lock == "" && len(found) > 0:
		t.warn(fmt.Sprintf("package.json asks for %s, but the lock file is %s: dependencies are not pinned", m.name, found[0]))
	case len(found) > 1 && !(len(found) == 2 && strings.HasPrefix(found[0], "bun") && strings.HasPrefix(found[1], "bun")):
		t.warn(fmt.Sprintf(
			"Several lock files (%s): %s is used; delete the others or set packageManager",
			strings.Join(found, ", "),
			m.lock,
		))
	case len(found) == 0 && !named && t.has(join(dir, "pnpm-workspace.yaml")):
		m.name, m.source = "pnpm", join(dir, "pnpm-workspace.yaml")
	case len(found) == 0 && !named && t.has(join(dir, ".yarnrc.yml")):
		m.name, m.source = "yarn", join(dir, ".yarnrc.yml")
	}
	if m.lock == "" {
		t.warn("No lock file: each build installs the newest versions that package.json allows")
	}
	t.managerVersion(&m)
	return m
}

var (
	yarnRelease = lazyregexp.New(`releases/yarn-([0-9]+\.[0-9]+\.[0-9]+(?:-[0-9A-Za-z.]+)?)\.c?js$`)
	berryMeta   = lazyregexp.New(`(?m)^__metadata:\s*\n\s+version:\s*"?(\d+)`)
	pnpmLock    = lazyregexp.New(`(?m)^lockfileVersion:\s*['"]?(\d+)(?:\.(\d+))?`)
)

// managerVersion fills in a version that packageManager did not give: volta and
// engines say it, or else the format of the lock file does.
func (t *tree) managerVersion(m *manager) {
	for _, at := range upward(m.dir) {
		pkg := t.manifest(at)
		if pkg == nil || m.version != "" {
			continue
		}
		for _, v := range []string{pkg.volta[m.name], pkg.engines[m.name]} {
			if v, ok := nodeVersion(v); ok && m.version == "" && v[0] != 'l' {
				m.version = v
			}
		}
	}
	switch m.name {
	case "yarn":
		rc := t.read(join(m.dir, ".yarnrc.yml"))
		lock := berryMeta.FindStringSubmatch(t.head(join(m.dir, "yarn.lock")))
		if f := yarnRelease.FindStringSubmatch(yamlScalar(rc, "yarnPath")); f != nil && m.version == "" {
			m.version = f[1]
		}
		if m.version == "" && lock != nil {
			switch n, _ := strconv.Atoi(lock[1]); {
			case n <= 4:
				m.version = "^2"
			case n <= 7:
				m.version = "^3"
			default:
				m.version = "^4"
			}
		}
		m.berry = lock != nil || rc != "" || major(m.version) >= 2
		if m.version == "" {
			m.version = "^1"
			if m.berry {
				m.version = "^4"
			}
		}
	case "pnpm":
		f := pnpmLock.FindStringSubmatch(t.head(join(m.dir, "pnpm-lock.yaml")))
		if f == nil || m.version != "" {
			return
		}
		switch f[1] {
		case "5":
			m.version = "^6"
			if f[2] == "4" {
				m.version = "^7"
			}
		case "6":
			m.version = "^8"
		case "9":
			m.version = "^9 || ^10"
		}
	}
}

// install is the command that installs every dependency, the development ones too
// whatever NODE_ENV says, and refuses to change an existing lock file.
func (m manager) install() []Command {
	var argv []string
	switch frozen := m.lock != ""; m.name {
	case "pnpm":
		argv = []string{"pnpm", "install", "--prod=false", "--no-frozen-lockfile"}
		if frozen {
			argv[3] = "--frozen-lockfile"
		}
	case "yarn":
		switch {
		case m.berry && frozen:
			argv = []string{"yarn", "install", "--immutable"}
		case m.berry:
			argv = []string{"yarn", "install", "--no-immutable"}
		default:
			argv = []string{"yarn", "install", "--non-interactive", "--production=false"}
			if frozen {
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
	return []Command{{Argv: argv, Dir: m.dir}}
}

// run is the command for a script of package.json.
func (m manager) run(dir, script string) Command {
	return Command{Argv: []string{m.name, "run", script}, Dir: dir}
}

// exec is the command for a program among the dependencies. It never downloads one.
func (m manager) exec(dir string, argv ...string) Command {
	var head []string
	switch m.name {
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

// stores are the caches of downloaded packages; none of them holds built code.
func (m manager) stores() []string {
	switch {
	case m.name == "pnpm":
		return []string{"~/.local/share/pnpm/store", "~/.cache/pnpm"}
	case m.name == "yarn" && m.berry:
		return []string{"~/.yarn/berry/cache"}
	case m.name == "yarn":
		return []string{"~/.cache/yarn"}
	case m.name == "bun":
		return []string{"~/.bun/install/cache"}
	}
	return []string{"~/.npm"}
}
