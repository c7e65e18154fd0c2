package deploy

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"slipway/internal/blob"
	"slipway/internal/build"
	"slipway/internal/bundle"
	"slipway/internal/db"
	"slipway/internal/fault"
	"slipway/internal/framework"
	"slipway/internal/release"
	"slipway/internal/site"
	"slipway/internal/source"
)

// WordPress is how sites of that type come to run. Both functions may be called again for
// the same site.
type WordPress struct {
	// Prepare returns what the site runs from, with its database made.
	Prepare func(ctx context.Context, s site.Site, say func(format string, args ...any)) (bundle.ID, error)
	// Install installs it in the deployment's program, which runs, where it isn't yet, with one
	// of the repository's themes.
	Install func(ctx context.Context, s site.Site, deployment string, themes []string, say func(format string, args ...any)) error
}

// runWordPress brings a WordPress site to life, or onto the core that new sites get: its
// program starts beside the one that serves, and the installation runs in it before any
// visitor reaches it. A repository is the site's wp-content.
func (d *Deployments) runWordPress(ctx context.Context, s site.Site, x *Deployment, p *progress) error {
	if d.c.WordPress.Prepare == nil || d.c.StartProgram == nil {
		return &fault.Error{Kind: fault.Unavailable, Message: "WordPress can't run on this server", Details: cmp.Or(d.c.WhyNot, "this node doesn't have the worker role")}
	}
	if x.Target == Preview { // it would write to the database that visitors see
		return &fault.Error{Kind: fault.Invalid, Message: "A WordPress site has no previews", Details: "clone the site to try a branch on a copy of its database", Code: "no_wordpress_previews"}
	}
	byDefault := x.Branch == ""
	plan := framework.Plan{Framework: framework.WordPress, Name: "WordPress", Runtime: framework.WordPress, Why: "the site is of this type", Start: &framework.Start{}}
	var tree *source.Tree
	var err error
	if s.Repository != "" {
		p.enter("fetch", Building)
		if tree, err = d.fetch(ctx, s, x, p); err != nil {
			return err
		}
		defer tree.Close()
		warnUnfetched(tree, p)
		if plan, err = d.contentPlan(ctx, s, tree, p); err != nil {
			return err
		}
	}
	say := func(format string, args ...any) { p.Printf("info", format, args...) }
	p.enter("prepare", Building)
	core, err := d.c.WordPress.Prepare(ctx, s, say)
	if err != nil {
		return err
	}
	x.Bundle = core
	var themes []string
	if tree != nil {
		if themes, err = d.content(ctx, s, x, tree, &plan, core, p); err != nil {
			return err
		}
	}
	plan.Runtime, x.Runtime, x.Framework = framework.WordPress, framework.WordPress, plan.Framework
	if x.Plan, err = json.Marshal(plan); err != nil {
		return err
	}
	// On record before it runs, as for every program.
	err = p.commit(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, `UPDATE deployments SET bundle = $2, runtime = $3, plan = $4 WHERE id = $1`, x.ID, x.Bundle, x.Runtime, string(x.Plan))
		return err
	})
	if err != nil {
		return fmt.Errorf("note bundle: %w", err)
	}
	rel, err := d.publish(ctx, s, func(*release.Writer) error { return nil })
	if err != nil {
		return err
	}
	done, err := d.startProgram(ctx, *x, plan, p)
	if err != nil {
		return err
	}
	defer done() // once the site serves it
	p.enter("install", Deploying)
	if err := d.c.WordPress.Install(ctx, s, string(x.ID), themes, say); err != nil {
		for _, line := range d.lastLines(ctx, *x) {
			p.Printf("error", "%s", line)
		}
		return err
	}
	p.enter("activate", Deploying)
	return d.activate(ctx, s, *x, rel, plan, byDefault && tree != nil, p)
}

// contentPlan returns how the repository of a WordPress site becomes its wp-content.
func (d *Deployments) contentPlan(ctx context.Context, s site.Site, tree *source.Tree, p *progress) (framework.Plan, error) {
	files, err := tree.Files(ctx)
	if err != nil {
		return framework.Plan{}, fmt.Errorf("list commit: %w", err)
	}
	plan, err := framework.Content(commit{ctx, tree, files}, framework.Overrides{Root: s.Build.Root, Install: s.Build.Install, Command: s.Build.Command, Node: s.Build.Node})
	if err != nil {
		return framework.Plan{}, fmt.Errorf("detect: %w", err)
	}
	p.Printf("info", "%s: %s", plan.Name, plan.Why)
	for _, w := range plan.Warnings {
		p.Printf("warn", "%s", w)
	}
	return plan, d.readyPHP(ctx, plan, p)
}

