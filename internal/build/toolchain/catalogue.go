package toolchain

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"slipway/internal/platform/disk"
)

// catalogue holds what the registry has of one package: the releases, newest first.
type catalogue struct {
	Fetched  time.Time
	Releases []release
}

// release is one version and the range of Nodes that it says it runs on, "" for any.
type release struct {
	Version, Node string

	version version
	node    versions
}

const (
	maxCatalogue = 8 << 20 // bytes of npm's answer
	minAge       = 10 * time.Minute
)

// best is the newest release in want that runs on one of the Nodes that fit.
func (c catalogue) best(want versions, fit func(release) bool) (release, bool) {
	for _, r := range c.Releases {
		if want.has(r.version) && (fit == nil || fit(r)) {
			return r, true
		}
	}
	return release{}, false
}

// find looks in the kept catalogue of pkg for what pick wants. One past Refresh is read
// again, and so is one older than minAge that lacks it: the version may be new. When the
// registry does not answer, what is known must do.
func (t *Toolchain) find(ctx context.Context, pkg string, say func(string, ...any), pick func(catalogue) bool) error {
	c, err := t.readCatalogue(pkg)
	age := t.now().Sub(c.Fetched)
	if err == nil && age >= 0 && age < t.c.Refresh && (pick(c) || age < minAge) {
		return nil
	}
	known := err == nil
	before := c.Fetched
	err = t.locks.Once(ctx, "catalogue-"+file(pkg), func(ctx context.Context) error {
		if c, err := t.readCatalogue(pkg); err == nil && c.Fetched.After(before) {
			return nil // another process was quicker
		}
		return t.fetchCatalogue(ctx, pkg)
	})
	switch {
	case err == nil:
		if c, err = t.readCatalogue(pkg); err != nil {
			return err
		}
	case known && ctx.Err() == nil:
		t.c.Log.WarnContext(ctx, "tool versions not refreshed", "package", pkg, "err", err)
		if !pick(c) {
			return err
		}
		say("The npm registry does not answer: the newest known version of %s is used", pkg)
		return nil
	default:
		return err
	}
	pick(c)
	return nil
}

func (t *Toolchain) cataloguePath(pkg string) string {
	return filepath.Join(t.c.Dir, "catalogue", file(pkg)+".json")
}

func (t *Toolchain) readCatalogue(pkg string) (catalogue, error) {
	text, err := os.ReadFile(t.cataloguePath(pkg))
	if err != nil {
		return catalogue{}, fmt.Errorf("read versions of %s: %w", pkg, err)
	}
	var c catalogue
	if err := json.Unmarshal(text, &c); err != nil {
		return catalogue{}, fmt.Errorf("read versions of %s: %w", pkg, err)
	}
	c.Releases = releases(c.Releases)
	return c, nil
}

// releases keeps those whose version can be read and is a release, and sorts them.
func releases(list []release) []release {
	var all []release
	for _, r := range list {
		v, ok := parseVersion(r.Version)
		if !ok || len(v.pre) > 0 {
			continue
		}
		r.version = v
		if r.node, ok = parseRange(r.Node); !ok {
			r.node = versions{nil} // words that nobody can read forbid nothing
		}
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b release) int { return b.version.compare(a.version) })
	return all
}

func (t *Toolchain) fetchCatalogue(ctx context.Context, pkg string) error {
	// With one field only, npm prints bare strings and may drop the others, hence the name.
	out, err := t.npm(ctx, "catalogue-"+file(pkg), []string{"view", pkg + "@>=0", "name", "version", "engines.node", "--json"}, nil)
	if err != nil {
		return fmt.Errorf("ask for versions of %s: %w", pkg, err)
	}
	c := catalogue{Fetched: t.now()}
	if c.Releases, err = parseView(out); err != nil {
		return fmt.Errorf("ask for versions of %s: %w", pkg, err)
	}
	text, err := json.Marshal(c)
	if err != nil {
		return err
	}
	if err := disk.Write(t.cataloguePath(pkg), text, 0o600); err != nil {
		return fmt.Errorf("keep versions of %s: %w", pkg, err)
	}
	return nil
}

// parseView reads what `npm view --json` prints: an object for one version, a list for
// more, and bare strings where only the version is known.
func parseView(out []byte) ([]release, error) {
	var list []json.RawMessage
	if json.Unmarshal(out, &list) != nil {
		list = []json.RawMessage{out}
	}
	var all []release
	for _, item := range list {
		var r release
		var fields struct {
			Version string `json:"version"`
			Node    any    `json:"engines.node"` // a string, if the publisher was sane
		}
		if json.Unmarshal(item, &r.Version) != nil {
			if err := json.Unmarshal(item, &fields); err != nil {
				return nil, fmt.Errorf("read npm's answer: %w", err)
			}
			r.Version = fields.Version
			r.Node, _ = fields.Node.(string)
		}
		all = append(all, r)
	}
	if all = releases(all); len(all) == 0 {
		return nil, errors.New("read npm's answer: no version in it")
	}
	return all, nil
}
