package publish

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"

	"slipway/internal/build/framework"
	"slipway/internal/build/release"
	"slipway/internal/build/rules"
	"slipway/internal/platform/fault"
)

// ruleFiles lists the configuration files that may contain redirects and headers. A file in the site's root directory
// takes precedence over one at the repository's root.
var ruleFiles = []string{"slipway.toml", "netlify.toml", "vercel.json"}

// Serving says what rules may use.
type Serving struct {
	ProxyHosts []string // hosts to which requests may be proxied
	Countries  bool     // whether visitors' countries are known
}

// Rules passes to a release's writer how the commit is served: hashed folders, whether it is a single-page application,
// and its rules.
func Rules(ctx context.Context, w *release.Writer, s Serving, tree Tree, plan framework.Plan) error {
	regular, err := hashedIn(ctx, w, tree, plan)
	if err != nil {
		return err
	}
	w.Forwarding(s.ProxyHosts)
	if s.Countries {
		w.Countries()
	}
	if plan.SPA {
		w.SinglePage()
	}
	for _, name := range ruleFiles {
		at := path.Join(plan.Root, name)
		if !regular[at] {
			at = name
		}
		if !regular[at] {
			continue
		}
		b, err := readRules(ctx, tree, at)
		if err != nil {
			return err
		}
		w.RuleFile(name, b)
	}
	for _, at := range []string{path.Join(plan.Root, headersFile), headersFile} {
		if !regular[at] {
			continue
		}
		b, err := readRules(ctx, tree, at)
		if err != nil {
			return err
		}
		w.SpareHeaders(b)
		break
	}
	return nil
}

const headersFile = "_headers"

// readRules returns a file of the commit. A file that is too large is truncated, which the rule parser reports.
func readRules(ctx context.Context, tree Tree, name string) ([]byte, error) {
	b, err := tree.ReadFile(ctx, name, rules.MaxFile+1)
	switch {
	case fault.Is(err, fault.TooLarge):
	case errors.Is(err, fs.ErrNotExist):
		return nil, fault.New(fault.Invalid, "unreadable_file", name+" can't be read",
			"it is a link that leads outside the repository or to nothing; commit the file itself")
	case err != nil:
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return b, nil
}

// hashedIn passes the plan's hashed folders to a release's writer, and returns the commit's own paths: files that were
// copied unchanged have no hashed names.
func hashedIn(ctx context.Context, w *release.Writer, tree Tree, plan framework.Plan) (map[string]bool, error) {
	files, err := tree.Files(ctx)
	if err != nil {
		return nil, fmt.Errorf("list commit: %w", err)
	}
	regular := make(map[string]bool, len(files))
	for _, f := range files {
		if f.Mode.IsRegular() || f.Mode&fs.ModeSymlink != 0 {
			regular[f.Path] = true
		}
	}
	folders := make([]release.HashedFolder, len(plan.Hashed))
	for i, h := range plan.Hashed {
		folders[i] = release.HashedFolder{Folder: h.Folder, Form: release.Form(h.Form)}
	}
	w.Hashed(folders, func(name string) bool {
		for _, copied := range []string{"public", "static", "src"} {
			if regular[path.Join(plan.Root, copied, name)] {
				return true
			}
		}
		return false
	})
	return regular, nil
}
