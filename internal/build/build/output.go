package build

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"syscall"

	"slipway/internal/build/buildlog"
	"slipway/internal/build/framework"
	"slipway/internal/platform/fault"
)

// handOver finds the output folder and calls use with it. All processes of the build are dead, so the files don't
// change.
func (b *build) handOver(ctx context.Context, use func(context.Context, Artefact) error) error {
	folder, ok := "", false
	if b.Plan.Runtime == framework.Static {
		folder, ok = b.output()
	}
	if b.Plan.Runtime != framework.Static || b.Plan.Server != "" { // a program runs from the whole checkout
		root, err := b.checkout()
		if errors.Is(err, errNoCheckout) {
			return fault.New(fault.Invalid, "output_missing", "There is nothing to run",
				"the build has put something else in the place of the repository")
		}
		if err != nil {
			return fmt.Errorf("open checkout: %w", err)
		}
		defer root.Close()
		if b.Plan.Runtime != framework.Static {
			server := b.correct(root)
			a := b.program(root)
			a.Server = server
			if err := b.apache(&a); err != nil {
				return err
			}
			return use(ctx, a)
		}
		if !ok || !hasPage(root, folder) {
			return b.serve(ctx, root, use)
		}
	}
	if !ok {
		missing := path.Join(b.Plan.Root, b.Plan.Output)
		return fault.New(fault.Invalid, "output_missing", "There is nothing to publish",
			b.log.Cause(buildlog.Failure{
				Stage:   "publish",
				Missing: missing,
				Found:   b.found(),
				Link:    b.linked(missing),
				Manager: b.Plan.Manager,
			}))
	}
	root, err := os.OpenRoot(filepath.Join(b.work, RepoDir, folder))
	if err != nil {
		return fmt.Errorf("open output: %w", err)
	}
	defer root.Close()
	return use(ctx, Artefact{Files: root, Folder: folder, Runtime: b.Plan.Runtime, Start: b.Plan.Start})
}

// output returns the plan's output folder, or the first of its candidates that exists. Folders that the build wrote
// come before committed ones, such as an old dist, but a folder without pages doesn't replace one with pages.
func (b *build) output() (string, bool) {
	there := b.outputs()
	if len(there) == 0 {
		return "", false
	}
	if said := b.Plan.Sources["output"]; said == "" || said == "detection" {
		if root, err := b.checkout(); err == nil {
			defer root.Close()
			for _, folder := range there {
				if folder != path.Clean(b.Plan.Root) && changed(root, folder) > b.before[folder] &&
					(hasPage(root, folder) || !hasPage(root, there[0])) {
					there[0] = folder
					break
				}
			}
		}
	}
	if there[0] == "." {
		return "", true
	}
	return there[0], true
}

// outputs lists the existing candidates for the output, likeliest first.
func (b *build) outputs() (list []string) {
	for _, f := range append([]string{b.Plan.Output}, b.Plan.OutputCandidates...) {
		// Check from above the checkout, because a build may replace the checkout itself by a link.
		if folder := path.Join(b.Plan.Root, f); plainDir(b.work, path.Join(RepoDir, folder)) {
			list = append(list, cmp.Or(folder, "."))
		}
	}
	return list
}

// noteOutputs records when the candidates for the output were last changed, before the build runs.
func (b *build) noteOutputs() {
	root, err := b.checkout()
	if err != nil || len(b.Plan.OutputCandidates) == 0 {
		return
	}
	defer root.Close()
	b.before = map[string]int64{}
	for _, folder := range b.outputs() {
		if folder != path.Clean(b.Plan.Root) {
			b.before[folder] = changed(root, folder)
		}
	}
}

// changed returns when a folder or its content was last written or moved (ctime, which programs can't set).
func changed(root *os.Root, folder string) (last int64) {
	walk(root, folder, func(_ string, e fs.DirEntry) bool {
		if info, err := e.Info(); err == nil {
			if s, ok := info.Sys().(*syscall.Stat_t); ok {
				last = max(last, s.Ctim.Nano())
			}
		}
		return true
	})
	return last
}

// linked returns the target of the output folder if it is a link, or "".
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

// found lists folders that look like output, for an error message.
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
