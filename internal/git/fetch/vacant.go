package fetch

import (
	"context"
	"fmt"

	"slipway/internal/platform/fault"
)

// orVacant returns the fault of a repository without any commit in place of one about a
// branch that it doesn't have.
func (s *Fetcher) orVacant(ctx context.Context, remote *remote, r Request, err error) error {
	if f := fault.As(err); f == nil || f.Code != codeNoBranch && f.Code != codeNoDefault {
		return err
	}
	var out limited
	e := remote.try(func(config [][2]string) error {
		out = limited{max: 1 << 10}
		stderr, e := s.run(ctx, command{
			args: []string{"ls-remote", "--end-of-options", "slipway"}, env: remote.env,
			config: config, show: remote.show, ours: remote.ours, several: true, stdout: &out,
		})
		if e != nil {
			return s.explain(ctx, r, remote, stderr, e)
		}
		return nil
	})
	if e != nil || out.Len() > 0 {
		return err
	}
	return &fault.Error{
		Kind:    fault.Invalid,
		Code:    "repository_empty",
		Message: fmt.Sprintf("Repository %s is empty", r.Repository),
		Details: "push a first commit, then deploy",
	}
}
