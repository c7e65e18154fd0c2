package publish

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"slipway/internal/build/build"
	"slipway/internal/build/bundle"
	"slipway/internal/build/framework"
	"slipway/internal/build/release"
	"slipway/internal/platform/blob"
)

// Program stores the artefact, once more where a sweep deleted at the same moment what
// was there to be used again.
func Program(ctx context.Context, bundles *bundle.Bundles, a build.Artefact) (bundle.Stored, error) {
	for try := 1; ; try++ {
		stored, err := bundles.Store(ctx, a.Files, func(name string) bool {
			return path.Base(name) == ".cache" && strings.Contains(name, "node_modules") || a.Skip != nil && a.Skip(name)
		})
		if !errors.Is(err, blob.ErrSwept) || try == 3 {
			return stored, err
		}
	}
}

// pagesFolder is where a project may have pages of its own for failures: 502.html, 503.html,
// 504.html, and what they show.
const pagesFolder = ".slipway/pages"

// Assets adds the artefact's static files. Rules are not among them: the program answers
// for the rest of its paths.
func Assets(ctx context.Context, w *release.Writer, tree Tree, plan framework.Plan, a build.Artefact, say Log) error {
	if _, err := hashedIn(ctx, w, tree, plan); err != nil {
		return err
	}
	w.Leave(a.Hidden)
	for _, f := range append(slices.Clone(a.Assets), framework.AssetFolder{Folder: path.Join(plan.Root, pagesFolder)}) {
		info, err := a.Files.Stat(f.Folder)
		if err != nil || !info.IsDir() { // opening a pipe would wait for ever
			continue // it has none
		}
		root, err := a.Files.OpenRoot(f.Folder)
		if err != nil {
			continue
		}
		err = w.AddDirAt(ctx, root, f.At, func(name, why string) { say("warn", "Skipped %s: %s", name, why) })
		_ = root.Close()
		if err != nil {
			return fmt.Errorf("collect static files: %w", err)
		}
	}
	return nil
}