// ContentAt is where the folders of a wp-content lie in the bundle of a site with a
// repository, beside the core.
const ContentAt = "content"

// notContent are folders of a wp-content that belong to the site and not to a commit.
var notContent = []string{"uploads", "upgrade", "upgrade-temp-backup", "cache", "database", "languages", "blogs.dir", ".git", ".github", "node_modules"}

// content builds the repository and joins its wp-content to the core. It returns the folders
// that may be themes.
func (d *Deployments) content(ctx context.Context, s site.Site, x *Deployment, tree *source.Tree, plan *framework.Plan, core bundle.ID, p *progress) (themes []string, err error) {
	err = d.build(ctx, s, x, tree, *plan, p, func(ctx context.Context, a build.Artefact) error {
		p.Printf("info", "Storing themes and plugins")
		folder := path.Join(plan.Root, plan.Output)
		root := a.Files
		if folder != "" {
			info, err := a.Files.Stat(folder)
			if err == nil && !info.IsDir() { // opening a pipe would wait for ever
				err = fs.ErrNotExist
			}
			if err != nil {
				return &fault.Error{Kind: fault.Invalid, Message: "There is nothing to publish", Details: "the folder " + folder + " is missing after the build", Code: "output_missing"}
			}
			if root, err = a.Files.OpenRoot(folder); err != nil {
				return fmt.Errorf("open wp-content: %w", err)
			}
			defer root.Close()
		}
		entries, err := fs.ReadDir(root.FS(), ".")
		if err != nil {
			return fmt.Errorf("list wp-content: %w", err)
		}
		plan.Content = nil
		for _, e := range entries {
			switch {
			case e.IsDir() && !strings.HasPrefix(e.Name(), ".") && !slices.Contains(notContent, e.Name()) && contentName(e.Name()):
				plan.Content = append(plan.Content, e.Name())
			case e.IsDir() && (e.Name() == "uploads" || e.Name() == "languages"):
				p.Printf("warn", "Skipped %s: what the site has there stays", e.Name())
			case !e.IsDir() && slices.Contains([]string{"object-cache.php", "advanced-cache.php", "db.php", "sunrise.php", "maintenance.php"}, e.Name()):
				p.Printf("warn", "Skipped %s: drop-ins are not supported", e.Name())
			}
		}
		if len(plan.Content) > maxContent {
			return &fault.Error{Kind: fault.Invalid, Message: "The wp-content has too many folders", Details: fmt.Sprintf("at most %d at its top level", maxContent)}
		}
		stored, err := d.storeContent(ctx, root, plan.Content, func(name string) bool { return a.Skip != nil && a.Skip(path.Join(folder, name)) })
		if err != nil {
			return err
		}
		for _, name := range stored.Left {
			p.Printf("warn", "Skipped %q: it points outside, or is not a file", name)
		}
		// A folder without a file is none in a bundle.
		have := map[string]bool{}
		for f, err := range d.c.Bundles.Files(ctx, stored.ID) {
			if err != nil {
				return err
			}
			top, rest, _ := strings.Cut(f.Path, "/")
			have[top] = true
			if theme, ok := strings.CutSuffix(rest, "/style.css"); ok && top == "themes" && !strings.Contains(theme, "/") {
				themes = append(themes, theme)
			}
		}
		plan.Content = slices.DeleteFunc(plan.Content, func(name string) bool { return !have[name] })
		p.Printf("info", "Stored %d files, %s: %s", stored.Files, size(stored.Bytes), strings.Join(plan.Content, ", "))
		whole, err := d.c.Bundles.Join(ctx, core, stored.ID, ContentAt)
		if err != nil {
			return err
		}
		x.Bundle, x.bundleBytes = whole.ID, stored.Bytes
		x.bundleAdded, err = d.addedByBundle(ctx, s, whole.ID)
		x.bundleAdded = min(x.bundleAdded, stored.Bytes) // the core is nobody's
		return err
	})
	return themes, err
}

// maxContent bounds the folders of a wp-content, each of which is a mount.
const maxContent = 50

// contentName reports whether a folder's name may be one of a wp-content.
func contentName(name string) bool {
	return len(name) <= 100 && strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.") == ""
}

func (d *Deployments) storeContent(ctx context.Context, root *os.Root, folders []string, skip func(string) bool) (bundle.Stored, error) {
	for try := 1; ; try++ {
		stored, err := d.c.Bundles.Store(ctx, root, func(name string) bool {
			top, _, _ := strings.Cut(name, "/")
			return !slices.Contains(folders, top) || skip(name)
		})
		if !errors.Is(err, blob.ErrSwept) || try == 3 {
			return stored, err
		}
	}
}
