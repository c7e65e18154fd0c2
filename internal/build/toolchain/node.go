package toolchain

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"slipway/internal/platform/fault"
)

// codenames are the long-term support lines as .nvmrc may name them.
var codenames = map[string]int64{
	"argon": 4, "boron": 6, "carbon": 8, "dubnium": 10, "erbium": 12,
	"fermium": 14, "gallium": 16, "hydrogen": 18, "iron": 20, "jod": 22, "krypton": 24,
}

// nodeWant is a readable wish for a Node.
type nodeWant struct {
	newest bool
	lts    int // n-th newest long-term support line; 0 is "not asked for"
	set    versions
	exact  bool // set is the one version
	only   version
}

func parseNode(s string) (nodeWant, bool) {
	s = strings.TrimSpace(s)
	switch lower := strings.ToLower(s); lower {
	case "node", "latest", "current", "stable":
		return nodeWant{newest: true}, true
	case "lts", "lts/*", "lts/latest":
		return nodeWant{lts: 1}, true
	default:
		name, named := strings.CutPrefix(lower, "lts/")
		if back, ok := strings.CutPrefix(name, "-"); named && ok && digits(back) && len(back) < 3 {
			n, _ := strconv.Atoi(back)
			return nodeWant{lts: n + 1}, true
		}
		if major, ok := codenames[name]; ok {
			set, _ := parseRange(strconv.FormatInt(major, 10))
			return nodeWant{set: set}, true
		}
	}
	if v, ok := parseVersion(s); ok {
		set, _ := parseRange(v.String())
		return nodeWant{set: set, exact: true, only: v}, true
	}
	set, ok := parseRange(s)
	return nodeWant{set: set}, ok && s != ""
}

// CheckNode returns an error unless a text is empty or a wish for a Node.
func CheckNode(text string) error {
	if _, ok := parseNode(text); text != "" && !ok {
		return errors.New(`give "lts", "host", or a version such as 24`)
	}
	return nil
}

// ltsFrom is when a line of Node is called long-term supported: in the October of the
// year of its release. Even lines until 26, every line from 27 on.
func ltsFrom(major int64) time.Time {
	year := 2013 + major/2
	if major >= 27 {
		year = 2000 + major
	}
	return time.Date(int(year), time.October, 28, 0, 0, 0, 0, time.UTC)
}

func isLTS(major int64, now time.Time) bool {
	return major >= 4 && (major%2 == 0 || major >= 27) && major < 1000 && !now.Before(ltsFrom(major))
}

// ltsLine is the n-th newest long-term support line, counted from 1.
func ltsLine(n int, now time.Time) (major int64, ok bool) {
	for m := int64(now.Year() - 1987); m >= 4; m-- { // 2000 and 13 more: above every line there is
		if isLTS(m, now) {
			if n--; n == 0 {
				return m, true
			}
		}
	}
	return 0, false
}

// chooseNode decides which Node a build gets. own means that it is not the host's.
func (t *Toolchain) chooseNode(ctx context.Context, w Want, h host, say func(string, ...any)) (v version, own bool, err error) {
	text := w.Node
	if strings.TrimSpace(text) == "" {
		return h.node, false, nil
	}
	want, ok := parseNode(text)
	if !ok {
		return v, false, fault.New(fault.Invalid, "node_version_invalid", fmt.Sprintf("%q is not a version of Node", short(text)),
			`Write a version (22.11.0), a range (>=20 <23, 22.x), "lts/*" or "latest"`).Got(short(text))
	}
	if want.lts > 0 {
		line, ok := ltsLine(want.lts, t.now())
		if !ok {
			return v, false, t.noNode(text, version{})
		}
		want.set, _ = parseRange(strconv.FormatInt(line, 10))
	}
	if !want.newest && !w.Apart && want.set.has(h.node) {
		return h.node, false, nil
	}
	if want.exact {
		v := t.published(ctx, want.only, say)
		return v, w.Apart || v.compare(h.node) != 0, nil
	}
	if t.arch == "" {
		return v, false, errArch()
	}
	if want.newest {
		want.set = versions{nil}
	}
	var found, newest release
	err = t.find(ctx, "node-linux-"+t.arch, say, func(c catalogue) bool {
		newest, _ = c.best(versions{nil}, nil)
		// A range like >=20 means "recent enough": the newest long-term line serves it best.
		found, ok = c.best(want.set, func(r release) bool { return !want.newest && isLTS(r.version.major, t.now()) })
		if !ok {
			found, ok = c.best(want.set, nil)
		}
		return ok
	})
	if err != nil && !errors.Is(err, errMissing) {
		return v, false, err
	}
	if p, partly := parsePartial(strings.TrimLeft(strings.TrimSpace(text), "~^")); err == nil && !ok && partly && p.parts == 2 {
		if v = t.published(ctx, p.version, say); v.compare(p.version) != 0 { // 18.12, of which the registry has no release
			return v, w.Apart || v.compare(h.node) != 0, nil
		}
	}
	if err != nil || !ok {
		return v, false, t.noNode(text, newest.version)
	}
	return found.version, w.Apart || found.version.compare(h.node) != 0, nil
}

// published returns a version of Node, or the next newer one of its line where the registry, which lacks some, doesn't have it.
func (t *Toolchain) published(ctx context.Context, v version, say func(string, ...any)) version {
	if _, err := os.Lstat(t.kept(t.nodePack(v))); err == nil || t.arch == "" || len(v.pre) > 0 {
		return v
	}
	line := versions{{{">=", v}, {"<", partial{version: v}.next(1)}}}
	var next release
	err := t.find(ctx, "node-linux-"+t.arch, say, func(c catalogue) (ok bool) {
		for _, r := range c.Releases { // newest first
			if line.has(r.version) {
				next, ok = r, true
			}
		}
		return ok
	})
	if err != nil || next.version.major == 0 || next.version.compare(v) == 0 {
		return v // asking for it says why it can't be had
	}
	say("Node %s is not in the npm registry: %s stands in for it", v, next.version)
	return next.version
}

func (t *Toolchain) noNode(text string, newest version) error {
	f := fault.New(fault.Invalid, "node_version_unknown", fmt.Sprintf("Node %s doesn't exist in the npm registry", short(text)),
		"Ask for another version in package.json (engines), .nvmrc, .node-version or the site's settings").Got(short(text))
	if newest.major > 0 {
		f.Details = "The newest is " + newest.String() + ". " + f.Details
	}
	return f
}

func errArch() error {
	return fault.New(fault.Unavailable, "toolchain_unavailable", "No prebuilt tools for this server's CPU architecture",
		"Ask for the version of Node that the server has")
}

// short makes a stranger's text fit for a sentence.
func short(s string) string {
	s = strings.ToValidUTF8(strings.TrimSpace(s), "?")
	if r := []rune(s); len(r) > 60 {
		s = string(r[:60]) + "…"
	}
	return s
}
