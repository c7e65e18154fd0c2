package publish

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"

	"slipway/internal/build/build"
	"slipway/internal/build/bundle"
	"slipway/internal/build/framework"
	"slipway/internal/build/release"
	"slipway/internal/build/rules"
	"slipway/internal/platform/blob"
)

// Program stores the artefact. It tries again if garbage collection deleted blobs that were about to be reused.
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

// pagesFolder is where a project may have its own error pages (502.html, 503.html, 504.html) and their assets.
const pagesFolder = ".slipway/pages"

// ProgramRules adds the _redirects and _headers of a PHP project, from its document root or else beside slipway.toml.
func ProgramRules(w *release.Writer, plan framework.Plan, a build.Artefact) error {
	for _, name := range []string{"_redirects", "_headers"} {
		for _, folder := range []string{a.Start.DocumentRoot, ""} {
			at := path.Join(plan.Root, folder, name)
			if info, err := a.Files.Stat(at); errors.Is(err, fs.ErrNotExist) || err == nil && !info.Mode().IsRegular() {
				continue // opening a pipe would block
			}
			f, err := a.Files.Open(at)
			if err != nil {
				return fmt.Errorf("open %s: %w", name, err)
			}
			text, err := io.ReadAll(io.LimitReader(f, rules.MaxFile+1))
			_ = f.Close()
			if err != nil {
				return fmt.Errorf("read %s: %w", name, err)
			}
			w.RuleFile(name, text)
			break
		}
	}
	return nil
}

// Assets adds the artefact's static files. Rule files are left out: the program answers for all other paths.
func Assets(ctx context.Context, w *release.Writer, tree Tree, plan framework.Plan, a build.Artefact, say Log) error {
	if _, err := hashedIn(ctx, w, tree, plan); err != nil {
		return err
	}
	w.Leave(a.Hidden)
	for _, f := range append(slices.Clone(a.Assets), framework.AssetFolder{Folder: path.Join(plan.Root, pagesFolder)}) {
		info, err := a.Files.Stat(f.Folder)
		if err != nil || !info.IsDir() { // opening a pipe would block
			continue // the build made no such folder
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
