package fetch

import (
	"context"
	"fmt"
	"strings"

	"slipway/internal/platform/fault"
)

// orVacant replaces the fault of a missing branch: by one that says that the repository is empty, or by one that names
// the default branch.
func (s *Fetcher) orVacant(ctx context.Context, remote *remote, r Request, err error) error {
	if f := fault.As(err); f == nil || f.Code != codeNoBranch && f.Code != codeNoDefault {
		return err
	}
	var out limited
	e := remote.try(func(config [][2]string) error {
		out = limited{max: 1 << 10}
		stderr, e := s.run(ctx, command{
			args: []string{"ls-remote", "--symref", "--end-of-options", "slipway"}, env: remote.env,
			config: config, show: remote.show, ours: remote.ours, several: true, stdout: &out,
		})
		if e != nil {
			return s.explain(ctx, r, remote, stderr, e)
		}
		return nil
	})
	if e != nil {
		return err
	}
	if out.Len() > 0 {
		f := *fault.As(err)
		first, _, _ := strings.Cut(out.String(), "\n")
		ref, head := strings.CutSuffix(first, "\tHEAD")
		if b, ok := strings.CutPrefix(ref, "ref: refs/heads/"); head && ok && CheckBranch(b) == nil && f.Code == codeNoBranch && b != r.Branch {
			f.Details = "the repository's default branch is " + b + ": set the site's branch to it, or to none"
			return &f
		}
		return err
	}
	return fault.New(fault.Invalid, "repository_empty", fmt.Sprintf("Repository %s is empty", r.Repository),
		"push a first commit, then deploy")
}
