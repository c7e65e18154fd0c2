package build

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"slipway/internal/build/framework"
	"slipway/internal/build/toolchain"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/lazyregexp"
	"slipway/internal/platform/sandbox"
)

// bring gets the tools that the plan requires.
func (b *build) bring(ctx context.Context) error {
	if err := b.chooseRoot(ctx); err != nil {
		return err
	}
	if err := b.bringNode(ctx); err != nil {
		return err
	}
	if err := b.moreTools(ctx, managers(b.texts(ctx))); err != nil {
		return err
	}
	b.tools.Binds = append(b.tools.Binds, b.root.Binds()...)
	return b.php()
}

// bringNode gets Node.js and the package manager. If the project names no version of Node.js, it gets the one that its
// packages needed in the last build.
func (b *build) bringNode(ctx context.Context) (err error) {
	if b.line == "" && !b.ClearCache {
		b.line = b.cache.node()
	}
	say := func(format string, args ...any) { b.printf("info", format, args...) }
	want := toolchain.Want{Manager: b.Plan.Manager, ManagerVersion: b.Plan.ManagerVersion, Apart: b.root != nil}
	if b.node() == "" {
		b.line, err = b.unnamed(ctx, want, say)
	}
	if want.Node = b.node(); err == nil {
		b.tools, err = b.c.Toolchain.Ready(ctx, want, say)
	}
	if b.Plan.Node == "" && b.c.Node != "" && !want.Apart && unavailable(err) {
		b.printf("warn", "The usual Node.js can't be downloaded now, so this build has the server's: %s", fault.As(err).Message)
		b.line, want.Node, b.makeshift = "", "", true
		b.tools, err = b.c.Toolchain.Ready(ctx, want, say)
	}
	if err != nil {
		return fmt.Errorf("prepare tools: %w", err)
	}
	if b.tools.Node != "" {
		b.printf("info", "%s", b.tools.About())
	}
	return nil
}

// unnamed returns the version of Node.js for a project that names none, or "" for the server's own. A site whose live
// deployment has the server's keeps it.
func (b *build) unnamed(ctx context.Context, want toolchain.Want, say func(string, ...any)) (string, error) {
	if b.c.Node == "" || want.Manager == "" && b.Plan.Runtime != framework.Node {
		return b.c.Toolchain.LineFor(ctx, want, say)
	}
	if b.ServerNode && !b.ClearCache {
		say("This site was built with the server's Node.js before and keeps it. To change that, name a version in engines of package.json")
		return b.c.Toolchain.LineFor(ctx, want, say)
	}
	if b.c.Node != "lts" {
		return b.c.Node, nil
	}
	return b.c.Toolchain.LTS(ctx, say)
}

// unavailable reports whether a download failed that may succeed another time.
func unavailable(err error) bool {
	f := fault.As(err)
	return f != nil && f.Kind == fault.Unavailable
}

// node returns the version of Node.js that the build requires.
func (b *build) node() string { return cmp.Or(b.Plan.Node, b.line) }

// giveBack releases the tools.
func (b *build) giveBack() {
	for _, t := range append(b.extra, b.tools) {
		t.Release()
	}
	b.root.Release()
	b.root = nil
}

// suitNode installs the dependencies again with another version of Node.js if the project names none and its direct
// dependencies don't support the one in use. before is the result of the installation.
func (b *build) suitNode(ctx context.Context, network sandbox.Network, before error) error {
	if b.Plan.Node != "" || b.tools.Node == "" || before != nil && fault.As(before) == nil {
		return before
	}
	needs := b.needs(before != nil)
	ranges := slices.Sorted(maps.Values(needs))
	line, err := b.c.Toolchain.Line(ctx, b.tools.Node, ranges, func(format string, args ...any) { b.printf("info", format, args...) })
	if err != nil {
		b.printf("warn", "Some packages don't support Node %s, and the list of its versions can't be had: %s", b.tools.Node, err)
		return before
	}
	if line == "" {
		return before
	}
	name := ""
	for _, n := range slices.Sorted(maps.Keys(needs)) {
		if !toolchain.Fits(needs[n], b.tools.Node) {
			name = n
			break
		}
	}
	b.printf("info",
		"%s needs Node %s, this server has %s, and the project names no version: it gets Node %s. Name one in engines of package.json",
		name, needs[name], b.tools.Node, line)
	b.giveBack()
	b.line, b.tools, b.extra = line, toolchain.Tools{}, nil
	if err := b.bring(ctx); err != nil {
		return err
	}
	root, err := b.checkout()
	if err != nil {
		return fmt.Errorf("open checkout: %w", err)
	}
	defer root.Close()
	for _, dir := range b.Plan.Modules { // native packages were compiled for the other version
		if err := root.RemoveAll(dir); err != nil {
			return fmt.Errorf("clear dependencies: %w", err)
		}
	}
	return b.run(ctx, network, "install", b.Plan.Install, nil, "")
}

