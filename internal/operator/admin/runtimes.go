package admin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"text/tabwriter"
	"time"

	"slipway/internal/build/root"
	"slipway/internal/operator/installation"
	"slipway/internal/platform/sandbox"
	"slipway/internal/platform/text"
)

// runtimes returns the roots of this node, which its service may use meanwhile.
func runtimes(s installation.Store, mirror string) (*root.Roots, error) {
	if err := s.Find(); err != nil {
		return nil, err
	}
	if err := root.CheckMirror(mirror); err != nil {
		return nil, fmt.Errorf("--debian-mirror: %w", err)
	}
	log := slog.New(slog.DiscardHandler)
	box, err := sandbox.New(sandbox.Config{Dir: s.Path("builds", "sandbox"), Log: log})
	if err != nil {
		return nil, err
	}
	return root.New(root.Config{Dir: s.Path("builds", "roots"), Sandbox: box, UID: installation.ToolUID, Mirror: mirror, Log: log})
}

// ListRuntimes prints the tools that can be installed on this node, and those that are.
func ListRuntimes(s installation.Store, out io.Writer) error {
	r, err := runtimes(s, "")
	if err != nil {
		return err
	}
	defer r.Close()
	all, err := r.List()
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NAME\tTOOLS\tFROM\tUPDATES UNTIL\tINSTALLED\tSIZE\tLAST USED")
	for _, k := range root.Catalogue {
		there := false
		for _, x := range all {
			if x.Name == k.Name {
				there = true
				row(w, x)
			}
		}
		if !there {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\tno\t-\t-\n", k.Name, k.Title, k.Debian, k.Until)
		}
	}
	for _, x := range all {
		if _, known := root.Named(x.Name); !known { // of another version of Slipway
			row(w, x)
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if why := r.Why(); why != "" {
		fmt.Fprintln(out, why)
	}
	return nil
}

func row(w io.Writer, x root.Root) {
	used, made := "never", x.Made.Format(time.DateOnly)
	if !x.Used.IsZero() {
		used = x.Used.UTC().Format(time.DateOnly)
	}
	if x.Stale {
		made += " (replaced)"
	}
	fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", x.Name, x.Title, x.Debian, x.Until, made, text.Size(x.Size), used)
}

// InstallRuntimes installs tools by name, or the newest packages of those that are there.
func InstallRuntimes(ctx context.Context, s installation.Store, names []string, mirror string, out io.Writer) error {
	var kinds []root.Kind
	for _, name := range names {
		k, ok := root.Named(name)
		if !ok {
			return fmt.Errorf("%q is not a runtime: choose from %s", name, root.Names())
		}
		kinds = append(kinds, k)
	}
	r, err := runtimes(s, mirror)
	if err != nil {
		return err
	}
	defer r.Close()
	for _, k := range kinds {
		if err := r.Install(ctx, k, func(format string, args ...any) { fmt.Fprintf(out, format+"\n", args...) }); err != nil {
			return err
		}
		fmt.Fprintf(out, "%s is installed\n", k.Title)
	}
	return nil
}

// UpdateRuntimes installs the newest packages of all tools that are there.
func UpdateRuntimes(ctx context.Context, s installation.Store, mirror string, out io.Writer) error {
	r, err := runtimes(s, mirror)
	if err != nil {
		return err
	}
	all, err := r.List()
	r.Close()
	if err != nil {
		return err
	}
	var names []string
	for _, x := range all {
		if _, known := root.Named(x.Name); known && !x.Stale {
			names = append(names, x.Name)
		}
	}
	if len(names) == 0 {
		fmt.Fprintln(out, "No runtime is installed")
	}
	return InstallRuntimes(ctx, s, names, mirror, out)
}

// RemoveRuntime removes a tool that nothing uses. The next site that needs it installs it again.
func RemoveRuntime(ctx context.Context, s installation.Store, name string, out io.Writer) error {
	r, err := runtimes(s, "")
	if err != nil {
		return err
	}
	defer r.Close()
	all, err := r.List()
	if err != nil {
		return err
	}
	var used []string
	found := false
	for _, x := range all {
		if x.Name != name {
			continue
		}
		found = true
		gone, err := r.Remove(ctx, x.ID)
		if err != nil {
			return err
		}
		if !gone {
			used = append(used, x.ID)
		}
	}
	switch {
	case !found:
		return fmt.Errorf("the runtime %q is not installed: see slipway runtimes list", name)
	case len(used) > 0:
		return errors.New(strings.Join(used, ", ") + " is in use by a build or program: stop the sites that use it, and try again")
	}
	fmt.Fprintf(out, "%s is removed\n", name)
	return nil
}
