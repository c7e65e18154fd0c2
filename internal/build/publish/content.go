package publish

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"slipway/internal/build/build"
	"slipway/internal/build/bundle"
	"slipway/internal/build/framework"
	"slipway/internal/platform/blob"
	"slipway/internal/platform/fault"
)

// ContentAt is the folder, in the bundle of a WordPress site with a repository, that contains the folders of
// wp-content. The core is beside it.
const ContentAt = "content"

// notContent lists folders of a wp-content that belong to the site rather than to a commit.
var notContent = []string{
	"uploads", "upgrade", "upgrade-temp-backup", "cache", "database", "languages", "blogs.dir", ".git", ".github",
	"node_modules",
}

// Extensions lists the themes and plugins of a repository.
type Extensions struct {
	Themes []string // folders of possible themes
	Plugin string   // folder of the only plugin, if the repository isn't laid out as a wp-content
}

// Content adds a build's wp-content folders to the core, and lists them in the plan. It returns the bundle; its Bytes
// count only wp-content.
func Content(
	ctx context.Context,
	bundles *bundle.Bundles,
	plan *framework.Plan,
	a build.Artefact,
	core bundle.ID,
	say Log,
) (whole bundle.Stored, x Extensions, err error) {
	say("info", "Storing themes and plugins")
	plan.Content = nil
	if len(plan.Parts) > 0 {
		return parts(ctx, bundles, plan, a, core, say)
	}
	folder := path.Join(plan.Root, plan.Output)
	root, err := openFolder(a.Files, folder)
	if err != nil {
		return whole, x, err
	}
	defer root.Close()
	entries, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return whole, x, fmt.Errorf("list wp-content: %w", err)
	}
	for _, e := range entries {
		switch {
		case e.IsDir() && !strings.HasPrefix(e.Name(), ".") && !slices.Contains(notContent, e.Name()) && contentName(e.Name()):
			plan.Content = append(plan.Content, e.Name())
		case e.IsDir() && (e.Name() == "uploads" || e.Name() == "languages"):
			say("warn", "Skipped %s: what the site has there stays", e.Name())
		case !e.IsDir() && slices.Contains([]string{
			"object-cache.php", "advanced-cache.php", "db.php", "sunrise.php", "maintenance.php",
		}, e.Name()):
			say("warn", "Skipped %s: drop-ins are not supported", e.Name())
		}
	}
	if len(plan.Content) > maxContent {
		return whole, x, fault.New(fault.Invalid, "", "The wp-content has too many folders",
			fmt.Sprintf("at most %d at its top level", maxContent))
	}
	stored, err := storeContent(ctx, bundles, root, func(name string) bool {
		top, _, _ := strings.Cut(name, "/")
		return !slices.Contains(plan.Content, top) || a.Skip != nil && a.Skip(path.Join(folder, name))
	}, say)
	if err != nil {
		return whole, x, err
	}
	// A bundle has no empty folders.
	have := map[string]bool{}
	for f, err := range bundles.Files(ctx, stored.ID) {
		if err != nil {
			return whole, x, err
		}
		top, rest, _ := strings.Cut(f.Path, "/")
		have[top] = true
		if theme, ok := strings.CutSuffix(rest, "/style.css"); ok && top == "themes" && !strings.Contains(theme, "/") {
			x.Themes = append(x.Themes, theme)
		}
	}
	plan.Content = slices.DeleteFunc(plan.Content, func(name string) bool { return !have[name] })
	say("info", "Stored %d files, %s: %s", stored.Files, Size(stored.Bytes), strings.Join(plan.Content, ", "))
	whole, err = bundles.Join(ctx, core, stored.ID, ContentAt)
	whole.Bytes = stored.Bytes // the core doesn't count
	return whole, x, err
}

// parts adds themes and plugins to the core, each in its own folder.
func parts(
	ctx context.Context,
	bundles *bundle.Bundles,
	plan *framework.Plan,
	a build.Artefact,
	core bundle.ID,
	say Log,
) (whole bundle.Stored, x Extensions, err error) {
	whole.ID = core
	plugins := 0
	for _, part := range plan.Parts {
		root, err := openFolder(a.Files, part.From)
		if err != nil {
			return whole, x, err
		}
		stored, err := storeContent(ctx, bundles, root, func(name string) bool {
			top, _, _ := strings.Cut(name, "/")
			return strings.HasPrefix(top, ".") || top == "node_modules" || a.Skip != nil && a.Skip(path.Join(part.From, name))
		}, say)
		_ = root.Close()
		if err != nil {
			return whole, x, err
		}
		kind, name, _ := strings.Cut(part.At, "/")
		if kind == "plugins" {
			plugins++
			x.Plugin = name
		} else {
			theme, err := themeIn(ctx, bundles, stored.ID)
			if err != nil {
				return whole, x, err
			}
			if theme == "" {
				return whole, x, fault.New(fault.Invalid, "output_missing", "The theme has no style.css after the build",
					fmt.Sprintf("%s must have one, or set the output folder to what the build writes", folderName(part.From)))
			}
			x.Themes = append(x.Themes, path.Join(name, path.Dir(theme)))
		}
		bytes := whole.Bytes + stored.Bytes
		if whole, err = bundles.Join(ctx, whole.ID, stored.ID, path.Join(ContentAt, part.At)); err != nil {
			return whole, x, err
		}
		whole.Bytes = bytes // the core doesn't count
		plan.Content = append(plan.Content, part.At)
		say("info", "Stored wp-content/%s: %d files, %s", part.At, stored.Files, Size(stored.Bytes))
	}
	if plugins > 1 {
		x.Plugin = ""
	}
	if len(x.Themes) > 1 {
		x.Themes = nil // the site's theme isn't known
	}
	return whole, x, nil
}

// themeIn returns the style.css of a theme, or "".
func themeIn(ctx context.Context, bundles *bundle.Bundles, id bundle.ID) (style string, err error) {
	for f, err := range bundles.Files(ctx, id) {
		if err != nil {
			return "", err
		}
		if f.Path == "style.css" || f.Path == "resources/style.css" && style == "" { // its place in Sage 9
			style = f.Path
		}
	}
	return style, nil
}

// openFolder opens a folder of a build's output.
func openFolder(files *os.Root, folder string) (*os.Root, error) {
	info, err := files.Stat(path.Join(".", folder))
	if err == nil && !info.IsDir() { // opening a pipe would block
		err = fs.ErrNotExist
	}
	if err != nil {
		return nil, fault.New(fault.Invalid, "output_missing", "There is nothing to publish",
			"the folder "+folder+" is missing after the build")
	}
	root, err := files.OpenRoot(path.Join(".", folder))
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", folder, err)
	}
	return root, nil
}

// maxContent caps the folders of a wp-content; each is a mount.
const maxContent = 50

// contentName reports whether a folder's name is allowed in a wp-content.
func contentName(name string) bool {
	return len(name) <= 100 && strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.") == ""
}

func storeContent(ctx context.Context, bundles *bundle.Bundles, root *os.Root, skip func(string) bool, say Log) (bundle.Stored, error) {
	for try := 1; ; try++ {
		stored, err := bundles.Store(ctx, root, skip)
		if errors.Is(err, blob.ErrSwept) && try < 3 {
			continue
		}
		for _, name := range stored.Left {
			say("warn", "Skipped %q: it points outside, or is not a file", name)
		}
		return stored, err
	}
}
