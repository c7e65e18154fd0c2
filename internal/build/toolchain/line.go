package toolchain

import (
	"context"
	"strconv"
	"time"
)

// Line returns the long-term support line of Node, as "24", on which more of the ranges hold than on the Node named have: the
// newest of those that serve most of them. It returns "" where have serves them as well as any other, or no line is known.
func (t *Toolchain) Line(ctx context.Context, have string, ranges []string, say func(string, ...any)) (string, error) {
	var sets []versions
	for _, r := range ranges {
		if set, ok := parseRange(r); ok {
			sets = append(sets, set)
		}
	}
	serves := func(v version) (n int) {
		for _, set := range sets {
			if set.has(v) {
				n++
			}
		}
		return n
	}
	now, ok := parseVersion(have)
	if !ok || serves(now) == len(sets) || t.arch == "" {
		return "", nil
	}
	best := ""
	err := t.find(ctx, "node-linux-"+t.arch, say, func(c catalogue) bool {
		most, seen := serves(now), map[int64]bool{}
		for _, r := range c.Releases {
			if major := r.version.major; isLTS(major, t.now()) && !seen[major] {
				seen[major] = true
				if n := serves(r.version); n > most {
					most, best = n, strconv.FormatInt(major, 10)
				}
			}
		}
		return best != ""
	})
	return best, err
}

// LineFor returns the line of Node that the package manager of w needs, "" where it runs on the server's or nothing is known.
func (t *Toolchain) LineFor(ctx context.Context, w Want, say func(string, ...any)) (string, error) {
	exact, isExact := parseVersion(w.ManagerVersion)
	if w.Manager == "" || !isExact {
		return "", nil // of a range one is chosen that runs
	}
	h, err := t.lookHost(ctx)
	if err != nil {
		return "", err
	}
	p, engines := t.managerPack(w.Manager, exact.major >= 2), ""
	err = t.find(ctx, p.pkg, say, func(c catalogue) bool {
		r, ok := c.best(versions{{{"=", exact}}}, nil)
		engines = r.Node
		return ok
	})
	if err != nil || engines == "" {
		return "", nil // obtaining it says why it can't be had
	}
	line, err := t.Line(ctx, h.node.String(), []string{engines}, say)
	if line != "" && err == nil {
		say("%s %s needs Node %s, and the project names no version: it gets Node %s", w.Manager, exact, short(engines), line)
	}
	return line, err
}

// LTS returns the newest long-term support line of Node that can be had, as "24".
func (t *Toolchain) LTS(ctx context.Context, say func(string, ...any)) (line string, err error) {
	if t.arch == "" {
		return "", errArch()
	}
	err = t.find(ctx, "node-linux-"+t.arch, say, func(c catalogue) bool {
		r, ok := c.best(versions{nil}, func(r release) bool { return isLTS(r.version.major, t.now()) })
		if ok {
			line = strconv.FormatInt(r.version.major, 10)
		}
		return ok
	})
	if err == nil && line == "" {
		err = t.noNode("lts/*", version{})
	}
	return line, err
}

// Ends returns when the support of a version of Node ends, as 2006-01-02, or "" if that isn't known.
func Ends(node string) string {
	v, ok := parseVersion(node)
	if !ok || v.major%2 != 0 && v.major < 27 {
		return ""
	}
	return time.Date(ltsFrom(v.major).Year()+3, time.April, 30, 0, 0, 0, 0, time.UTC).Format(time.DateOnly)
}

// About says in a log line which Node there is, where it is from, and how long it is maintained.
func (t Tools) About() string {
	from := "from the npm registry"
	if t.host {
		from = "of the server"
	}
	about := "Node " + t.Node + " " + from
	if ends := Ends(t.Node); ends != "" && ends < time.Now().Format(time.DateOnly) {
		return about + ", without security updates since " + ends
	} else if ends != "" {
		return about + ", with security updates until " + ends
	}
	return about
}
