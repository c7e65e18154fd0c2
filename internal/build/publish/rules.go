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

// ruleFiles are the configuration files that may hold redirects and headers. The one in
// the site's root directory counts, or else the one at the top of the repository.
var ruleFiles = []string{"slipway.toml", "netlify.toml", "vercel.json"}

// Serving holds what rules may use.
type Serving struct {
	ProxyHosts []string // hosts that requests may be forwarded to
	Countries  bool     // visitors' countries are known
}

// Rules tells a release's writer what the commit and its plan say about serving it:
// where hashed files lie, whether it is a single-page application, and the rules.
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

// readRules returns a file of the commit. One that is too large is cut, which a parser of rules notices.
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

// hashedIn tells a release's writer where the plan's hashed files lie, and returns the
// commit's own paths: what was copied under its own name is not hashed.
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
