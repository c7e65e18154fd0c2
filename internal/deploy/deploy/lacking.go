package deploy

import (
	"context"
	"path"
	"slices"
	"strings"

	"slipway/internal/build/build"
	"slipway/internal/build/framework"
	"slipway/internal/deploy/deployment"
	"slipway/internal/platform/dotenv"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/lazyregexp"
	"slipway/internal/platform/text"
)

// exampleFiles are where projects list the variables that they read.
var exampleFiles = []string{
	".env.example", ".env.sample", ".env.template", ".env.dist", ".env.local.example", ".env.example.local", "example.env", "env.example",
	".env.development",
}

const (
	maxExample = 64 << 10 // bytes
	maxLacking = 8        // names that an error lists
)

// mayLack matches causes that a missing variable may have. Others say enough.
var mayLack = lazyregexp.New(
	`(?i)^see its log$|^it printed nothing|^its (?:last error|output)|environment variable|could not be rendered|` +
		`\b(?:is|are|be) (?:required|missing|undefined|provided|set)\b|\bnot (?:set|provided|configured)\b|\bapi ?key|\bsecret\b|` +
		`invalid (?:env|url)`,
)

// lacking adds to the error of a deployment the variables that an example file of the project lists and the site doesn't
// have, where one of them may be the cause. when is "build" or "runtime".
func (d *Deployments) lacking(
	ctx context.Context, x deployment.Deployment, tree sourceTree, plan framework.Plan, when string, err error,
) error {
	f := fault.As(err)
	if f == nil || !mayLack.MatchString(f.Details) ||
		!slices.Contains([]string{"application_crashed", "application_unhealthy", "release_failed", build.CodeFailed}, f.Code) {
		return err
	}
	vars, failed := d.Variables(ctx, x, when)
	if failed != nil {
		return err
	}
	has := map[string]bool{"PORT": true, "HOST": true, "NODE_ENV": true}
	for _, v := range vars {
		has[v.Key] = true
	}
	for k := range plan.Env {
		has[k] = true
	}
	for _, name := range exampleFiles {
		content, failed := tree.ReadFile(ctx, path.Join(plan.Root, name), maxExample)
		if failed != nil {
			continue
		}
		pairs, failed := dotenv.Parse(string(content))
		if failed != nil {
			continue
		}
		var names []string
		for _, p := range pairs {
			if !has[p.Key] && len(p.Key) <= 60 {
				names = append(names, p.Key)
			}
		}
		if len(names) == 0 {
			continue
		}
		more := ""
		if left := len(names) - maxLacking; left > 0 {
			names, more = names[:maxLacking], " and "+text.Count(left, "more variable")
		}
		own := *f
		own.Details = strings.TrimSuffix(f.Details, ".") + ". " + name + " lists variables that the site doesn't have: " +
			strings.Join(names, ", ") + more + ". Add those that it needs, for the " + when
		return &own
	}
	return err
}
