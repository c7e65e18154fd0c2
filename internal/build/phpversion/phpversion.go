// Package phpversion owns the PHP versions of this host, and selecting a version for a constraint in
// composer.json.
package phpversion

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"slipway/internal/platform/fault"
	"slipway/internal/platform/lazyregexp"
	"slipway/internal/platform/sandbox"
)

// Version is a PHP that is installed on this host or in a root.
type Version struct {
	System string // the root that contains it, see sandbox.Command; empty is the host
	Number string // 8.2.35
	FPM    string // the program that keeps workers
	CLI    string // the program that runs a script; empty where only FPM is installed
	Config string // directory of its configuration, /etc/php/8.2; empty where it has none

	extensions []string // that CLI loads, as composer.json names them; nil is unknown
}

// Lacks returns those extensions, such as gd or pdo_mysql, that the host's PHP doesn't load.
func (v Version) Lacks(extensions []string) (missing []string) {
	for _, name := range extensions {
		if v.extensions != nil && !slices.Contains(v.extensions, name) {
			missing = append(missing, name)
		}
	}
	return missing
}

// Minor returns the version without its last part: 8.2.
func (v Version) Minor() string {
	p := strings.SplitN(v.Number, ".", 3)
	return strings.Join(p[:min(len(p), 2)], ".")
}

// where the programs of the usual distributions and of PHP's own installer are: below /usr,
// which a sandbox shows.
var fpmPlaces = []string{"/usr/sbin/php-fpm*", "/usr/bin/php-fpm*", "/usr/local/sbin/php-fpm*", "/usr/local/bin/php-fpm*"}

var installed struct {
	sync.Mutex
	seen string // the programs that were found when list was made
	list []Version
}

var printed = lazyregexp.New(`^PHP (\d{1,2}\.\d{1,3}\.\d{1,3})`)

// Installed lists the versions of PHP on this host that can answer requests, the newest
// first. Programs are asked for their version once, and again when others are there.
func Installed(ctx context.Context) []Version {
	var found []string
	for _, place := range fpmPlaces {
		list, _ := filepath.Glob(place)
		found = append(found, list...)
	}
	installed.Lock()
	defer installed.Unlock()
	if seen := strings.Join(found, "\x00"); seen != installed.seen {
		installed.list, installed.seen = nil, seen
		for _, fpm := range found {
			if v, ok := ask(ctx, fpm); ok && !slices.ContainsFunc(installed.list, func(o Version) bool { return o.Number == v.Number }) {
				installed.list = append(installed.list, v)
			}
		}
		slices.SortFunc(installed.list, func(a, b Version) int { return compare(parts(b.Number), parts(a.Number)) })
		if ctx.Err() != nil {
			installed.seen = "" // somebody else asks again
		}
	}
	return slices.Clone(installed.list)
}

// ask runs a host's own program, which no tenant can write to, for its version.
func ask(ctx context.Context, fpm string) (Version, bool) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, fpm, "-n", "-v")
	cmd.Env = []string{"PATH=/usr/bin:/bin"}
	out, err := cmd.Output()
	f := printed.FindSubmatch(out)
	if err != nil || f == nil {
		return Version{}, false
	}
	v := Version{Number: string(f[1]), FPM: fpm}
	for _, name := range []string{"/usr/bin/php" + v.Minor(), "/usr/local/bin/php" + v.Minor(), "/usr/bin/php", "/usr/local/bin/php"} {
		if isFile(name) {
			v.CLI = name
			break
		}
	}
	if dir := "/etc/php/" + v.Minor(); isDir(dir) {
		v.Config = dir
	}
	if v.CLI != "" {
		cmd := exec.CommandContext(ctx, v.CLI, "-m")
		cmd.Env = []string{"PATH=/usr/bin:/bin"}
		if out, err := cmd.Output(); err == nil {
			for line := range strings.Lines(strings.ToLower(string(out))) {
				if name := strings.TrimSpace(line); name != "" && name[0] != '[' {
					v.extensions = append(v.extensions, strings.ReplaceAll(name, " ", "-")) // "Zend OPcache"
				}
			}
		}
	}
	return v, true
}

// Choose returns the newest installed version that a constraint of composer.json allows;
// an empty one allows all. Where there is none the fault names those that are.
func Choose(ctx context.Context, constraint string) (Version, error) {
	return Among(Installed(ctx), constraint)
}

// Among returns the first of some versions that a constraint allows, as Choose does.
func Among(all []Version, constraint string) (Version, error) {
	if len(all) == 0 {
		return Version{}, fault.New(fault.Unavailable, "php_missing", "PHP is not installed on this server",
			"the operator can install it (apt-get install php-fpm php-cli composer)")
	}
	allowed, err := parseConstraint(constraint)
	if err != nil {
		return Version{}, fault.New(fault.Invalid, "php_version",
			fmt.Sprintf("composer.json asks for PHP %.60q, which is not a version constraint", constraint), "")
	}
	var have []string
	for _, v := range all {
		if allowed.has(parts(v.Number)) {
			return v, nil
		}
		have = append(have, v.Number)
	}
	return Version{}, fault.New(fault.Invalid, "php_version", fmt.Sprintf("PHP %s is not installed on this server", constraint),
		"installed: "+strings.Join(have,
			", ")+"; change the requirement in composer.json, or ask the operator to install another version")
}

// HasComposer reports whether Composer is where a sandbox with this PHP finds it.
func (v Version) HasComposer() bool {
	return isFile(v.System+"/usr/bin/composer") || isFile(v.System+"/usr/local/bin/composer")
}

