package toolchain

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"slipway/internal/platform/fault"
)

// pack is one thing to fetch: a package of the registry at one version.
type pack struct {
	noun    string   // for people: "Node", "pnpm"
	pkg     string   // name in the registry
	version version  // exact
	names   []string // programs, the first of which must be there
	bin     string   // where the first is in the package; "" asks its package.json
}

// key names the pack in our directories. It is made of our own words and a version.
func (p pack) key() string { return file(p.pkg) + "-" + p.version.String() }

// file turns a package's name into a file's.
func file(pkg string) string {
	return strings.ReplaceAll(strings.TrimPrefix(pkg, "@"), "/", "-")
}

func (p pack) String() string { return p.noun + " " + p.version.String() }

func (t *Toolchain) nodePack(v version) pack {
	return pack{noun: "Node", pkg: "node-linux-" + t.arch, version: v, names: []string{"node"}, bin: "bin/node"}
}

func (t *Toolchain) managerPack(name string, berry bool) pack {
	switch name {
	case "npm":
		return pack{noun: name, pkg: name, names: []string{"npm", "npx"}}
	case "pnpm":
		return pack{noun: name, pkg: name, names: []string{"pnpm", "pnpx", "pn", "pnx"}}
	case "yarn":
		p := pack{noun: name, pkg: "yarn", names: []string{"yarn", "yarnpkg"}}
		if berry {
			p.pkg = "@yarnpkg/cli-dist"
		}
		return p
	}
	p := pack{
		noun:  "bun",
		pkg:   "@oven/bun-linux-" + map[string]string{"x64": "x64", "arm64": "aarch64"}[t.arch],
		names: []string{"bun", "bunx"},
		bin:   "bin/bun",
	}
	if t.arch == "x64" && !t.avx2 {
		p.pkg += "-baseline"
	}
	return p
}

// env keeps a manager from replacing itself by another version, which the sandbox's
// network or the missing corepack would turn into a failure.
func (p pack) env() []string {
	env := []string{"COREPACK_ENABLE_STRICT=0", "COREPACK_ENABLE_AUTO_PIN=0", "COREPACK_ENABLE_DOWNLOAD_PROMPT=0"}
	switch p.pkg {
	case "pnpm":
		env = append(
			env,
			"npm_config_manage_package_manager_versions=false",
			"pnpm_config_manage_package_manager_versions=false",
			"pnpm_config_pm_on_fail=ignore",
		)
	case "yarn":
		env = append(env, "SKIP_YARN_COREPACK_CHECK=1")
	case "@yarnpkg/cli-dist":
		env = append(env, "YARN_ENABLE_TELEMETRY=0")
	case "npm":
		env = append(env, "npm_config_update_notifier=false")
	}
	return env
}

var (
	// lastClassic stands for yarn 1 when a range is asked which yarn it means.
	lastClassic = version{major: 1, minor: 22, patch: 22}
	// firstBerry is where @yarnpkg/cli-dist begins; older ones were never in a registry.
	firstBerry = version{major: 2, minor: 4, patch: 1}
)

// chooseManager decides which version of a manager a build gets. own means that it is
// not the host's; only npm can be.
func (t *Toolchain) chooseManager(
	ctx context.Context,
	w Want,
	node version,
	h host,
	say func(string, ...any),
) (p pack, own bool, err error) {
	switch w.Manager {
	case "npm", "pnpm", "yarn", "bun":
	default:
		return p, false, fault.New(fault.Invalid, "package_manager_unknown",
			fmt.Sprintf("%q is not a package manager that builds can use", short(w.Manager)),
			"npm, pnpm, yarn or bun").Got(short(w.Manager))
	}
	set, ok := parseRange(w.ManagerVersion)
	if !ok {
		return p, false, fault.New(fault.Invalid, "package_manager_version_invalid",
			fmt.Sprintf("%q is not a version of %s", short(w.ManagerVersion), w.Manager),
			"Write a version or a range in packageManager or engines of package.json").Got(short(w.ManagerVersion))
	}
	exact, isExact := parseVersion(w.ManagerVersion)
	if w.Manager == "npm" && !w.Apart && set.has(h.npm) && h.npmRunsOn(node) {
		p = t.managerPack("npm", false)
		p.version = h.npm
		return p, false, nil
	}
	if w.Manager == "bun" && t.arch == "" {
		return p, false, errArch()
	}
	berry := w.Manager == "yarn" && !meansClassic(set)
	p = t.managerPack(w.Manager, berry)
	if berry && isExact && exact.compare(firstBerry) < 0 {
		say("yarn %s is not in the npm registry: the newest 2.x stands in for it", exact)
		set, _ = parseRange("^" + firstBerry.String())
		isExact = false
	}
	if isExact {
		p.version = exact
		return p, true, nil
	}
	if w.Manager == "yarn" && !berry {
		set = both(set, "<2") // the package yarn has strays of the second version
	}
	var found release
	var fits bool
	err = t.find(ctx, p.pkg, say, func(c catalogue) bool {
		if found, fits = c.best(set, func(r release) bool { return r.node.has(node) }); fits {
			return true
		}
		found, ok = c.best(set, nil)
		return ok
	})
	switch {
	case err != nil && !errors.Is(err, errMissing):
		return p, false, err
	case err != nil, !fits && !ok:
		return p, false, noManager(w)
	case !fits && strings.TrimSpace(w.ManagerVersion) == "":
		return p, false, fault.New(fault.Invalid, "node_version_too_old",
			fmt.Sprintf("No version of %s runs on Node %s", w.Manager, node),
			"Ask for a newer Node").Got(node.String())
	case !fits:
		say("%s %s says that it needs Node %s; this build has %s", w.Manager, found.version, short(found.Node), node)
	}
	p.version = found.version
	return p, true, nil
}

// meansClassic reports whether a range of yarn admits its first version, which is
// another package than the later ones.
func meansClassic(set versions) bool {
	if set.has(lastClassic) {
		return true
	}
	for _, alternative := range set {
		for _, c := range alternative {
			if c.major < 2 && len(c.pre) == 0 && set.has(c.version) {
				return true
			}
		}
	}
	return false
}

// both is the part of a set that is also in the range.
func both(set versions, text string) versions {
	more, _ := parseRange(text)
	var out versions
	for _, a := range set {
		for _, b := range more {
			out = append(out, append(a[:len(a):len(a)], b...))
		}
	}
	return out
}

func noManager(w Want) error {
	return fault.New(fault.Invalid, "package_manager_version_unknown",
		fmt.Sprintf("%s %s doesn't exist in the npm registry", w.Manager, short(w.ManagerVersion)),
		"Ask for another version in packageManager or engines of package.json").Got(short(w.ManagerVersion))
}