// asksNode matches messages in which package managers name the version of Node.js that a refused package requires.
var asksNode = lazyregexp.New(`(?:Expected version:? "?|[Rr]equired: \{"node":"|wanted: \{"node":")([^"}]{1,100})`)

// needs returns the Node.js versions that the project's direct dependencies require, by package name. After a failed
// installation it reads them from the output.
func (b *build) needs(failed bool) map[string]string {
	list := map[string]string{}
	if failed {
		for _, line := range b.log.Excerpt(40) {
			if m := asksNode.FindStringSubmatch(line); m != nil {
				list["A package"] = strings.TrimSpace(m[1])
			}
		}
		return list
	}
	root, err := b.checkout()
	if err != nil {
		return nil
	}
	defer root.Close()
	p := pruning{root: root}
	for _, dir := range slices.Compact([]string{path.Clean(b.Plan.Root), "."}) {
		d, _ := p.manifest(dir)
		for _, more := range []map[string]json.RawMessage{d.Dependencies, d.Development} {
			for name := range more {
				if !packageName.MatchString(name) || p.over() {
					continue
				}
				if _, real := p.resolve(dir, name); real != "" {
					if node := p.engine(real); node != "" {
						list[name] = node
					}
				}
			}
		}
		p.removed(dir, list)
	}
	return list
}

// removals lists packages that use what a later Node.js has removed, though their engines don't say so. text shows it in file.
var removals = []struct{ name, file, text, node string }{
	{"buffer-equal-constant-time", "index.js", "SlowBuffer.prototype", "<25"}, // below jsonwebtoken
}

// removed adds the versions that the packages of removals in a folder's node_modules need.
func (p *pruning) removed(dir string, list map[string]string) {
	for _, r := range removals {
		at := []string{path.Join(dir, "node_modules", r.name, r.file)}
		store := path.Join(dir, "node_modules/.pnpm")
		var all []fs.DirEntry
		if d, err := p.root.OpenFile(store, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, 0); err == nil { // of pnpm
			all, _ = d.ReadDir(20_000)
			_ = d.Close()
		}
		for _, e := range all {
			if strings.HasPrefix(e.Name(), r.name+"@") {
				at = append(at, path.Join(store, e.Name(), "node_modules", r.name, r.file))
			}
		}
		for _, name := range at {
			f, err := openRegular(p.root, name)
			if err != nil {
				continue
			}
			text, _ := io.ReadAll(io.LimitReader(f, 64<<10)) // what can't be read shows nothing
			_ = f.Close()
			if strings.Contains(string(text), r.text) {
				list[r.name] = r.node
			}
		}
	}
}

// engine returns the Node.js version that the package in a folder requires.
func (p *pruning) engine(dir string) string {
	f, err := openRegular(p.root, path.Join(dir, "package.json"))
	if err != nil {
		return ""
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxPackageJSON+1))
	p.bytes += len(text)
	var m struct {
		Engines json.RawMessage `json:"engines"`
	}
	var engines struct {
		Node string `json:"node"`
	}
	if err != nil || len(text) > maxPackageJSON || json.Unmarshal(text, &m) != nil || json.Unmarshal(m.Engines, &engines) != nil {
		return ""
	}
	return engines.Node
}

var (
	nodeLine    = lazyregexp.New(`^[0-9]{1,3}$`)
	nodeVersion = lazyregexp.New(`^[0-9]{1,3}(?:\.[0-9]{1,5}){0,2}$`)
)

// node returns the Node.js version that the packages of the last build needed; "" if the server's was suitable.
func (c cache) node() string {
	text, err := os.ReadFile(c.path("node"))
	if err != nil || !nodeLine.MatchString(string(text)) {
		return ""
	}
	return string(text)
}

// keepNode stores the Node.js version that a build determined.
func (c cache) keepNode(line string) error {
	if !nodeLine.MatchString(line) {
		if err := os.Remove(c.path("node")); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	// unsynced: the next build finds it out again
	return os.WriteFile(c.path("node"), []byte(line), 0o600)
}