// Binds returns the parts of its system's /etc that a PHP of this version needs in a sandbox: which
// extensions it loads. Pool files of the host may hold secrets and stay outside.
func (v Version) Binds() []sandbox.Bind {
	if v.Config == "" {
		return nil
	}
	var list []sandbox.Bind
	for _, name := range []string{"fpm/conf.d", "cli/conf.d", "mods-available"} {
		if dir := filepath.Join(v.Config, name); isDir(v.System + dir) {
			list = append(list, sandbox.Bind{Source: v.System + dir, Target: dir})
		}
	}
	return list
}

// number is a version's parts: major, minor, patch.
type number [3]int

func parts(s string) (n number) {
	for i, p := range strings.SplitN(s, ".", 3) {
		n[i], _ = strconv.Atoi(p)
	}
	return n
}

func compare(a, b number) int { return slices.Compare(a[:], b[:]) }

// span is a half-open range of versions.
type span struct{ from, to number }

// allowed is a choice of spans.
type allowed []span

var never = number{1 << 30}

func (a allowed) has(n number) bool {
	return slices.ContainsFunc(a, func(s span) bool { return compare(s.from, n) <= 0 && compare(n, s.to) < 0 })
}

var errConstraint = errors.New("not a version constraint")

var (
	either = lazyregexp.New(`\s*\|\|?\s*`)
	hyphen = lazyregexp.New(`^(\S+)\s+-\s+(\S+)$`)
	term   = lazyregexp.New(
		`^(\^|~|>=|<=|>|<|==|=|!=|<>)?\s*v?(\d{1,4})(?:\.(\d{1,4}|[xX*]))?(?:\.(\d{1,6}|[xX*]))?(?:\.(?:\d{1,6}|` +
			`[xX*]))?(?:[-@+.][0-9A-Za-z.+-]*)?$`,
	)
	spaced = lazyregexp.New(`(\^|~|>=|<=|>|<|==|=|!=|<>)\s+`)
)

// parseConstraint reads what Composer allows as a constraint of the platform's PHP.
func parseConstraint(s string) (allowed, error) {
	s = strings.TrimSpace(s)
	if s == "" || s == "*" {
		return allowed{{to: never}}, nil
	}
	if len(s) > 200 {
		return nil, errConstraint
	}
	var all allowed
	for _, part := range either.Split(s, -1) {
		spans, err := conjunction(strings.TrimSpace(part))
		if err != nil {
			return nil, err
		}
		all = append(all, spans...)
	}
	return all, nil
}

func conjunction(s string) (allowed, error) {
	if f := hyphen.FindStringSubmatch(s); f != nil {
		from, err1 := one(">=" + f[1])
		to, err2 := one("<=" + f[2])
		if err := errors.Join(err1, err2); err != nil {
			return nil, err
		}
		if strings.Count(f[2], ".") < 2 { // 8.0 - 8.2 includes 8.2.99
			to, _ = one(f[2] + ".*")
			to[0].from = number{}
		}
		return meet(from, to), nil
	}
	s = spaced.ReplaceAllString(s, "$1")
	now := allowed{{to: never}}
	words := strings.FieldsFunc(s, func(r rune) bool { return r == ' ' || r == ',' || r == '\t' })
	if len(words) == 0 {
		return nil, errConstraint
	}
	for _, w := range words {
		next, err := one(w)
		if err != nil {
			return nil, err
		}
		now = meet(now, next)
	}
	return now, nil
}

// one reads a single comparison.
func one(s string) (allowed, error) {
	if s == "*" {
		return allowed{{to: never}}, nil
	}
	f := term.FindStringSubmatch(s)
	if f == nil {
		return nil, errConstraint
	}
	said := 0 // parts that are numbers
	var v number
	for i, p := range f[2:5] {
		n, err := strconv.Atoi(p)
		if err != nil {
			break
		}
		v[i], said = n, i+1
	}
	wild := said < 3 && strings.ContainsAny(s, "xX*")
	above := v // the first version that the said parts do not cover
	above[said-1]++
	switch f[1] {
	case "^":
		return allowed{{v, number{v[0] + 1}}}, nil
	case "~":
		if said == 3 {
			return allowed{{v, number{v[0], v[1] + 1}}}, nil
		}
		return allowed{{v, number{v[0] + 1}}}, nil
	case ">=":
		return allowed{{v, never}}, nil
	case ">":
		if wild {
			return allowed{{above, never}}, nil
		}
		v[2]++
		return allowed{{v, never}}, nil
	case "<":
		return allowed{{number{}, v}}, nil
	case "<=":
		v[2]++
		return allowed{{number{}, v}}, nil
	case "!=", "<>":
		next := v
		next[2]++
		if wild {
			next = above
		}
		return allowed{{number{}, v}, {next, never}}, nil
	}
	// Composer takes 8.2 for 8.2.0 alone, which nobody who writes it means.
	return allowed{{v, above}}, nil
}

func meet(a, b allowed) (out allowed) {
	for _, x := range a {
		for _, y := range b {
			s := x
			if compare(y.from, s.from) > 0 {
				s.from = y.from
			}
			if compare(y.to, s.to) < 0 {
				s.to = y.to
			}
			if compare(s.from, s.to) < 0 {
				out = append(out, s)
			}
		}
	}
	return out
}

func isFile(name string) bool { st, err := os.Stat(name); return err == nil && st.Mode().IsRegular() }

func isDir(name string) bool { st, err := os.Stat(name); return err == nil && st.IsDir() }
