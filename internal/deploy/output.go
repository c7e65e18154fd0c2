package deploy

import (
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"

	"slipway/internal/buildlog"
	"slipway/internal/fault"
	"slipway/internal/release"
)

// publish finds the output folder and makes a release of it. Every process of the build
// is dead by now, so nothing moves under our hands.
func (b *build) publish(ctx context.Context) (release.Sealed, error) {
	folder, ok := b.output()
	if !ok {
		missing := path.Join(b.plan.Root, b.plan.Output)
		return release.Sealed{}, &fault.Error{Kind: fault.Invalid, Message: "There is nothing to publish", Code: "output_missing",
			Details: b.log.Cause(buildlog.Failure{Stage: "publish", Missing: missing, Found: b.found(), Manager: b.plan.Manager})}
	}
	root, err := os.OpenRoot(filepath.Join(b.work, repoDir, folder))
	if err != nil {
		return release.Sealed{}, fmt.Errorf("open output: %w", err)
	}
	defer root.Close()
	w, err := b.d.c.Releases.Begin(ctx, release.ID(b.s.LiveRelease))
	if err != nil {
		return release.Sealed{}, fmt.Errorf("begin release: %w", err)
	}
	defer w.Abort()
	if err := w.AddDir(ctx, root); err != nil {
		return release.Sealed{}, fmt.Errorf("collect output: %w", err)
	}
	return b.d.seal(ctx, w, folder, b.p)
}

// output is the plan's output folder, or the first of its candidates that is there.
func (b *build) output() (string, bool) {
	for _, f := range append([]string{b.plan.Output}, b.plan.OutputCandidates...) {
		// The way begins above the checkout: a build may put a link in its place, too.
		folder := path.Join(b.plan.Root, f)
		if !plainDir(b.work, path.Join(repoDir, folder)) {
			continue
		}
		if folder == "." {
			folder = ""
		}
		return folder, true
	}
	return "", false
}

// found lists folders that look like output, for a message that helps.
func (b *build) found() []string {
	var out []string
	for _, f := range []string{"dist", "build", "public", "out", "_site", ".output/public", "www", "site", "docs", "target"} {
		folder := path.Join(b.plan.Root, f)
		if plainDir(b.work, path.Join(repoDir, folder)) {
			out = append(out, folder)
		}
	}
	return out
}
