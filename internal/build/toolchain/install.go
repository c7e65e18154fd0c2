package toolchain

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	"slipway/internal/platform/disk"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/sandbox"
)

// kept is where a finished tool lives, and inside where a sandbox sees it.
func (t *Toolchain) kept(p pack) string { return filepath.Join(t.c.Dir, "kept", p.key()) }

func (t *Toolchain) inside(p pack) string {
	if t.plain() {
		return t.kept(p)
	}
	return "/opt/slipway/" + p.key()
}

// obtain takes the pack, fetching it first where it is missing. with is what it is
// tried with: the Node it is to run on.
func (t *Toolchain) obtain(ctx context.Context, p pack, with Tools, say func(string, ...any)) (l *taken, fetched bool, err error) {
	// More than one turn only if somebody sweeps between our fetching and our taking.
	for range 3 {
		if l, err := t.take(p); l != nil || err != nil {
			return l, fetched, err
		}
		if t.arch == "" && p.bin != "" {
			return nil, false, errArch()
		}
		if !fetched {
			say("%s is downloaded from the npm registry and stored for later builds", p)
		}
		err := t.locks.Once(ctx, p.key(), func(ctx context.Context) error {
			if _, err := os.Lstat(t.kept(p)); err == nil {
				return nil // another process was quicker
			}
			return t.install(ctx, p, with)
		})
		if err != nil {
			return nil, false, err
		}
		fetched = true
	}
	return nil, false, fmt.Errorf("take %s: it is removed as soon as it is installed", p.key())
}

// install fetches p into kept. The caller holds its lock. Nothing has the final name
// before all of it is copied, tried and on disk.
func (t *Toolchain) install(ctx context.Context, p pack, with Tools) error {
	fresh := filepath.Join(t.c.Dir, "new", p.key())
	if err := os.RemoveAll(fresh); err != nil { // of a crash
		return fmt.Errorf("install %s: %w", p, err)
	}
	defer os.RemoveAll(fresh)
	// No --prefix: it would move the global npmrc, too, where the operator's roots and mirror may stand.
	_, err := t.npm(ctx, p.key(), []string{
		"install", "--ignore-scripts", "--no-audit", "--no-fund", "--no-save", "--no-package-lock",
		"--no-bin-links", "--json", p.pkg + "@" + p.version.String(),
	}, func(dir string) error {
		return collect(ctx, filepath.Join(dir, "node_modules"), filepath.Join(fresh, "node_modules"))
	})
	if errors.Is(err, errMissing) {
		if p.noun == "Node" {
			return t.noNode(p.version.String(), version{})
		}
		return noManager(Want{Manager: p.noun, ManagerVersion: p.version.String()})
	}
	if err != nil {
		return fmt.Errorf("install %s: %w", p, err)
	}
	if err := p.link(fresh, t.arch); err != nil {
		return fmt.Errorf("install %s: %w", p, err)
	}
	if err := t.prove(ctx, p, fresh, with); err != nil {
		return err
	}
	if err := disk.RenameTree(fresh, t.kept(p)); err != nil {
		return fmt.Errorf("install %s: %w", p, err)
	}
	t.c.Log.InfoContext(ctx, "tool installed", "tool", p.noun, "version", p.version.String())
	return nil
}

// prove runs the tool, which must say the version that was asked for.
func (t *Toolchain) prove(ctx context.Context, p pack, fresh string, with Tools) error {
	at := t.inside(p)
	if t.plain() {
		at = fresh
	}
	with.Path = append([]string{path.Join(at, "bin")}, with.Path...)
	with.Binds = append([]sandbox.Bind{{Source: fresh, Target: at}}, with.Binds...)
	out, err := t.try(ctx, p.key(), with, []string{path.Join(at, "bin", p.names[0]), "--version"})
	if err == nil {
		if v, ok := parseVersion(out); ok && v.compare(p.version) == 0 {
			return nil
		}
		return fmt.Errorf("try %s: it calls itself %.40q", p, out)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if fault.As(err) != nil {
		return err
	}
	t.c.Log.WarnContext(ctx, "tool does not run", "tool", p.noun, "version", p.version.String(), "err", err)
	if p.noun == "Node" || p.noun == "bun" {
		return fault.New(fault.Unavailable, "toolchain_unavailable", p.String()+" doesn't run on this server",
			"Ask for another version")
	}
	node := with.Node
	if node == "" {
		node = "of the server"
	}
	return fault.New(fault.Invalid, "package_manager_version_invalid", fmt.Sprintf("%s doesn't run on Node %s", p, node),
		"Ask for a newer Node or another version of "+p.noun).Got(p.version.String())
}

// link makes bin/ with the usual names as relative links.
func (p pack) link(dir, arch string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	home := path.Join("node_modules", p.pkg)
	bins := map[string]string{}
	if p.bin != "" {
		for _, name := range p.names {
			bins[name] = p.bin
		}
	} else if bins, err = readBins(root, home, p); err != nil {
		return err
	}
	if p.pkg == "pnpm" {
		if err := nativePNPM(root, home, bins, arch); err != nil {
			return err
		}
	}
	if err := root.Mkdir("bin", 0o755); err != nil {
		return err
	}
	for i, name := range p.names {
		target, ok := bins[name]
		if !ok && i > 0 {
			continue
		}
		target = path.Clean(target)
		if !ok || !filepath.IsLocal(target) {
			return fmt.Errorf("the package has no program %s", name)
		}
		target = path.Join(home, target)
		if st, err := root.Lstat(target); err != nil || !st.Mode().IsRegular() {
			return fmt.Errorf("the program %s is not a file of the package", name)
		}
		if err := root.Chmod(target, 0o755); err != nil {
			return err
		}
		if err := root.Symlink("../"+target, "bin/"+name); err != nil {
			return err
		}
	}
	return nil
}

// readBins reads bin of package.json: a map, or one path for the package's own name.
func readBins(root *os.Root, home string, p pack) (map[string]string, error) {
	st, err := root.Lstat(path.Join(home, "package.json"))
	if err != nil || !st.Mode().IsRegular() || st.Size() > 1<<20 {
		return nil, errors.New("the package has no package.json")
	}
	text, err := root.ReadFile(path.Join(home, "package.json"))
	if err != nil {
		return nil, err
	}
	var m manifest
	if err := json.Unmarshal(text, &m); err != nil {
		return nil, fmt.Errorf("read package.json: %w", err)
	}
	bins := map[string]string{}
	var one string
	if json.Unmarshal(m.Bin, &one) == nil {
		bins[p.names[0]] = one
	} else if err := json.Unmarshal(m.Bin, &bins); err != nil {
		return nil, fmt.Errorf("read package.json: %w", err)
	}
	return bins, nil
}

// nativePNPM does what the install script of pnpm 12 and later would have done, had we
// let it run: the program in the package of this platform takes the place of the
// wrappers, which the kernel cannot start. It finds what it ships with beside itself.
func nativePNPM(root *os.Root, home string, bins map[string]string, arch string) error {
	native := "node_modules/@pnpm/exe.linux-" + arch + "/pnpm"
	if st, err := root.Lstat(native); err != nil || !st.Mode().IsRegular() {
		return nil // 11 and earlier are JavaScript
	}
	for _, target := range bins {
		if target = path.Clean(target); !filepath.IsLocal(target) || strings.HasSuffix(target, "/") {
			return errors.New("a program of pnpm lies outside its package")
		}
		target = path.Join(home, target)
		if err := root.Remove(target); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		if err := root.Link(native, target); err != nil {
			return err
		}
	}
	return nil
}
