package deploy

import (
	"context"
	"slices"
	"strings"

	"slipway/internal/build/build"
	"slipway/internal/build/framework"
	"slipway/internal/deploy/deployment"
	"slipway/internal/deploy/project"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/lazyregexp"
	"slipway/internal/platform/text"
	"slipway/internal/tenant/site"
)

const maxLacking = 8 // names that an error lists

// mayLack matches errors that a missing variable may cause.
var mayLack = lazyregexp.New(
	`(?i)^see its log$|^it printed nothing|^its (?:last error|output)|environment variable|could not be rendered|` +
		`\b(?:is|are|be) (?:required|missing|undefined|provided|set)\b|\bnot (?:set|provided|configured)\b|\bapi ?key|\bsecret\b|` +
		`invalid (?:env|url)`,
)

// lacking adds to a deployment's error the variables that an example file of the project lists but the site lacks, if
// one of them may be the cause. when is "build" or "runtime".
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
	file, names := project.Example(plan.Root, func(name string, most int64) ([]byte, error) { return tree.ReadFile(ctx, name, most) })
	names = slices.DeleteFunc(names, func(name string) bool {
		_, set := plan.Env[name]
		return set || slices.ContainsFunc(vars, func(v site.Var) bool { return v.Key == name })
	})
	if len(names) == 0 {
		return err
	}
	more := ""
	if left := len(names) - maxLacking; left > 0 {
		names, more = names[:maxLacking], " and "+text.Count(left, "more variable")
	}
	own := *f
	own.Details = strings.TrimSuffix(f.Details, ".") + ". " + file + " lists variables that the site doesn't have: " +
		strings.Join(names, ", ") + more + ". Add those that it needs, for the " + when
	return &own
}
