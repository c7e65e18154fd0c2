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

// ContentAt is where the folders of a wp-content lie in the bundle of a site with a
// repository, beside the core.
const ContentAt = "content"

// notContent are folders of a wp-content that belong to the site and not to a commit.
var notContent = []string{
	"uploads", "upgrade", "upgrade-temp-backup", "cache", "database", "languages", "blogs.dir", ".git", ".github",
	"node_modules",
}

// Content joins what a build has left of a wp-content to the core, and names its folders in
// the plan. It returns the bundle, of whose bytes only the wp-content's count, and the folders
// that may be themes.
func Content(
	ctx context.Context,
	bundles *bundle.Bundles,
	plan *framework.Plan,
	a build.Artefact,
	core bundle.ID,
	say Log,
) (whole bundle.Stored, themes []string, err error) {
	say("info", "Storing themes and plugins")
	folder := path.Join(plan.Root, plan.Output)
	root := a.Files
	if folder != "" {
		info, err := a.Files.Stat(folder)
		if err == nil && !info.IsDir() { // opening a pipe would wait for ever
			err = fs.ErrNotExist
		}
		if err != nil {
			return whole, nil, &fault.Error{
				Kind:    fault.Invalid,
				Message: "There is nothing to publish",
				Details: "the folder " + folder + " is missing after the build",
				Code:    "output_missing",
			}
		}
		if root, err = a.Files.OpenRoot(folder); err != nil {
			return whole, nil, fmt.Errorf("open wp-content: %w", err)
		}
		defer root.Close()
	}
	entries, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return whole, nil, fmt.Errorf("list wp-content: %w", err)
	}
	plan.Content = nil
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
		return whole, nil, &fault.Error{
			Kind:    fault.Invalid,
			Message: "The wp-content has too many folders",
			Details: fmt.Sprintf("at most %d at its top level", maxContent),
		}
	}
	stored, err := storeContent(ctx, bundles, root, plan.Content, func(name string) bool {
		return a.Skip != nil && a.Skip(path.Join(
			folder,
			name,
		))
	})
	if err != nil {
		return whole, nil, err
	}
	for _, name := range stored.Left {
		say("warn", "Skipped %q: it points outside, or is not a file", name)
	}
	// A folder without a file is none in a bundle.
	have := map[string]bool{}
	for f, err := range bundles.Files(ctx, stored.ID) {
		if err != nil {
			return whole, nil, err
		}
		top, rest, _ := strings.Cut(f.Path, "/")
		have[top] = true
		if theme, ok := strings.CutSuffix(rest, "/style.css"); ok && top == "themes" && !strings.Contains(theme, "/") {
			themes = append(themes, theme)
		}
	}
	plan.Content = slices.DeleteFunc(plan.Content, func(name string) bool { return !have[name] })
	say("info", "Stored %d files, %s: %s", stored.Files, Size(stored.Bytes), strings.Join(plan.Content, ", "))
	whole, err = bundles.Join(ctx, core, stored.ID, ContentAt)
	whole.Bytes = stored.Bytes // the core is nobody's
	return whole, themes, err
}

// maxContent bounds the folders of a wp-content, each of which is a mount.
const maxContent = 50

// contentName reports whether a folder's name may be one of a wp-content.
func contentName(name string) bool {
	return len(name) <= 100 && strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.") == ""
}

func storeContent(
	ctx context.Context,
	bundles *bundle.Bundles,
	root *os.Root,
	folders []string,
	skip func(string) bool,
) (bundle.Stored, error) {
	for try := 1; ; try++ {
		stored, err := bundles.Store(ctx, root, func(name string) bool {
			top, _, _ := strings.Cut(name, "/")
			return !slices.Contains(folders, top) || skip(name)
		})
		if !errors.Is(err, blob.ErrSwept) || try == 3 {
			return stored, err
		}
	}
}
