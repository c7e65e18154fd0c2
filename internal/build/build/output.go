package build

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"

	"slipway/internal/build/buildlog"
	"slipway/internal/build/framework"
	"slipway/internal/platform/fault"
)

// handOver finds the output folder and calls use with it. Every process of the build is
// dead by now, so nothing moves under our hands.
func (b *build) handOver(ctx context.Context, use func(context.Context, Artefact) error) error {
	if b.Plan.Runtime != framework.Static { // a program runs from the whole checkout
		root, err := b.checkout()
		if errors.Is(err, errNoCheckout) {
			return &fault.Error{
				Kind:    fault.Invalid,
				Message: "There is nothing to run",
				Details: "the build has put something else in the place of the repository",
				Code:    "output_missing",
			}
		}
		if err != nil {
			return fmt.Errorf("open checkout: %w", err)
		}
		defer root.Close()
		return use(ctx, b.program(root))
	}
	folder, ok := b.output()
	if !ok {
		missing := path.Join(b.Plan.Root, b.Plan.Output)
		return &fault.Error{
			Kind: fault.Invalid, Message: "There is nothing to publish", Code: "output_missing",
			Details: b.log.Cause(buildlog.Failure{
				Stage:   "publish",
				Missing: missing,
				Found:   b.found(),
				Link:    b.linked(missing),
				Manager: b.Plan.Manager,
			}),
		}
	}
	root, err := os.OpenRoot(filepath.Join(b.work, RepoDir, folder))
	if err != nil {
		return fmt.Errorf("open output: %w", err)
	}
	defer root.Close()
	return use(ctx, Artefact{Files: root, Folder: folder, Runtime: b.Plan.Runtime, Start: b.Plan.Start})
}

// output returns the plan's output folder, or the first of its candidates that is there.
func (b *build) output() (string, bool) {
	for _, f := range append([]string{b.Plan.Output}, b.Plan.OutputCandidates...) {
		// The check begins above the checkout: a build may put a link in its place, too.
		folder := path.Join(b.Plan.Root, f)
		if !plainDir(b.work, path.Join(RepoDir, folder)) {
			continue
		}
		if folder == "." {
			folder = ""
		}
		return folder, true
	}
	return "", false
}

// linked returns where the output folder leads, when it is a link; "" when it is none.
func (b *build) linked(folder string) string {
	root, err := b.checkout()
	if err != nil || folder == "" {
		return ""
	}
	defer root.Close()
	to, err := root.Readlink(folder)
	if err != nil {
		return ""
	}
	return to
}

// found lists folders that look like output, for a message that helps.
func (b *build) found() []string {
	var out []string
	for _, f := range []string{"dist", "build", "public", "out", "_site", ".output/public", "www", "site", "docs", "target"} {
		folder := path.Join(b.Plan.Root, f)
		if plainDir(b.work, path.Join(RepoDir, folder)) {
			out = append(out, folder)
		}
	}
	return out
}
