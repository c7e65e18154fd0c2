package toolchain

import (
	"context"
	"strconv"
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
